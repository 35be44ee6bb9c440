/* The tables of norma compare: runs of a variant become one line, with mean and deviation over the seeds. */
#ifndef NM_COMPARE_TABLE_H
#define NM_COMPARE_TABLE_H

#include "cli/compare_row.h"
#include "cli/compare_variants.h"

typedef struct compare_group { /* the runs of one variant, or of one point of the grid */
    const compare_variant *variant;
    compare_row **rows; /* one for each seed, not owned */
    size_t n;
    bool chosen; /* the table's, not only the grid's */
    /* Of the runs that came to their end; means over seeds. */
    double finished, value, value_deviation, low, high, p, p_holm;
    double loss, loss_deviation, nll, perplexity, tokens_per_second, step_mib, tid_mean, tid_variance;
} compare_group;

typedef struct compare_table {
    compare_group *groups;
    size_t n;
    bool perplexity; /* exp(nll) means something for the task */
} compare_table;

/* Fills means of what the logs say. */
void compare_table_summarize_logs(compare_table *table);
/* Of the points of each variant's grid the one with the lowest mean of the best validation losses is chosen; points with
 * a run that did not come to its end only when there is no other. */
void compare_table_choose(compare_table *table);
/* Intervals, tests against the first, Holm's correction; and the tests of single runs, which test.json keeps. */
void compare_table_test(compare_table *table);
/* The points, and which were chosen; nothing without a grid. */
void compare_table_print_grid(const compare_table *table, const char *format, FILE *out);
/* The chosen. format: "text", "markdown", "latex", "csv" or "json", which has points and runs too. */
void compare_table_print(const compare_table *table, const char *format, int64_t samples, FILE *out);
void compare_table_release(compare_table *table);

#endif
