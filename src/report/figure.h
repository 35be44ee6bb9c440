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
    size_t n_outside, n_below; /* points above and below the frame */
} nm_drawing;

typedef enum nm_figure_style {
    NM_FIGURE_LINES,
    NM_FIGURE_MARKS,
    NM_FIGURE_DEPTH, /* marks by place; those of one kind of sublayer are joined from layer to layer */
    NM_FIGURE_BARS,
    NM_FIGURE_SCATTER
} nm_figure_style;

typedef enum nm_figure_places {                /* which of the places that match a history is of */
                                NM_PLACES_ALL, /* the mean */
                                NM_PLACES_FIRST,
                                NM_PLACES_TOP /* the last layer of the first stack */
} nm_figure_places;

typedef struct nm_figure nm_figure;
struct nm_figure {
    const char *name, *section,
        *title;         /* "valid-loss", "Learning", "Validation loss"; @ is the name of the score */
    const char *source; /* of the form: "Shen et al. 2020, figure 2"; NULL: ours */
    const char *tag,
        *minus; /* pattern of the numbers, "a|b": b where a run has no a; what is taken off them */
    const char *x_label, *y_label;
    bool x_seconds, x_log, y_log;
    bool falls;   /* lower is better: for the sentence */
    double line;  /* a level worth seeing; 0: none */
    bool median;  /* by place: the median of the run instead of the last value */
    bool percent; /* a share, shown times 100; of a scatter, its x */
    double tail;  /* only the last part of the x axis, 0.5: the second half; 0: all */
    nm_figure_style style;
    nm_figure_places places;
    void (*collect)(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
    void (*sentence)(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
    const char *record; /* what records the numbers */
};

extern const nm_figure nm_figures[]; /* name NULL at the end */

/* The numbers of a figure, thinned to what can be seen, and its frame. n is 0 when no run has any. */
void nm_drawing_make(nm_drawing *drawing, const nm_report *report, const nm_figure *figure);
void nm_drawing_release(nm_drawing *drawing);
/* A title or label with the name of the score in place of @; heap. */
char *nm_figure_text(const char *text, const nm_report *report);
/* The run that others are measured against: the first with a test score and no paired test; report->n: none. */
size_t nm_figure_reference(const nm_report *report);
bool nm_figure_falls(const nm_figure *figure, const nm_report *report);

/* Whether two places by name are of one kind of sublayer: "enc.0.self", "enc.1.self". */
bool nm_tick_same_kind(const char *a, const char *b);

/* Ways to collect. */
void nm_collect_history(const nm_report *report, const nm_figure *figure,
                        nm_drawing *drawing); /* x: updates or time */
/* The same, of runs that were measured at more than one update. */
void nm_collect_checkpoints(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
/* The same, if these numbers are not the score's. */
void nm_collect_besides_score(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_sites(const nm_report *report, const nm_figure *figure,
                      nm_drawing *drawing); /* x: places, last values */
/* The same in the order of sublayers, and of these by depth. */
void nm_collect_depth(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);
void nm_collect_quantiles(const nm_report *report, const nm_figure *figure,
                          nm_drawing *drawing); /* places, deciles */
void nm_collect_spectrum(const nm_report *report, const nm_figure *figure,
                         nm_drawing *drawing); /* a vector by index */
void nm_collect_score_gap(const nm_report *report, const nm_figure *figure, nm_drawing *drawing);

/* Ways to say it. */
void nm_say_best(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_last(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_level(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_sites(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_depth(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_spectrum(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing, FILE *out);
void nm_say_correlation(const nm_report *report, const nm_figure *figure, const nm_drawing *drawing,
                        FILE *out);

#endif
