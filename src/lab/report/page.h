/* Style sheets and scripts of the page (page.css, page.js, third_party/uPlot), embedded at build time. */
#pragma once

extern const char nm_page_css[], nm_page_js[], nm_uplot_css[], nm_uplot_js[]; /* NUL-terminated */
