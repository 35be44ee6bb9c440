/* norma report and norma watch: run folders as one self-contained page, whose script draws the figures, and
 * the figures as PNG or SVG files.
 *
 *     nm_report_open       reads the runs
 *     nm_report_page       writes the page
 *     nm_report_pictures   writes one file per figure (drawn by gnuplot, report/plot.c)
 *
 * Text from files is escaped or reduced to safe characters for HTML, JavaScript and gnuplot: see html.h,
 * page.c, plot.c. */
#pragma once

#include <stdio.h>

#include "norma/compare.h"
#include "report/run.h"
#include "report/score_grid.h"

typedef struct nm_report_result { /* on the test set, from test.json; NaN: unknown */
    double score, low, high;      /* score and its 95 % bootstrap interval */
    double p; /* paired test of this run against the first variant's run with the same seed, uncorrected */
    double p_holm;       /* test of the variant's mean over the seeds, with Holm's correction */
    const double *draws; /* [n_draws], bootstrap resamples of the score; not owned, NULL: unknown */
    size_t n_draws;
} nm_report_result;

typedef struct nm_report {
    nm_report_run *runs;
    nm_report_result *results; /* of each run, on the test set */
    nm_run_style *styles;      /* of each run */
    size_t n;
    nm_score_grid grid;
    const char *speed_problem;    /* why the throughputs are not comparable; NULL: they are */
    const char *data_problem;     /* why losses and scores are not comparable; NULL: they are */
    char *score_tag, *score_name; /* "valid/bleu", "BLEU"; the perplexity if no run has a score */
    bool score_rises;             /* higher is better */
    char *test_name;              /* score on the test set; score_name if no run has one */
    bool test_rises;
    nm_factor_effect *effects; /* [n_effects] of the factorial comparison that has these runs; not owned */
    size_t n_effects;
} nm_report;

/* Mean score of several runs, the seeds of one variant. */
typedef struct nm_mean_score {
    double mean, low, high; /* mean NaN if no run has a score */
    size_t n;               /* runs with a score */
} nm_mean_score;

/* The error bars of a figure with mean scores. */
typedef enum nm_score_bar {
    NM_BAR_NONE,
    NM_BAR_INTERVAL, /* 95 % interval over seeds and test segments, as in norma compare */
    NM_BAR_RANGE     /* from the lowest to the highest seed */
} nm_score_bar;

/* Reads the runs in folders [n]. inspected and errors: see nm_report_run_read. The caller closes the report,
 * also after a failure. */
nm_status nm_report_open(nm_report *report, const char *const *folders, size_t n, const char *inspected,
                         nm_error *err);
void nm_report_close(nm_report *report);

/* The score at the best validation of run i; NaN without one. */
double nm_report_valid_score(const nm_report *report, size_t i);
/* Mean number of cores that other programs used while the run trained; NaN if it is not in the log. */
double nm_report_run_others(const nm_report_run *run);
/* Whether every run of sets [n] that has a validation score also has a test score, and at least one run has
 * one. */
bool nm_report_is_tested(const nm_report *report, const nm_run_set *sets, size_t n);
/* The runs with the style of run r, the seeds of a variant; empty unless r is the first of them. The caller
 * frees the list. */
nm_run_set nm_report_seeds(const nm_report *report, size_t r);
/* NM_BAR_INTERVAL for test scores if every set has one run whose interval is known, or at least three runs
 * whose resamples are known: with two seeds, the interval would have one degree of freedom. Otherwise
 * NM_BAR_RANGE if a set has several runs. Runs without a score do not count. */
nm_score_bar nm_report_bars(const nm_report *report, const nm_run_set *sets, size_t n, bool tested);
/* tested: score on the test set; otherwise at the best validation. */
nm_mean_score nm_report_mean_score(const nm_report *report, const nm_run_set *set, bool tested,
                                   nm_score_bar bar);

/* After nm_report_run_follow: determines again what depends on the logs. */
void nm_report_refresh(nm_report *report);

typedef struct nm_report_config {
    bool samples; /* false: without sample outputs, so without text of the corpus */
    bool live;    /* the page asks the server that sent it for updates */
    /* Writes another answer as text and returns true, or returns false; NULL: none. */
    bool (*answer)(void *user, FILE *out);
    /* Called after the answer, to add a section; NULL: none. */
    void (*extra)(void *user, FILE *out);
    void *user;
} nm_report_config;

/* Writes the page to `path`. NM_IO */
nm_status nm_report_page(const nm_report *report, const nm_report_config *config, const char *path,
                         nm_error *err);
/* Writes the page to a stream, which never fails on memory streams. */
void nm_report_write(const nm_report *report, const nm_report_config *config, FILE *out);
/* Writes what of the page depends on the logs: the elements of <main> and the data of the figures. */
void nm_report_write_body(const nm_report *report, const nm_report_config *config, FILE *out);
/* Writes the data of one figure as JSON, its curves reduced to `points` points in the range from .. to of the
 * x axis. Returns false without writing if there is no figure of this name with values. */
bool nm_report_write_figure(const nm_report *report, const char *name, double from, double to, size_t points,
                            FILE *out);
/* One sentence that answers what the runs show so far, and what limits it. */
void nm_report_answer(const nm_report *report, FILE *out);
/* Writes folder/NAME.png for every figure with values; NAME.svg if width is 0. width: in pixels.
 * NM_UNSUPPORTED  gnuplot is not installed (the message names its package), or it fails
 * NM_IO  a file cannot be written */
nm_status nm_report_pictures(const nm_report *report, const char *folder, double width, nm_error *err);

/* The suffix "-1" of "layer-1", as norma compare names the run with seed 1; "" if the name does not end in a
 * number. */
const char *nm_name_seed(const char *name);

/* The following functions write a number to text and return it; "-" if the number is not finite. */
enum { NM_NUMBER_BYTES = 32 };
/* From 1,000 to 999,999 an integer with a thousands separator, otherwise three or four significant digits:
 * "5,400", "0.0123", "2.676", "1.20×10⁻⁷". */
const char *nm_number_show(char text[NM_NUMBER_BYTES], double value);
/* An integer with thousands separators: "5,400". */
const char *nm_count_show(char text[NM_NUMBER_BYTES], double value);
/* "42 s", "5.3 min", "2.1 h". */
const char *nm_duration_show(char text[NM_NUMBER_BYTES], double seconds);
