# MPI is optional and for the program only (src/core/train/comm_mpi.c): norma-mpi.so, a module that the program loads when an MPI launcher has
# started it. Otherwise MPI libraries, which install signal handlers, start threads and need hundreds of MiB of address space when
# they are loaded, would do so in every command. The libraries do not depend on MPI.
set(NORMA_MPI AUTO CACHE STRING "Training by several processes over MPI: AUTO (if MPI is found), ON, OFF")
set_property(CACHE NORMA_MPI PROPERTY STRINGS AUTO ON OFF)
if(NORMA_MPI STREQUAL "ON")
  find_package(MPI REQUIRED COMPONENTS C)
elseif(NORMA_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()

set(_mpi_sources ${CMAKE_SOURCE_DIR}/src/core/train/comm_mpi.c ${CMAKE_SOURCE_DIR}/src/core/train/deadline.c)
list(REMOVE_ITEM NORMA_CORE_SOURCES ${_mpi_sources})

# program: finds the module in its own folder or, installed, in NORMA_MODULE_FOLDER, which is relative to that of the program.
function(norma_set_module_folder program)
  file(RELATIVE_PATH _folder ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/norma)
  target_compile_definitions(${program} PRIVATE NORMA_MODULE_FOLDER="${_folder}")
endfunction()

function(norma_add_mpi program)
  norma_set_module_folder(${program})
  if(NORMA_MPI AND MPI_C_FOUND)
    find_package(Threads REQUIRED)
    # MPICH declares arrays of statuses, and GCC warns that its MPI_STATUSES_IGNORE is none.
    set_source_files_properties(${_mpi_sources} PROPERTIES COMPILE_OPTIONS $<$<C_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
    add_library(norma_mpi MODULE ${_mpi_sources})
    set_target_properties(norma_mpi PROPERTIES PREFIX "" OUTPUT_NAME norma-mpi)
    target_link_libraries(norma_mpi PRIVATE norma_settings MPI::MPI_C Threads::Threads)
    add_dependencies(${program} norma_mpi)
    # The functions of the program that the module calls.
    set(_list ${CMAKE_SOURCE_DIR}/cmake/mpi_module.symbols)
    target_link_options(${program} PRIVATE -Wl,--dynamic-list=${_list})
    set_target_properties(${program} PROPERTIES LINK_DEPENDS ${_list})
  endif()
endfunction()
