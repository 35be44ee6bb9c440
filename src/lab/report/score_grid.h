/* The runs of a report as a grid over the numeric settings in which they differ, such as train.max_tokens or
 * norm.rbn.lambda.
 *
 * Runs that differ only in these settings and in the seed form a group, usually one per norm. The runs of a
 * group with equal settings are the seeds of one point, whose score is their mean. */
#pragma once

#include "report/run.h"

/* How the curves of a run are drawn. A norm has the same color in every report. Runs of the same norm that
 * differ in other settings have different dashes and markers; runs that differ only in the seed have the same
 * style. */
typedef struct nm_run_style {
    int color;   /* nm_norm_color_index */
    int variant; /* from 0, among the runs with this color */
} nm_run_style;

typedef struct nm_run_set { /* indices of runs */
    size_t *list, n, capacity;
} nm_run_set;

typedef struct nm_score_axis {
    char *key;     /* "train.max_tokens" */
    char *coupled; /* other settings that vary with it, "train.accumulate, schedule.lr"; "": none */
} nm_score_axis;

typedef struct nm_score_group {
    char *name; /* "rbn", "PN-LS" */
    nm_run_style style;
    nm_run_set runs;
    bool *varies; /* [n_axes]; false: one value in this group, or does not apply to its norm */
    size_t n_varied;
} nm_score_group;

typedef struct nm_score_point {
    size_t group;
    double *values; /* [n_axes]; NaN: the setting does not apply */
    nm_run_set runs;
} nm_score_point;

typedef struct nm_score_grid {
    nm_score_axis *axes;
    nm_score_group *groups;
    nm_score_point *points; /* in the order of the runs */
    size_t n_axes, n_groups, n_points;
    size_t axes_capacity, groups_capacity, points_capacity;
} nm_score_grid;

/* runs, styles: [n]; a group has the color of its first run. */
void nm_score_grid_make(nm_score_grid *grid, const nm_report_run *runs, const nm_run_style *styles, size_t n);
void nm_score_grid_release(nm_score_grid *grid);

/* Whether a setting does not count as a difference between two runs: section [run], the device, probes, and
 * the seed, over which scores are averaged. */
bool nm_setting_is_ignored(const char *key);
/* The norm of the model, or of its encoder if that is set separately; "" if it is unknown. */
const char *nm_report_run_norm(const nm_report_run *run);
/* "lambda" of "norm.rbn.lambda", or the whole key if another axis ends in the same name. */
const char *nm_score_axis_label(const nm_score_grid *grid, size_t axis);
/* The name of the group and the settings that it varies: "rbn lambda=0.1 nu=1"; heap. */
char *nm_score_point_name(const nm_score_grid *grid, const nm_score_point *point);
