# Finds a CBLAS as baseline of the benchmarks. Order: OpenBLAS with OpenMP, serial OpenBLAS, BLIS, any other CBLAS;
# last OpenBLAS with pthreads, whose idle threads spin and compete with OpenMP.
set(NORMA_BLAS "auto" CACHE STRING "auto, openblas-openmp, openblas-serial, blis-openmp, openblas-pthread")
if(NORMA_BLAS STREQUAL "auto")
  set(_kinds openblas-openmp openblas-serial blis-openmp blis-serial "" openblas-pthread)
else()
  set(_kinds ${NORMA_BLAS})
endif()
foreach(_kind IN LISTS _kinds)
  foreach(_root ${CMAKE_SYSTEM_LIBRARY_PATH} /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib64 /usr/lib /usr/local/lib)
    find_library(NormaBlas_LIBRARY NAMES openblas blis cblas PATHS ${_root}/${_kind} NO_DEFAULT_PATH)
  endforeach()
  if(NormaBlas_LIBRARY)
    break()
  endif()
endforeach()
find_path(NormaBlas_INCLUDE_DIR cblas.h
          PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} /usr/include
          PATH_SUFFIXES openblas-openmp openblas-serial openblas-pthread blis openblas)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NormaBlas REQUIRED_VARS NormaBlas_LIBRARY NormaBlas_INCLUDE_DIR)
if(NormaBlas_FOUND AND NOT TARGET NormaBlas::NormaBlas)
  message(STATUS "BLAS: ${NormaBlas_LIBRARY}")
  get_filename_component(_folder ${NormaBlas_LIBRARY} DIRECTORY)
  add_library(NormaBlas::NormaBlas UNKNOWN IMPORTED)
  set_target_properties(NormaBlas::NormaBlas PROPERTIES IMPORTED_LOCATION ${NormaBlas_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${NormaBlas_INCLUDE_DIR}
                        INTERFACE_LINK_OPTIONS "-Wl,-rpath,${_folder}")
endif()
