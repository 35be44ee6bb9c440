# Style sheet and script of the report page are embedded in the program as byte arrays (page_parts.c).
#
# NORMA_REPORT_SOURCES: what to compile besides the files of src/report.
set(_page ${CMAKE_CURRENT_BINARY_DIR}/page_parts.c)
set(_css ${CMAKE_CURRENT_SOURCE_DIR}/src/report/page.css)
set(_js ${CMAKE_CURRENT_SOURCE_DIR}/src/report/page.js)
add_custom_command(OUTPUT ${_page}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_page} -DHEADER=report/page.h
                           "-DPARTS=nm_page_css=${_css};nm_page_js=${_js}"
                           -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake
                   DEPENDS ${_css} ${_js} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake
                   COMMENT "Style sheet and script of the report" VERBATIM)
set(NORMA_REPORT_SOURCES ${_page})

# TensorBoard event files need protobuf-c; nothing else does.
pkg_check_modules(PROTOBUF_C IMPORTED_TARGET libprotobuf-c)
find_program(NORMA_PROTOC_C protoc-c)
set(NORMA_PROTOBUF_REQUIRES "")
set(NORMA_PROTOBUF_MODULE "")
if(PROTOBUF_C_FOUND AND NORMA_PROTOC_C)
  set(_event ${CMAKE_CURRENT_BINARY_DIR}/protobuf/event.pb-c)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/protobuf)
  add_custom_command(OUTPUT ${_event}.c ${_event}.h
                     COMMAND ${NORMA_PROTOC_C} --c_out=${CMAKE_CURRENT_BINARY_DIR}/protobuf
                             --proto_path=${CMAKE_CURRENT_SOURCE_DIR}/src/report event.proto
                     DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/report/event.proto
                     COMMENT "TensorBoard's events" VERBATIM)
  set_source_files_properties(${_event}.c PROPERTIES COMPILE_OPTIONS "-w")
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/report/event_code.c PROPERTIES
                              COMPILE_DEFINITIONS NORMA_PROTOBUF OBJECT_DEPENDS ${_event}.h
                              INCLUDE_DIRECTORIES ${CMAKE_CURRENT_BINARY_DIR}/protobuf)
  list(APPEND NORMA_REPORT_SOURCES ${_event}.c)
  target_link_libraries(norma_settings INTERFACE PkgConfig::PROTOBUF_C)
  set(NORMA_PROTOBUF_REQUIRES " libprotobuf-c")
  set(NORMA_PROTOBUF_MODULE "PROTOBUF_C=libprotobuf-c")
else()
  message(STATUS "Without TensorBoard's event files: libprotobuf-c-dev or protobuf-c-compiler is missing")
endif()
