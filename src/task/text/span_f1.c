#include "text/span_f1.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Counts of a label, or of all: every label has index 0 without labels. */
static nm_span_counts *counts_of(const nm_counter *labels, const char *label, nm_span_counts *counts)
{
    size_t at = labels ? nm_counter_find(labels, label, strlen(label)) : 0;
    NM_ASSERT(at != SIZE_MAX);
    return counts + at;
}

static void add_spans(const char *const *predicted, const char *const *gold, int32_t n,
                      const nm_counter *labels, nm_span_counts *counts)
{
    nm_span *spans = nm_allocate((2 * (size_t)n + 1) * sizeof *spans), *gold_spans = spans + n;
    int32_t n_predicted = nm_tag_spans(predicted, n, spans), n_gold = nm_tag_spans(gold, n, gold_spans),
            g = 0;
    for (int32_t i = 0; i < n_gold; i++)
        counts_of(labels, gold_spans[i].label, counts)->gold++;
    for (int32_t p = 0; p < n_predicted; p++) { /* both lists are sorted and do not overlap */
        nm_span_counts *own = counts_of(labels, spans[p].label, counts);
        while (g < n_gold && gold_spans[g].first < spans[p].first)
            g++;
        own->predicted++;
        own->correct += g < n_gold && gold_spans[g].first == spans[p].first &&
                        gold_spans[g].end == spans[p].end && !strcmp(gold_spans[g].label, spans[p].label);
    }
    free(spans);
}

nm_span_counts nm_span_count(const char *const *predicted, const char *const *gold, int32_t n)
{
    nm_span_counts counts = {0};
    add_spans(predicted, gold, n, NULL, &counts);
    return counts;
}

void nm_span_count_labels(const char *const *predicted, const char *const *gold, int32_t n,
                          const nm_counter *labels, nm_span_counts *counts)
{
    add_spans(predicted, gold, n, labels, counts);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

nm_span_score nm_span_compute(const nm_span_counts *counts)
{
    double correct = (double)counts->correct;
    return (nm_span_score){.precision = ratio(correct, (double)counts->predicted),
                           .recall = ratio(correct, (double)counts->gold),
                           .f1 = ratio(2 * correct, (double)(counts->predicted + counts->gold))};
}

double nm_span_f1_of_counts(const int64_t *counts, const void *context)
{
    (void)context;
    const nm_span_counts sum = {counts[0], counts[1], counts[2]};
    return 100 * nm_span_compute(&sum).f1;
}
