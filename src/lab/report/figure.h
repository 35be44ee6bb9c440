/* A figure is a row of the table in figures.c: the values it shows, how they become curves, and its axes.
 * Drawing (plot.c) and the page (page.c) do not depend on particular figures. */
#pragma once

#include "report/report.h"

typedef struct nm_curve {
    size_t run; /* index of its run, or of the first run that it summarizes */
    size_t n;
    double *x, *y;      /* [n] */
    double *low, *high; /* [n], ends of an error bar around y; NULL: none */
    const char *family; /* entry in the legend of the figure, not owned; NULL: no entry, style of the run */
    nm_run_style style; /* used if family is set */
    nm_run_set runs;    /* the runs that it summarizes; empty: only `run` */
    char *name;         /* NULL: name of the run */
    double *value;      /* [n], values of the points if y is only their position; NULL: y is the value */
    /* [n_means], of the segments of a reduced curve, whose points are the extremes of the segments; NULL */
    double *mean_x, *mean_y;
    size_t n_means;
    bool emphasized;
} nm_curve; /* owns its arrays and its name */

typedef struct nm_label { /* text inside the frame, at x, y in units of the axes */
    double x, y;
    char *text;
} nm_label;

typedef struct nm_drawing { /* the contents of one figure */
    nm_curve *curves;
    size_t n, capacity;
    char **ticks; /* labels of x = 0, 1, ...; NULL if x is a number */
    size_t n_ticks, ticks_capacity;
    double *at;    /* [n_ticks], positions of the ticks on the axis, ascending; NULL: 0, 1, ... */
    double spread; /* width over which the points of different curves at a tick are spread */
    char **rows;   /* labels of y = 0, 1, ... of a heat map */
    size_t n_rows, rows_capacity;
    nm_label *labels;
    size_t n_labels, labels_capacity;
    const char *x_unit;              /* "min", or NULL */
    char *title, *x_label, *y_label; /* replace those of the figure; NULL: those of the figure */
    char *note;                      /* sentences below the figure, or NULL */
    bool legend;                     /* the figure lists its groups; the legend of the page lists runs */
    bool framed;                     /* the collector has set the range of the axes */
    double x_min, x_max, y_min, y_max;
    size_t n_above, n_below; /* points outside the frame */
} nm_drawing;

typedef enum nm_figure_style {
    NM_FIGURE_LINES,
    NM_FIGURE_MARKS,
    NM_FIGURE_DEPTH, /* marks by site; those of one kind of sublayer are connected from layer to layer */
    NM_FIGURE_BARS,
    NM_FIGURE_SCATTER,
    NM_FIGURE_CELLS,   /* a heat map with a panel per curve */
    NM_FIGURE_PARALLEL /* a vertical axis per tick, scaled to 0 .. 1 */
} nm_figure_style;

/* The matching sites that a history shows. */
typedef enum nm_figure_sites {
    NM_SITES_MEAN, /* mean over all sites */
    NM_SITES_FIRST,
    NM_SITES_LAST_LAYER /* the last site of the last layer of the first stack */
} nm_figure_sites;

typedef struct nm_figure nm_figure;
struct nm_figure {
    const char *name, *section; /* "valid-loss", "Learning" */
    const char *title;          /* "Validation loss"; @: name of the validation score, #: of the test score */
    const char *source; /* paper and figure with the same plot: "Shen et al. 2020, figure 2"; NULL: none */
    const char *tag;    /* pattern (nm_tag_match); "a|b": b for runs that have no a; "@score": the score */
    const char *minus;  /* tag of values to subtract; NULL: none */
    const char *x_label, *y_label;
    bool x_seconds, y_log;
    bool lined; /* a horizontal line at y = line */
    double line;
    bool median;  /* by site: the median of the run instead of the last value */
    bool percent; /* the values are ratios shown in percent: y, or x of a scatter plot */
    nm_figure_style style;
    nm_figure_sites sites;
    void (*collect)(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
    const char *record; /* how to record the values, for the list of missing figures */
};

extern const nm_figure nm_figures[]; /* name NULL at the end */

typedef struct nm_view { /* what is visible of a figure */
    double from, to;     /* range of x, in units of the axis; from >= to: all */
    size_t points;       /* most points of a curve */
} nm_view;

/* Collects the curves of a figure, reduced to as many points as are visible, and sets its frame. n is 0 if no
 * run has values. view: NULL for a picture of fixed size, in which many noisy curves show their means. */
void nm_drawing_make(nm_drawing *drawing, const nm_report *report, const nm_figure *figure,
                     const nm_view *view);
void nm_drawing_release(nm_drawing *drawing);
/* A title or label with @ and # replaced by the name of the validation or test score; heap. */
char *nm_figure_text(const char *text, const nm_report *report);
/* The name and the style of a curve, or those of its run. */
const char *nm_curve_name(const nm_report *report, const nm_curve *curve);
nm_run_style nm_curve_style(const nm_report *report, const nm_curve *curve);
/* The title or label of a drawing, with @ and # replaced; heap. */
char *nm_drawing_title(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report);
char *nm_drawing_x_label(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report);
char *nm_drawing_y_label(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report);
/* Whether two sites are of the same kind of sublayer, such as "enc.0.self" and "enc.1.self". */
bool nm_tick_same_kind(const char *a, const char *b);

/* Collectors. History: x is the update or the training time. */
void nm_collect_history(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* History of the runs with values at two or more updates. */
void nm_collect_checkpoints(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* History, unless these values are the score, which has its own figure. */
void nm_collect_unless_score(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: sites; one value per site. */
void nm_collect_sites(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* Sites ordered by kind of sublayer, then by depth. */
void nm_collect_depth(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: sites; median, first and ninth decile of a vector of quantiles. */
void nm_collect_quantiles(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: index from 1; the last vector of each run. */
void nm_collect_spectrum(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* Test scores, one tick per variant: mean over the seeds, with its 95 % interval or the range
 * (nm_report_bars). */
void nm_collect_test_scores(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: TID of the figure's tag ("mean" or "variance"), y: loss in the test score against the reference. */
void nm_collect_score_gap(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);

/* Scores against the settings in which the runs differ (report/score_grid.h): for groups that vary one
 * setting, a curve per group; for two, a heat map per group; for three or more, a line per point through an
 * axis per setting. */
void nm_collect_setting(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_heat_map(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_parallel(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* Main effects and interactions of a factorial comparison, a tick each: difference and 95 % interval. */
void nm_collect_effects(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: number of layers whose norms use batch statistics, in runs that differ in norm.at, with a curve for each
 * such norm; y: the loss in score against the runs with fewest such layers, or TID of the last layer
 * (figure->tag "mean" or "variance"). */
void nm_collect_batch_layers(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);

/* For collectors: adds a curve with memory for n points, and for error bars if `bars`. Valid until the next
 * call. */
nm_curve *nm_drawing_add(nm_drawing *drawing, size_t run, size_t n, bool bars);
/* Adds a point unless x or y is infinite or NaN. */
void nm_curve_add(nm_curve *curve, double x, double y);
/* Sorts the points by x. */
void nm_curve_sort(nm_curve *curve);
void nm_curve_release(nm_curve *curve);
/* Removes the last curve if it has no points. */
void nm_drawing_drop_empty(nm_drawing *drawing);
