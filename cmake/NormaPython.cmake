# The library of the Python package (python/): the same objects as libnorma.so in one file that needs the C library only.
#
# jansson, utf8proc, xxHash, nettle, protobuf-c, zlib, liblzma, libzstd and libyaml are linked statically where their archives are
# installed (in Debian: in the -dev packages).
# OpenMP is not linked: the package loads the library into a process that has the functions of GCC's runtime, such as that of PyTorch
# (python/norma/_library.py).
option(NORMA_PYTHON "Build the library of the Python package" ${NORMA_TESTS})
if(NOT NORMA_PYTHON)
  return()
endif()

set(_python_libraries)
set(_python_shared "")
set(_packages "JANSSON=jansson" "UTF8PROC=utf8proc" "XXHASH=xxhash" "NETTLE=nettle")
if(NORMA_PROTOBUF_REQUIRES)
  list(APPEND _packages "PROTOBUF_C=protobuf-c")
endif()
# libpng needs zlib, so it precedes it.
foreach(_package LIBJPEG=jpeg LIBPNG=png16 ZLIB=z LZMA=lzma ZSTD=zstd YAML=yaml)
  string(REGEX REPLACE "=.*" "" _name ${_package})
  if(${_name}_FOUND)
    list(APPEND _packages ${_package})
  endif()
endforeach()
foreach(_package IN LISTS _packages)
  string(REGEX MATCH "^([^=]*)=(.*)$" _match "${_package}")
  set(_name ${CMAKE_MATCH_1})
  set(_library ${CMAKE_MATCH_2})
  find_library(NORMA_${_name}_ARCHIVE lib${_library}.a HINTS ${${_name}_LIBDIR} ${${_name}_LIBRARY_DIRS})
  if(NORMA_${_name}_ARCHIVE)
    list(APPEND _python_libraries ${NORMA_${_name}_ARCHIVE})
  else()
    list(APPEND _python_libraries PkgConfig::${_name})
    string(APPEND _python_shared " ${_library}")
  endif()
endforeach()
if(_python_shared)
  message(STATUS "Python package: linked dynamically, as there is no static archive:${_python_shared}")
endif()

add_library(norma_python SHARED ${NORMA_OBJECTS} python/stdin.c)
set_target_properties(norma_python PROPERTIES OUTPUT_NAME norma NO_SONAME ON
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/python)
target_link_libraries(norma_python PRIVATE ${_python_libraries} m)
# Symbols of the archives are not exported. Debian's archives are compiled for programs (PIE), which is sufficient except for the
# address of the variables stdin in jansson and stderr in libpng.
target_link_options(norma_python PRIVATE -Wl,--exclude-libs,ALL -Wl,--wrap=stdin -Wl,--wrap=stderr -Wl,--build-id=sha1
                    ${NORMA_HARDENED_LINK})
if(NORMA_SANITIZE)
  target_link_options(norma_python PRIVATE -fsanitize=${NORMA_SANITIZE})
endif()
if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU") # Clang's functions of OpenMP are not in GCC's runtime
  target_link_libraries(norma_python PRIVATE OpenMP::OpenMP_C)
endif()
install(TARGETS norma_python LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)

# The calls of norma.torch in C, for any version of CPython from 3.9; without the headers of Python they go through ctypes. The
# functions of the library are given by their addresses, and those of Python are in the interpreter.
find_package(Python3 QUIET COMPONENTS Interpreter Development.Module)
if(Python3_Development.Module_FOUND AND NOT NORMA_SANITIZE)
  add_library(norma_python_calls MODULE python/calls.c python/calls_pass.c python/calls_tensor.c)
  set_target_properties(norma_python_calls PROPERTIES PREFIX "" OUTPUT_NAME _calls SUFFIX .abi3.so C_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/python)
  target_include_directories(norma_python_calls SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  target_include_directories(norma_python_calls PRIVATE include)
  target_compile_options(norma_python_calls PRIVATE $<TARGET_PROPERTY:norma_settings,INTERFACE_COMPILE_OPTIONS>)
  target_link_options(norma_python_calls PRIVATE ${NORMA_HARDENED_LINK})
  add_dependencies(norma_python norma_python_calls)
  install(TARGETS norma_python_calls LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
else()
  message(STATUS "Python package: without the calls in C (on Debian: libpython3-dev)")
endif()

# The program of the package with the same archives. It is a process without other libraries, so OpenMP is linked as well.
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libgomp.a OUTPUT_VARIABLE _openmp OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU" OR NOT EXISTS "${_openmp}")
  set(_openmp OpenMP::OpenMP_C)
endif()
add_executable(norma_python_program ${NORMA_PROGRAM_SOURCES}
               ${NORMA_OBJECTS})
target_compile_definitions(norma_python_program PRIVATE $<TARGET_PROPERTY:norma_settings,INTERFACE_COMPILE_DEFINITIONS>)
norma_set_module_folder(norma_python_program)
target_compile_options(norma_python_program PRIVATE $<TARGET_PROPERTY:norma_settings,INTERFACE_COMPILE_OPTIONS> ${OpenMP_C_FLAGS})
target_include_directories(norma_python_program PRIVATE $<TARGET_PROPERTY:norma_headers,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_options(norma_python_program PRIVATE ${NORMA_HARDENED_LINK})
target_link_libraries(norma_python_program PRIVATE ${_python_libraries} ${_openmp} pthread dl m)
set_target_properties(norma_python_program PROPERTIES OUTPUT_NAME norma
                      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/python)
if(NORMA_SANITIZE) # the program of the package has no sanitizers
  set_target_properties(norma_python_program PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
install(TARGETS norma_python_program RUNTIME DESTINATION bin COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY recipes DESTINATION share/norma COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.ini")
