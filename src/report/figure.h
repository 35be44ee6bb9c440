/* A figure is a row of the table in figures.c: the values it shows, how they become curves, its axes, and the description
 * below it. Drawing (plot.c) and the page (page.c) do not depend on single figures. */
#ifndef NM_FIGURE_H
#define NM_FIGURE_H

#include "report/report.h"

typedef struct nm_curve {
    size_t run; /* the first one, if it summarizes several */
    size_t n;
    double *x, *y;
    double *low, *high; /* ends of an error bar around y; NULL: none */
    const char *
        family; /* its entry in the legend of the figure, drawn in this style; NULL: the run's style. Not owned */
    nm_run_style style;
    nm_run_set runs; /* that it summarizes; empty: the run alone */
    char *name;      /* NULL: the run's */
    double *value;   /* what a point stands for if y is only its place in the figure; NULL: y */
    bool emphasized;
} nm_curve;

typedef struct nm_label { /* text inside of the frame */
    double x, y;
    char *text;
} nm_label;

typedef struct nm_drawing { /* the contents of one figure */
    nm_curve *curves;
    size_t n, capacity;
    char **ticks; /* labels of x = 0, 1, ...; NULL if x is a number */
    size_t n_ticks, ticks_capacity;
    double *at;    /* [n_ticks], where the ticks are on the axis; NULL: at 0, 1, ... */
    double spread; /* the points of different curves at a tick are drawn next to each other over this width */
    char **rows;   /* labels of y = 0, 1, ... of a heat map */
    size_t n_rows, rows_capacity;
    nm_label *labels;
    size_t n_labels, labels_capacity;
    const char *x_unit;              /* "min", or NULL */
    char *title, *x_label, *y_label; /* in place of the figure's; NULL: the figure's */
    char *note;                      /* sentences for the description, or NULL */
    bool legend; /* lists its groups inside of the figure: the legend of the page has runs */
    bool framed; /* the range of the axes is given */
    double x_min, x_max, y_min, y_max;
    size_t n_above, n_below; /* points outside the frame */
} nm_drawing;

typedef enum nm_figure_style {
    NM_FIGURE_LINES,
    NM_FIGURE_MARKS,
    NM_FIGURE_DEPTH, /* marks by site; those of one kind of sublayer are joined from layer to layer */
    NM_FIGURE_BARS,
    NM_FIGURE_SCATTER,
    NM_FIGURE_CELLS,   /* a heat map with a panel per curve */
    NM_FIGURE_PARALLEL /* a vertical axis per tick, scaled to 0 .. 1 */
} nm_figure_style;

typedef enum nm_figure_sites {                /* which of the matching sites a history shows */
                               NM_SITES_MEAN, /* the mean over all */
                               NM_SITES_FIRST,
                               NM_SITES_LAST_LAYER /* the last site of the last layer of the first stack */
} nm_figure_sites;

typedef struct nm_figure nm_figure;
struct nm_figure {
    const char *name, *section; /* "valid-loss", "Learning" */
    const char *title;          /* "Validation loss"; @ is the name of the score */
    const char *source; /* paper and figure with the same plot: "Shen et al. 2020, figure 2"; NULL: none */
    const char *tag;    /* pattern of the values; "a|b": b for runs that have no a */
    const char *minus;  /* tag of values to subtract; NULL: none */
    const char *x_label, *y_label;
    bool x_seconds, y_log;
    bool falls;   /* lower is better */
    double line;  /* level of a horizontal line; 0: none */
    bool median;  /* by site: the median of the run instead of the last value */
    bool percent; /* ratios times 100: y, or x of a scatter */
    double tail;  /* only the last part of the x axis, 0.5: the second half; 0: all */
    nm_figure_style style;
    nm_figure_sites sites;
    void (*collect)(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
    void (*describe)(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
    const char *record; /* how the values are recorded, for the list of missing figures */
};

extern const nm_figure nm_figures[]; /* name NULL at the end */

/* The curves of a figure, with few enough points to be visible, and its frame. n is 0 if no run has values. */
void nm_drawing_make(nm_drawing *drawing, const nm_report *report, const nm_figure *figure);
void nm_drawing_release(nm_drawing *drawing);
/* A title or label with the name of the score in place of @; heap. */
char *nm_figure_text(const char *text, const nm_report *report);
const char *nm_curve_name(const nm_report *report, const nm_curve *curve);
nm_run_style nm_curve_style(const nm_report *report, const nm_curve *curve);
/* The title or label of a drawing, with the name of the score in place of @; heap. */
char *nm_drawing_title(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report);
char *nm_drawing_x_label(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report);
char *nm_drawing_y_label(const nm_drawing *drawing, const nm_figure *figure, const nm_report *report);
/* The run that the others are compared with: the first with a test score and no paired test; report->n: none. */
size_t nm_figure_reference(const nm_report *report);
bool nm_figure_falls(const nm_figure *figure, const nm_report *report);

/* Whether two sites are of the same kind of sublayer: "enc.0.self", "enc.1.self". */
bool nm_tick_same_kind(const char *a, const char *b);

/* Collectors. History: x is the update or the time. */
void nm_collect_history(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* History of the runs that were measured at two or more updates. */
void nm_collect_checkpoints(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* History, unless these values are the score, which has its own figure. */
void nm_collect_unless_score(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: sites; one value per site. */
void nm_collect_sites(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* Sites ordered by kind of sublayer, then by depth. */
void nm_collect_depth(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: sites; median, first and ninth decile of a vector of quantiles. */
void nm_collect_quantiles(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* The last vector, by index. */
void nm_collect_spectrum(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* Test scores, one tick per variant: mean and range over the seeds; for a single run its bootstrap interval. */
void nm_collect_test_scores(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: TID of the figure's tag ("mean" or "variance"), y: loss in the test score against the reference. */
void nm_collect_score_gap(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);

/* Scores against the settings in which the runs differ (report/score_grid.h): for groups that vary one setting, a curve per
 * group; for two, a heat map per group; for three or more, a line per point through an axis per setting. */
void nm_collect_setting(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_heat_map(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_parallel(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* x: number of layers whose norms use batch statistics, in runs that differ in norm.at, with a curve for each such norm; y:
 * the loss in score against the runs with fewest such layers, or TID of the last layer (figure->tag "mean" or "variance"). */
void nm_collect_batch_layers(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);

/* For collectors: a curve with room for n points, low and high with `bars`; nm_drawing_drop_empty removes it if it got none. */
nm_curve *nm_drawing_add(nm_drawing *drawing, size_t run, size_t n, bool bars);
void nm_curve_add(nm_curve *curve, double x, double y); /* ignored unless finite */
void nm_curve_release(nm_curve *curve);
/* Removes the last curve if it has no points. */
void nm_drawing_drop_empty(nm_drawing *drawing);

/* Descriptions: extremes, last values, medians, values by site, growth with depth, decay, correlation. */
void nm_describe_best(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
/* Values with their error bars, best first. */
void nm_describe_scores(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                        FILE *out);
void nm_describe_last(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_describe_level(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                       FILE *out);
void nm_describe_sites(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                       FILE *out);
void nm_describe_depth(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                       FILE *out);
void nm_describe_spectrum(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                          FILE *out);
/* The best point of each group, what the error bars are, and the note. */
void nm_describe_grid(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_describe_correlation(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                             FILE *out);

#endif
