# The source of the device kernels is embedded in the library, which compiles it for the GPU at run time (cuda_compile.c).
#
# The generated file is added to the sources of the core.
set(_source ${CMAKE_CURRENT_BINARY_DIR}/kernel_source.c)
file(GLOB _kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/src/core
     src/core/backend/device/dialect.h src/core/backend/device/kernels/*.h src/core/backend/device/kernels/*.inc)
list(TRANSFORM _kernels PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/src/core/ OUTPUT_VARIABLE _kernel_paths)
set(_embed ${CMAKE_CURRENT_SOURCE_DIR}/cmake/EmbedTable.cmake)
add_custom_command(OUTPUT ${_source}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_source} -DHEADER=backend/device/kernel_source.h
                           -DTYPE=nm_kernel_source -DTABLE=nm_kernel_sources -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}/src/core
                           "-DFILES=${_kernels}" -P ${_embed}
                   DEPENDS ${_kernel_paths} ${_embed}
                   COMMENT "Source of the device kernels" VERBATIM)
list(APPEND NORMA_CORE_SOURCES ${_source})
