/* How sure is a corpus score, and is one system better than another? Bootstrap over segments (Koehn 2004),
 * for every score that is a function of summed counts per segment: BLEU, chrF, accuracy, F1.
 *
 * Draw k of n_resamples takes n segments with replacement; which ones depends only on seed, k and position, so
 * results do not depend on the number of threads. */
#ifndef NM_BOOTSTRAP_H
#define NM_BOOTSTRAP_H

#include "norma/status.h"

/* Counts of all segments: values[segment * n_counts + i]. Not owned. */
typedef struct nm_counts {
    const int64_t *values;
    size_t n_segments;
    int n_counts;
} nm_counts;

/* Score of one row (a sum of rows), e.g. nm_bleu_of_counts with the configuration as context. */
typedef double (*nm_score_of_counts)(const int64_t *counts, const void *context);

typedef struct nm_bootstrap_config {
    int n_resamples; /* 1000 */
    uint64_t seed;   /* 1 */
    double outside;  /* 0.05: the share of draws outside of the interval, half on each side */
    bool centered;   /* false: the test of Koehn; true: that of the Moses script, see nm_paired.p */
} nm_bootstrap_config;
nm_bootstrap_config nm_bootstrap_default(void);

typedef struct nm_interval {
    double mean, low, high; /* of the draws */
} nm_interval;

/* Difference is always a minus b. */
typedef struct nm_paired {
    double score_a, score_b; /* on the whole corpus */
    nm_interval a, b, difference;
    /* Koehn: share of draws where the system that is better on the whole corpus does not win (a, if both are
     * equal). Centered: share of draws with |d_k| - mean|d| >= |d|, d the difference on the whole corpus. */
    double p;
} nm_paired;

/* Sum of all rows, in heap memory; the caller frees. */
int64_t *nm_counts_sum(nm_counts counts);
double nm_counts_score(nm_counts counts, nm_score_of_counts score, const void *context);

nm_interval nm_bootstrap_interval(nm_counts counts, nm_score_of_counts score, const void *context,
                                  const nm_bootstrap_config *config);

/* The score of every draw, in heap memory: n_resamples numbers. Draw k takes the same segments for every system counted on the
 * same test set, so draws can be kept, averaged over models of one kind, and compared one by one. */
double *nm_bootstrap_resamples(nm_counts counts, nm_score_of_counts score, const void *context,
                               const nm_bootstrap_config *config);
nm_interval nm_bootstrap_interval_of(const double *draws, const nm_bootstrap_config *config);
/* nm_paired.p from draws, and the scores on the whole corpus. */
double nm_bootstrap_p(double score_a, const double *a, double score_b, const double *b,
                      const nm_bootstrap_config *config);

/* Both systems are counted on the same segments in the same order. */
nm_paired nm_bootstrap_paired(nm_counts a, nm_counts b, nm_score_of_counts score, const void *context,
                              const nm_bootstrap_config *config);

#endif
