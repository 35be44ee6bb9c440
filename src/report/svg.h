/* Prepares the SVG of gnuplot for a place inside an HTML page. */
#ifndef NM_SVG_H
#define NM_SVG_H

#include "report/figure.h"

/* Removes the XML declaration, titles (which browsers show as tooltips) and empty groups, adds the index of its run to
 * every curve and the name of the figure to the ids of symbols. Heap. */
char *nm_svg_trim(const char *svg, const nm_drawing *drawing, const char *name);

#endif
