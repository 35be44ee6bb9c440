/* The tables of a comparison: the runs of each variant are summarized in one line, with mean and sample standard deviation
 * over the seeds. */
#ifndef NM_COMPARISON_TABLE_H
#define NM_COMPARISON_TABLE_H

#include "experiment/run_result.h"
#include "experiment/text_table.h"
#include "experiment/variants.h"

typedef struct nm_variant_summary { /* the runs of one variant, or of one grid point */
    const nm_variant *variant;
    nm_run_result **results; /* one per seed, not owned */
    size_t n;
    bool selected; /* listed in the main table; of a grid, the point with the lowest validation loss */
    /* Over the finished runs; means over seeds, NaN if unknown. */
    double finished, value, value_deviation, low, high;
    /* To the first row: difference with its confidence interval, p of the test over seeds and segments (with one seed: of the
     * paired bootstrap over segments), p_holm with Holm's correction, p of a difference of at least the margin. */
    double difference, difference_low, difference_high, p, p_holm, p_equivalence;
    double loss, loss_deviation, nll, perplexity, tokens_per_second, step_mib, tid_mean, tid_variance;
} nm_variant_summary;

typedef struct nm_comparison_table {
    nm_variant_summary *summaries;
    size_t n;
    bool perplexity; /* exp(nll) is a perplexity for this task */
    double margin;   /* of the equivalence tests, in units of the score; 0: none */
} nm_comparison_table;

/* Computes the means of what the logs contain. */
void nm_comparison_table_summarize_logs(nm_comparison_table *table);
/* Selects, among the grid points of each variant, the one with the lowest mean of the best validation losses; a point with
 * an unfinished run only if there is no other. */
void nm_comparison_table_select(nm_comparison_table *table);
/* Scores: intervals, tests against the first selected variant (metric/seed_test.h) with Holm's correction over the selected
 * ones, tests of single runs (stored in test.json), and runs of different variants with identical weights. */
void nm_comparison_table_test(nm_comparison_table *table);
/* The grid points with the selected ones marked; prints nothing without a grid, or as JSON. */
void nm_comparison_table_print_grid(const nm_comparison_table *table, nm_table_format format, FILE *out);
/* The selected variants; JSON has the grid points and the runs, too. samples: print examples of the best run. */
void nm_comparison_table_print(const nm_comparison_table *table, nm_table_format format, bool samples,
                               FILE *out);
void nm_comparison_table_release(nm_comparison_table *table);

#endif
