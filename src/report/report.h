/* norma report: run folders to one self-contained page with figures, and the figures as PNG files.
 *
 *     nm_report_open    reads the runs
 *     nm_report_page    writes the page          (figures drawn by gnuplot, report/plot.c)
 *     nm_report_png     writes one PNG per figure
 *
 * Text from files is escaped or reduced to safe characters for HTML, JavaScript and gnuplot: see html.h, page.c, plot.c. */
#ifndef NM_REPORT_H
#define NM_REPORT_H

#include <stdio.h>

#include "report/run.h"

typedef struct nm_report_result { /* of the test set, from test.json; NaN: unknown */
    double score, low, high;
    double p; /* paired test of this run against the first variant's run with the same seed, uncorrected */
    double
        p_holm; /* test of the variant's mean over the seeds, with Holm's correction, as norma compare prints it */
} nm_report_result;

/* How the curves of a run are drawn: one color per norm in every report; runs of the same norm that differ in other
 * settings have other dashes and markers, runs that differ only in the seed have the same style. */
typedef struct nm_run_style {
    int color;   /* index of the norm in nm_norm_types; after these for runs whose norm is unknown */
    int variant; /* from 0, among the runs with this color */
} nm_run_style;

typedef struct nm_report {
    nm_report_run *runs;
    nm_report_result *results; /* of each run, on the test set */
    nm_run_style *styles;      /* of each run */
    size_t n;
    bool speed_comparable;        /* all runs had the same machine to themselves: no two at the same time */
    char *score_tag, *score_name; /* "valid/bleu", "BLEU"; the perplexity if no run has a score */
    bool score_rises;             /* higher is better */
} nm_report;

/* inspected: see nm_report_run_read. */
nm_status nm_report_open(nm_report *report, const char *const *folders, size_t n, const char *inspected,
                         nm_error *err);
void nm_report_close(nm_report *report);

typedef struct nm_report_config {
    bool samples; /* false: without sample outputs, so without text of the corpus */
} nm_report_config;

/* NM_UNSUPPORTED if gnuplot is not installed; the message names its package. */
nm_status nm_report_page(const nm_report *report, const nm_report_config *config, const char *path,
                         nm_error *err);
nm_status nm_report_png(const nm_report *report, const char *folder, double width,
                        nm_error *err); /* width in pixels */

/* The suffix "-1" of "layer-1", as norma compare names the run with seed 1; "" if the name does not end in a number. */
const char *nm_name_seed(const char *name);

/* At most four significant digits, with thousands separators: "5,400", "0.0123", "2.676", "1.20×10⁻⁷"; "-" if not finite.
 * Returns text. */
enum { NM_NUMBER_BYTES = 32 };
const char *nm_number_show(char text[NM_NUMBER_BYTES], double value);
/* An integer with thousands separators: "5,400". */
const char *nm_count_show(char text[NM_NUMBER_BYTES], double value);
/* "42 s", "5.3 min", "2.1 h". */
const char *nm_duration_show(char text[NM_NUMBER_BYTES], double seconds);

#endif
