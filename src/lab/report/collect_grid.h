/* Shared by the figures of scores against settings (collect_grid.c) and against the number of layers with
 * batch norms (collect_layers.c). */
#pragma once

#include "report/figure.h"

/* Width over which the curves at a tick are spread, as a fraction of the smallest distance between two
 * ticks. */
#define NM_GRID_SPREAD 0.12

typedef struct nm_grid_scores { /* mean scores of the points of a grid */
    const nm_report *report;
    const nm_score_grid *grid;
    bool tested; /* true: scores on the test set; false: scores of the best validation */
    nm_score_bar bar;
    nm_mean_score *list; /* [n_points], freed by the caller */
} nm_grid_scores;

nm_grid_scores nm_grid_scores_of(const nm_report *report);
/* Sorts values [n] and removes duplicates. Returns the number of distinct values. */
size_t nm_keep_distinct(double *values, size_t n);
/* The index of value in values [n], which must contain it. */
size_t nm_grid_index(const double *values, size_t n, double value);

/* Adds to the runs that the curve summarizes. */
void nm_curve_add_runs(nm_curve *curve, const nm_run_set *runs);
/* Adds a tick labeled with the value. */
void nm_drawing_add_value(nm_drawing *drawing, double value);
