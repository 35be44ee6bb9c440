/* The tables of a comparison: a row summarizes the runs of a variant, with means and sample standard
 * deviations over the seeds. */
#pragma once

#include "experiment/factorial.h"
#include "experiment/run_result.h"
#include "experiment/text_table.h"
#include "experiment/variants.h"

typedef struct nm_variant_summary { /* the runs of one variant, or of one grid point */
    const nm_variant *variant;
    nm_run_result **results; /* [n], one per seed; the array is owned, the results are not */
    size_t n;
    NM_COMPARED_VARIANT(NM_MEMBER)
    /* Selected by the lowest nll, because the label smoothing of the grid points differs. */
    bool by_nll;
    bool of_models; /* p is the one-sided one of the paired bootstrap over segments (Koehn 2004) */
} nm_variant_summary;

typedef struct nm_comparison_table {
    nm_variant_summary *summaries;
    size_t n;
    bool perplexity;         /* exp(nll) is a perplexity for this task */
    nm_factorial *factorial; /* whose cells the variants are; not owned; NULL: none */
    double margin;           /* of the equivalence tests, in units of the score; 0: none */
} nm_comparison_table;

/* The summary for users of the library. */
nm_compared_variant nm_variant_summary_describe(const nm_variant_summary *summary);

/* Computes the means of the values from the logs and sets all others to NaN. */
void nm_comparison_table_summarize_logs(nm_comparison_table *table);
/* Selects, among the grid points of each variant, the one with the lowest mean of the best validation losses;
 * of their nll if the points differ in label smoothing. A point with an unfinished run is selected only if
 * all points have one. */
void nm_comparison_table_select(nm_comparison_table *table);
/* Computes means and intervals of the scores, tests against the first selected variant (base/seed_test.h)
 * with Holm's correction over the selected variants, and tests of single runs (stored in test.json), and
 * finds runs of different variants with identical weights. */
void nm_comparison_table_test(nm_comparison_table *table);
/* Prints the grid points and marks the selected ones. Prints nothing without a grid, or for NM_TABLE_JSON. */
void nm_comparison_table_print_grid(const nm_comparison_table *table, nm_table_format format, FILE *out);
/* Prints the selected variants; JSON also contains the grid points and the runs. samples: print examples of
 * the best run. */
void nm_comparison_table_print(const nm_comparison_table *table, nm_table_format format, bool samples,
                               FILE *out);
void nm_comparison_table_release(nm_comparison_table *table);
