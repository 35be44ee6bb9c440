/* The page's own style sheet and script (page.css, page.js), put into the program when it is built. */
#ifndef NM_PAGE_H
#define NM_PAGE_H

extern const char nm_page_css[], nm_page_js[]; /* end with NUL */

#endif
