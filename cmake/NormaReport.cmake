# The report's page needs its style sheet and script inside the program: page_parts.c holds them as bytes.
#
# NORMA_REPORT_SOURCES: what to compile besides the files of src/report.
set(_page ${CMAKE_CURRENT_BINARY_DIR}/page_parts.c)
set(_parts ${CMAKE_CURRENT_SOURCE_DIR}/src/report/page.css ${CMAKE_CURRENT_SOURCE_DIR}/src/report/page.js)
add_custom_command(OUTPUT ${_page}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_page} "-DPARTS=${_parts}"
                           -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/PageParts.cmake
                   DEPENDS ${_parts} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/PageParts.cmake
                   COMMENT "Style sheet and script of the report" VERBATIM)
set(NORMA_REPORT_SOURCES ${_page})
