# Installation: program, libraries, headers, recipes, manual pages, shell completion, and the files with which other builds find the
# library (pkg-config: norma; CMake: find_package(Norma), targets Norma::norma, Norma::shared).
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Norma)

# The static library exports its dependencies; the shared library is linked with them.
target_link_libraries(norma PUBLIC $<INSTALL_INTERFACE:OpenMP::OpenMP_C>
                      $<INSTALL_INTERFACE:PkgConfig::JANSSON> $<INSTALL_INTERFACE:PkgConfig::UTF8PROC>
                      $<INSTALL_INTERFACE:PkgConfig::XXHASH> $<INSTALL_INTERFACE:PkgConfig::NETTLE>
                      $<INSTALL_INTERFACE:m>)
if(NORMA_PROTOBUF_REQUIRES)
  target_link_libraries(norma PUBLIC $<INSTALL_INTERFACE:PkgConfig::PROTOBUF_C>)
endif()
foreach(_library ZLIB LZMA ZSTD LIBJPEG LIBPNG)
  if(${_library}_FOUND)
    target_link_libraries(norma PUBLIC $<INSTALL_INTERFACE:PkgConfig::${_library}>)
  endif()
endforeach()
set_target_properties(norma_shared PROPERTIES EXPORT_NAME shared)

set(_programs)
if(TARGET norma_program)
  set(_programs norma_program)
endif()

install(TARGETS norma norma_shared EXPORT NormaTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ${_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET norma_mpi)
  install(TARGETS norma_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/norma)
endif()
install(DIRECTORY include/norma DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(EXISTS ${PROJECT_SOURCE_DIR}/recipes)
  install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/norma FILES_MATCHING PATTERN "*.ini")
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "notes" EXCLUDE)

install(EXPORT NormaTargets NAMESPACE Norma:: DESTINATION ${_package_dir})
configure_package_config_file(cmake/NormaConfig.cmake.in ${PROJECT_BINARY_DIR}/NormaConfig.cmake
                              INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/NormaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/NormaConfig.cmake ${PROJECT_BINARY_DIR}/NormaConfigVersion.cmake
        DESTINATION ${_package_dir})

# Prefix and folders are relative to the file, so that an installed tree can be moved, unless they were given as absolute paths.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(_pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH _to_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  set(_pc_prefix "\${pcfiledir}/${_to_prefix}")
endif()
foreach(_dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${_dir}})
    set(_pc_${_dir} ${CMAKE_INSTALL_${_dir}})
  else()
    set(_pc_${_dir} "\${prefix}/${CMAKE_INSTALL_${_dir}}")
  endif()
endforeach()
configure_file(cmake/norma.pc.in ${PROJECT_BINARY_DIR}/norma.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/norma.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The program generates its manual pages from the tables of its help.
if(TARGET norma_program AND NOT CMAKE_CROSSCOMPILING)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/norma.1
                     COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/manuals.sh $<TARGET_FILE:norma_program>
                             ${PROJECT_BINARY_DIR}/man
                     DEPENDS norma_program ${PROJECT_SOURCE_DIR}/scripts/manuals.sh
                     COMMENT "Manual pages" VERBATIM)
  add_custom_target(norma_manuals ALL DEPENDS ${PROJECT_BINARY_DIR}/man/norma.1)
  set(_completions ${PROJECT_BINARY_DIR}/completions)
  add_custom_command(OUTPUT ${_completions}/norma ${_completions}/_norma
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${_completions}
                     COMMAND $<TARGET_FILE:norma_program> completion bash > ${_completions}/norma
                     COMMAND $<TARGET_FILE:norma_program> completion zsh > ${_completions}/_norma
                     DEPENDS norma_program COMMENT "Shell completion" VERBATIM)
  add_custom_target(norma_completions ALL DEPENDS ${_completions}/norma)
  install(FILES ${_completions}/norma DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${_completions}/_norma DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
          FILES_MATCHING PATTERN "*.1")
endif()
