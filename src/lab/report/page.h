/* Style sheet and script of the page (page.css, page.js), embedded at build time. */
#ifndef NM_PAGE_H
#define NM_PAGE_H

extern const char nm_page_css[], nm_page_js[]; /* NUL-terminated */

#endif
