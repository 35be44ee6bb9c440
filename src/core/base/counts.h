/* Counts per segment of a corpus, from which scores and their confidence intervals are computed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Counts of all segments, values [n_segments, n_counts]. Not owned. */
typedef struct nm_counts {
    const int64_t *values;
    size_t n_segments;
    int n_counts;
} nm_counts;

/* Score of a sum of rows, for example nm_bleu_of_counts with its configuration as context. */
typedef double (*nm_score_of_counts)(const int64_t *counts, const void *context);
