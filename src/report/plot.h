/* Drawing with gnuplot, an optional program: SVG for the page, PNG for papers.
 *
 * Only numbers and names reduced to safe characters reach gnuplot. It runs once, in a temporary folder and without the
 * user's settings, so that the same runs give identical files. */
#ifndef NM_PLOT_H
#define NM_PLOT_H

#include "report/figure.h"

/* The frame of the axes in the coordinates of the SVG view box, from which the script computes values under the pointer. */
typedef struct nm_plot_frame {
    double width, height, left, top, right, bottom;
} nm_plot_frame;
nm_plot_frame nm_plot_frame_of(const nm_drawing *drawing);

/* A run's color "#3b82c4", its SVG dash pattern ("" is solid), and the path of its marker for a swatch 22 wide and 10
 * high. Colors have a contrast of at least 3:1 against the light and the dark page. */
const char *nm_plot_color(nm_run_style style);
const char *nm_plot_dashes(nm_run_style style);
const char *nm_plot_marker(nm_run_style style);

/* Draws the figures i with drawings[i].n > 0 into svg[i], heap; NULL for the others. Temporary files are in a new folder next
 * to the path `scratch`. */
nm_status nm_plot_svg(const nm_report *report, const nm_drawing *drawings, const char *scratch, char **svg,
                      nm_error *err);
/* Draws to folder/NAME.png; width in pixels. */
nm_status nm_plot_png(const nm_report *report, const nm_drawing *drawings, const char *folder, double width,
                      nm_error *err);

#endif
