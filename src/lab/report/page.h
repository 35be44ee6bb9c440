/* Style sheets and scripts of the page (page.css, page.js, third_party/uPlot), embedded at build time. */
#ifndef NM_PAGE_H
#define NM_PAGE_H

extern const char nm_page_css[], nm_page_js[], nm_uplot_css[], nm_uplot_js[]; /* NUL-terminated */

#endif
