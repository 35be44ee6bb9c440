/* The rows of `norma compare`: what is measured of a run, and the table in three forms. */
#ifndef NM_COMPARE_TABLE_H
#define NM_COMPARE_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "train/task.h"

typedef struct compare_row {
    char variant[128], trouble[256];
    int64_t seed, updates;
    int exit_code;
    char against[128];   /* the variant of the row that p is the test against; or "" */
    json_t *tid;         /* of every site, measured; NULL before */
    bool perplexity;     /* exp(nll) means something for the task */
    nm_task_score score; /* of the test set */
    double low, high;    /* 95 % bootstrap interval */
    double p;            /* paired test against the first row with the same seed; NaN for that one */
    double loss, nll, tokens_per_second, tid_mean, tid_variance;
} compare_row;

typedef struct compare_table {
    compare_row *rows;
    size_t n, capacity;
} compare_table;

/* The row stays valid until the next add. */
compare_row *compare_table_add(compare_table *table, const char *variant, int64_t seed);
/* Loads the run's best model, scores the test set, measures TID on training data, reads the log. */
nm_status compare_measure(compare_row *row, const char *folder, int64_t tid_batches, nm_error *err);
/* Writes what was measured, p among it, to test.json of the run, where norma report finds it. */
nm_status compare_save(const compare_row *row, const char *folder, nm_error *err);
/* format: "text", "markdown" or "json". */
void compare_table_print(compare_table *table, const char *format, int64_t samples, FILE *out);
void compare_table_release(compare_table *table);

#endif
