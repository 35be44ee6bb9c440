/* gnuplot's SVG made fit to stand inside a page. */
#ifndef NM_SVG_H
#define NM_SVG_H

#include "report/figure.h"

/* Without XML declaration, titles (which browsers show as a hint over the curve), and groups that hold nothing; every
 * curve marked with the number of its run; names of symbols made those of this figure. Heap. */
char *nm_svg_trim(const char *svg, const nm_drawing *drawing, const char *name);

#endif
