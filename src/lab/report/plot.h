/* Drawing with gnuplot, an optional program: SVG for the page, PNG for papers.
 *
 * Only numbers and names reduced to safe characters reach gnuplot. It runs once, in a temporary folder and
 * without the user's settings, so that the same runs give identical files. */
#ifndef NM_PLOT_H
#define NM_PLOT_H

#include "report/figure.h"

/* The frame of the axes in coordinates of the SVG view box. The script of the page uses it to find the values
 * under the pointer. */
typedef struct nm_plot_frame {
    double width, height, left, top, right, bottom;
} nm_plot_frame;
nm_plot_frame nm_plot_frame_of(const nm_drawing *drawing);

/* The color of a style ("#3b82c4"), its SVG dash pattern ("": solid), and the SVG path of its marker in a
 * swatch of 22 x 10 pixels. Colors have a contrast of at least 3:1 against the light and the dark theme. */
const char *nm_plot_dashes(nm_run_style style);
const char *nm_plot_marker(nm_run_style style);

/* Draws figure i, for every i with drawings[i].n > 0, and stores its SVG text in svg[i] (heap); the others
 * are not changed. Temporary files are in a new folder next to the path `scratch`. NM_UNSUPPORTED if gnuplot
 * is not installed or fails; NM_IO. */
nm_status nm_plot_svg(const nm_report *report, const nm_drawing *drawings, const char *scratch, char **svg,
                      nm_error *err);
/* Draws to folder/NAME.png and creates the folder if necessary. width: in pixels. Errors as for
 * nm_plot_svg. */
nm_status nm_plot_png(const nm_report *report, const nm_drawing *drawings, const char *folder, double width,
                      nm_error *err);

#endif
