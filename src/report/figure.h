/* A figure is a row of the table in figures.c: which numbers it wants, how they become curves, axes, and what is said
 * below it. Drawing (plot.c) and the page (page.c) know no figure by name. */
#ifndef NM_FIGURE_H
#define NM_FIGURE_H

#include "report/report.h"

typedef struct nm_curve {
    size_t run;
    size_t n;
    double *x, *y, *low, *high; /* low and high may be NULL: bars around y */
} nm_curve;

typedef struct nm_drawing { /* the numbers of one figure */
    nm_curve *curves;
    size_t n, capacity;
    char **ticks; /* names of x = 0, 1, ...; NULL where x is a number */
    size_t n_ticks, ticks_capacity;
    const char *x_unit; /* "min", or NULL */
    double x_min, x_max, y_min, y_max;
    size_t n_outside; /* points above the frame */
} nm_drawing;

typedef enum nm_figure_style {
    NM_FIGURE_LINES,
    NM_FIGURE_MARKS,
    NM_FIGURE_BARS,
    NM_FIGURE_SCATTER
} nm_figure_style;

typedef struct nm_figure nm_figure;
struct nm_figure {
    const char *name, *section, *title; /* "valid-loss", "Learning", "Validation loss" */
    const char *source;                 /* of the form: "Shen et al. 2020, figure 2"; NULL: ours */
    const char *tag,
        *minus; /* pattern of the numbers, "a|b": b where a run has no a; what is taken off them */
    const char *x_label, *y_label;
    bool x_seconds, x_log, y_log;
    bool falls;  /* lower is better: for the sentence */
    double line; /* a level worth seeing; 0: none */
    nm_figure_style style;
    void (*collect)(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
    void (*sentence)(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
    const char *record; /* what records the numbers */
};

extern const nm_figure nm_figures[]; /* name NULL at the end */

/* The numbers of a figure, thinned to what can be seen, and its frame. n is 0 when no run has any. */
void nm_drawing_make(nm_drawing *drawing, const nm_report *report, const nm_figure *figure);
void nm_drawing_release(nm_drawing *drawing);
/* The label of the y axis; the score's row has that of the task. */
const char *nm_figure_y_label(const nm_figure *figure, const nm_report *report);
bool nm_figure_falls(const nm_figure *figure, const nm_report *report);

/* Ways to collect. */
void nm_collect_history(const nm_report *report, const nm_figure *figure,
                        nm_drawing *drawing); /* x: updates or time */
/* The same, of runs that were measured at more than one update. */
void nm_collect_checkpoints(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_sites(const nm_report *report, const nm_figure *figure,
                      nm_drawing *drawing); /* x: places, last values */
void nm_collect_quantiles(const nm_report *report, const nm_figure *figure,
                          nm_drawing *drawing); /* places, deciles */
void nm_collect_spectrum(const nm_report *report, const nm_figure *figure,
                         nm_drawing *drawing); /* a vector by index */
void nm_collect_score_gap(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);

/* Ways to say it. */
void nm_say_best(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_level(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_sites(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_spectrum(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_correlation(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                        FILE *out);

#endif
