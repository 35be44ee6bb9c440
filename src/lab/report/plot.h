/* Figures as files for papers, drawn by gnuplot, an optional program, and the styles that the page shares.
 *
 * Only numbers and names reduced to safe characters reach gnuplot. It runs once, in a temporary folder and
 * without the user's settings, so that the same runs give identical files. */
#pragma once

#include "report/figure.h"

/* The dash pattern of a style ("8,4"; "": solid), and the SVG path of its marker in a swatch of 22 x 10
 * pixels. */
const char *nm_plot_dashes(nm_run_style style);
const char *nm_plot_marker(nm_run_style style);

/* The cells of a heat map in the order of curves and points: colors as 0xRRGGBB, the value as text. */
typedef void (*nm_plot_cell)(void *user, size_t curve, size_t point, int color, int ink, const char *text);
void nm_plot_cells(const nm_report *report, const nm_drawing *drawing, nm_plot_cell cell, void *user);

/* Draws to folder/NAME.png or NAME.svg every figure i with drawings[i].n > 0, and creates the folder if
 * necessary. width: of a PNG in pixels; 0: SVG.
 * NM_UNSUPPORTED  gnuplot is not installed (the message names its package), or it fails
 * NM_IO  a file cannot be written */
nm_status nm_plot_files(const nm_report *report, const nm_drawing *drawings, const char *folder, double width,
                        nm_error *err);
