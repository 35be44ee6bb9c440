/* Adapts SVG text from gnuplot for inclusion in an HTML page. */
#ifndef NM_SVG_H
#define NM_SVG_H

#include "report/figure.h"

/* Removes the XML declaration, titles (which browsers show as tooltips), unused symbols, filters and empty
 * groups, adds the indices of its runs to every curve, and prefixes the ids of symbols with the name of the
 * figure. Heap. */
char *nm_svg_trim(const char *svg, const nm_drawing *drawing, const char *name);

#endif
