/* Precision, recall and F1 of spans over all sentences (micro average), as in conlleval (Tjong Kim Sang and
 * De Meulder 2003) and, for the other schemes, seqeval: a span is correct if its first token, last token
 * and label are correct. */
#pragma once

#include "base/bootstrap.h"
#include "text/counter.h"
#include "text/tags.h"

typedef struct nm_span_counts {
    int64_t correct, predicted, gold; /* numbers of spans */
} nm_span_counts;

enum { NM_SPAN_COUNTS = sizeof(nm_span_counts) / sizeof(int64_t) };

typedef struct nm_span_score { /* from 0 to 1; 0 where the denominator is 0 */
    double precision, recall, f1;
} nm_span_score;

/* Counts the spans of one sentence of n valid tags. The two sequences may have different tag schemes. */
nm_span_counts nm_span_count(const char *const *predicted, const char *const *gold, int32_t n);
/* Adds the spans of one sentence to the counts of their labels. counts: [labels->n]; labels: all labels of
 * the tags. */
void nm_span_count_labels(const char *const *predicted, const char *const *gold, int32_t n,
                          const nm_counter *labels, nm_span_counts *counts);
nm_span_score nm_span_compute(const nm_span_counts *counts);
/* F1 in percent of summed counts, for nm_bootstrap_*; context is unused. */
double nm_span_f1_of_counts(const int64_t *counts, const void *context);
