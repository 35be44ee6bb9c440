/* Confidence interval of a corpus score, and paired test of two systems: bootstrap over segments (Koehn
 * 2004), for every score that is a function of summed counts per segment (BLEU, chrF, accuracy, F1).
 *
 * Resample k consists of n segments, sampled with replacement, which depend on seed, k and position only, not
 * on the number of threads. */
#pragma once

#include "base/counts.h"
#include "base/stop.h"
#include "norma/score.h"

typedef struct nm_bootstrap_config {
    int n_resamples; /* default 1000 */
    uint64_t seed;   /* default 1 */
    double outside;  /* default 0.05: fraction of resamples outside the interval, half of them on each side */
    bool centered;   /* test with centered differences (Moses) instead of Koehn's test, see nm_paired.p */
    /* NULL: none. After a stop the rest of the resamples is left out, and results are not valid. */
    const nm_stop *stop;
} nm_bootstrap_config;
nm_bootstrap_config nm_bootstrap_default(void);

/* Sum of all rows, [n_counts]. The caller frees it. */
int64_t *nm_counts_sum(nm_counts counts);
/* Score of the sum of all rows. */
double nm_counts_score(nm_counts counts, nm_score_of_counts score, const void *context);

nm_interval nm_bootstrap_interval(nm_counts counts, nm_score_of_counts score, const void *context,
                                  const nm_bootstrap_config *config);

/* Scores of all resamples, [n_resamples]; the caller frees them. Resample k has the same segments for every
 * system scored on the same test set, so that scores can be stored, averaged over models of one variant, and
 * compared pairwise. */
double *nm_bootstrap_resamples(nm_counts counts, nm_score_of_counts score, const void *context,
                               const nm_bootstrap_config *config);
/* Confidence interval from the scores of all resamples, [n_resamples]. */
nm_interval nm_bootstrap_interval_of(const double *scores, const nm_bootstrap_config *config);
/* nm_paired.p from the scores of the resamples and the scores on the whole test set. */
double nm_bootstrap_p(double score_a, const double *a, double score_b, const double *b,
                      const nm_bootstrap_config *config);

/* Paired test and intervals. Both systems must be counted on the same segments in the same order. */
nm_paired nm_bootstrap_paired(nm_counts a, nm_counts b, nm_score_of_counts score, const void *context,
                              const nm_bootstrap_config *config);
