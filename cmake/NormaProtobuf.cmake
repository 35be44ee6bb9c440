# protobuf-c writes TensorBoard's event files (src/lab/report) and reads SentencePiece models (src/task/text); nothing else needs it.
#
# The generated files are added to the sources of the houses.
pkg_check_modules(PROTOBUF_C IMPORTED_TARGET libprotobuf-c)
find_program(NORMA_PROTOC_C protoc-c)
set(NORMA_PROTOBUF_REQUIRES "")
set(NORMA_PROTOBUF_MODULE "")
if(PROTOBUF_C_FOUND AND NORMA_PROTOC_C)
  set(_folder ${CMAKE_CURRENT_BINARY_DIR}/protobuf)
  file(MAKE_DIRECTORY ${_folder})
  # The house, the format, and the file that uses it.
  function(norma_protobuf house proto user)
    get_filename_component(_name ${proto} NAME_WE)
    get_filename_component(_source_folder ${CMAKE_CURRENT_SOURCE_DIR}/${proto} DIRECTORY)
    add_custom_command(OUTPUT ${_folder}/${_name}.pb-c.c ${_folder}/${_name}.pb-c.h
                       COMMAND ${NORMA_PROTOC_C} --c_out=${_folder} --proto_path=${_source_folder} ${_name}.proto
                       DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${proto}
                       COMMENT "Messages of ${_name}.proto" VERBATIM)
    set_source_files_properties(${_folder}/${_name}.pb-c.c PROPERTIES COMPILE_OPTIONS "-w")
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${user} PROPERTIES
                                COMPILE_DEFINITIONS NORMA_PROTOBUF OBJECT_DEPENDS ${_folder}/${_name}.pb-c.h
                                INCLUDE_DIRECTORIES ${_folder})
    set(NORMA_${house}_SOURCES ${NORMA_${house}_SOURCES} ${_folder}/${_name}.pb-c.c PARENT_SCOPE)
  endfunction()
  norma_protobuf(LAB src/lab/report/event.proto src/lab/report/event_code.c)
  norma_protobuf(TASK src/task/text/sentencepiece.proto src/task/text/sentencepiece.c)
  target_link_libraries(norma_settings INTERFACE PkgConfig::PROTOBUF_C)
  set(NORMA_PROTOBUF_REQUIRES " libprotobuf-c")
  set(NORMA_PROTOBUF_MODULE "PROTOBUF_C=libprotobuf-c")
else()
  message(STATUS "Without TensorBoard's event files and SentencePiece: libprotobuf-c-dev or protobuf-c-compiler is missing")
endif()
