# Libraries of file formats: compressed text (src/core/base/text_input.c), YAML (src/lab/convert/yaml_file.c), images
# (src/task/data/image_file.c). Each is read if its library is installed.
set(NORMA_COMPRESSION_REQUIRES "")
set(NORMA_COMPRESSION_MODULES "")
set(_definitions)
foreach(_row ZLIB=zlib LZMA=liblzma ZSTD=libzstd YAML=yaml-0.1 LIBJPEG=libjpeg LIBPNG=libpng)
  string(REPLACE "=" ";" _row ${_row})
  list(GET _row 0 _name)
  list(GET _row 1 _module)
  pkg_check_modules(${_name} IMPORTED_TARGET ${_module})
  if(${_name}_FOUND)
    list(APPEND _definitions NORMA_${_name})
    target_link_libraries(norma_settings INTERFACE PkgConfig::${_name})
    string(APPEND NORMA_COMPRESSION_REQUIRES " ${_module}")
    string(APPEND NORMA_COMPRESSION_MODULES " ${_name}=${_module}")
  else()
    message(STATUS "Without files of ${_module}: its development package is missing")
  endif()
endforeach()
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/core/base/text_input.c
                            ${CMAKE_CURRENT_SOURCE_DIR}/src/lab/convert/yaml_file.c
                            ${CMAKE_CURRENT_SOURCE_DIR}/src/task/data/image_file.c PROPERTIES COMPILE_DEFINITIONS "${_definitions}")
