# Style sheets and scripts of the report page are embedded in the program as byte arrays (page_parts.c).
#
# The generated file is added to the sources of the lab.
set(_page ${CMAKE_CURRENT_BINARY_DIR}/page_parts.c)
set(_css ${CMAKE_CURRENT_SOURCE_DIR}/src/lab/report/page.css)
set(_js ${CMAKE_CURRENT_SOURCE_DIR}/src/lab/report/page.js)
set(_uplot ${CMAKE_CURRENT_SOURCE_DIR}/third_party/uPlot)
set(_uplot_css ${_uplot}/uPlot.min.css)
set(_uplot_js ${_uplot}/uPlot.iife.js)
add_custom_command(OUTPUT ${_page}
                   COMMAND ${CMAKE_COMMAND} -DOUTPUT=${_page} -DHEADER=report/page.h
                           "-DPARTS=nm_page_css=${_css};nm_page_js=${_js};nm_uplot_css=${_uplot_css};nm_uplot_js=${_uplot_js}"
                           -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake
                   DEPENDS ${_css} ${_js} ${_uplot_css} ${_uplot_js} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/Embed.cmake
                   COMMENT "Style sheet and script of the report" VERBATIM)
list(APPEND NORMA_LAB_SOURCES ${_page})
