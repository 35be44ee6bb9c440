# The recipes of norma demo are embedded in the program as byte arrays (demo_recipes.c).
#
# NORMA_DEMO_SOURCES: sources to compile in addition to the files of src/app/cli.
set(NORMA_DEMO_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/demo_recipes.c)
set(_recipes demo demo-lm demo-tag)
set(_parts)
set(_files)
foreach(_recipe ${_recipes})
  set(_file ${CMAKE_CURRENT_SOURCE_DIR}/recipes/${_recipe}.ini)
  string(REPLACE "-" "_" _name ${_recipe})
  list(APPEND _parts "${_name}_recipe=${_file}")
  list(APPEND _files ${_file})
endforeach()
add_custom_command(OUTPUT ${NORMA_DEMO_SOURCES}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${NORMA_DEMO_SOURCES} -DHEADER=cli/demo.h "-DPARTS=${_parts}"
                           -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake
                   DEPENDS ${_files} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake
                   COMMENT "Recipes of the demos" VERBATIM)
