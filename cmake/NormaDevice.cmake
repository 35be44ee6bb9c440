# The source of the device kernels is embedded in the library, which compiles it for the GPU at run time (cuda_compile.c).
#
# The generated file is added to the sources of the core.
set(_source ${CMAKE_CURRENT_BINARY_DIR}/kernel_source.c)
file(GLOB _kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/src/core
     src/core/backend/device/dialect.h src/core/backend/device/args.h src/core/backend/device/*.inc)
list(TRANSFORM _kernels PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/src/core/ OUTPUT_VARIABLE _kernel_paths)
# The list of functions that the kernels share with the host.
set(_shared norma/choice.h norma/functions.h)
list(APPEND _kernels ${_shared})
list(TRANSFORM _shared PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/include/ OUTPUT_VARIABLE _shared_paths)
set(_folders ${CMAKE_CURRENT_SOURCE_DIR}/src/core ${CMAKE_CURRENT_SOURCE_DIR}/include)
set(_embed ${CMAKE_CURRENT_SOURCE_DIR}/cmake/EmbedTable.cmake)
add_custom_command(OUTPUT ${_source}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_source} -DHEADER=backend/device/kernel_source.h
                           -DTYPE=nm_kernel_source -DTABLE=nm_kernel_sources "-DFOLDERS=${_folders}"
                           "-DFILES=${_kernels}" -P ${_embed}
                   DEPENDS ${_kernel_paths} ${_shared_paths} ${_embed}
                   COMMENT "Source of the device kernels" VERBATIM)
list(APPEND NORMA_CORE_SOURCES ${_source})
