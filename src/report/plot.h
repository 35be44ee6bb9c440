/* Drawing by gnuplot, a program of its own that need not be there: SVG for the page, PNG for papers.
 *
 * Nothing from a file reaches gnuplot but numbers and names reduced to harmless letters. It is started once, in a folder
 * of its own, without its user's settings, so that the same runs give the same bytes. */
#ifndef NM_PLOT_H
#define NM_PLOT_H

#include "report/figure.h"

/* The frame of a figure within its SVG, in the units of the view box: what the page needs to find a value by its place. */
typedef struct nm_plot_frame {
    double width, height, left, top, right, bottom;
} nm_plot_frame;
nm_plot_frame nm_plot_frame_of(const nm_drawing *drawing);

/* A run's color "#3b82c4", its SVG dash pattern ("" is solid), and the path of its marker for a swatch 22 wide and 10
 * high. Colors have a contrast of at least 3:1 against the light and the dark page. */
const char *nm_plot_color(nm_run_style style);
const char *nm_plot_dashes(nm_run_style style);
const char *nm_plot_marker(nm_run_style style);

/* Draws the figures i with drawings[i].n > 0. With svg (as many strings as figures, NULL where not drawn; the caller
 * frees each) to memory, below scratch; with svg NULL to folder/NAME.png. */
nm_status nm_plot_svg(const nm_report *report, const nm_drawing *drawings, const char *scratch, char **svg,
                      nm_error *err);
/* width: in pixels. */
nm_status nm_plot_png(const nm_report *report, const nm_drawing *drawings, const char *folder, double width,
                      nm_error *err);

#endif
