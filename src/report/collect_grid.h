/* Shared by the figures of scores against settings (collect_grid.c) and against the number of layers with batch norms
 * (collect_layers.c). */
#ifndef NM_COLLECT_GRID_H
#define NM_COLLECT_GRID_H

#include "report/figure.h"

/* Horizontal distance of the curves at a tick, of the smallest distance of two ticks. */
#define NM_GRID_SPREAD 0.12

typedef struct nm_grid_scores { /* of the points of the grid */
    const nm_report *report;
    const nm_score_grid *grid;
    bool tested; /* scores of the test set; otherwise of the best validation */
    nm_score_bar bar;
    nm_mean_score *list; /* [n_points], heap */
} nm_grid_scores;

nm_grid_scores nm_grid_scores_of(const nm_report *report);
/* Sorts the values and removes duplicates; returns the number that is left. */
size_t nm_keep_distinct(double *values, size_t n);
/* The index of a value that is in the list. */
size_t nm_grid_index(const double *values, size_t n, double value);

void nm_curve_add_runs(nm_curve *curve, const nm_run_set *runs);
/* Sorts the points, which have intervals, by x. */
void nm_curve_sort(nm_curve *curve);
/* A tick with the value as text. */
void nm_drawing_add_value(nm_drawing *drawing, double value);

#endif
