/* Test of two groups of trained models on one test set, for example two normalizations with several seeds
 * each.
 *
 * A score varies with the seed and with the segments of the test set. A bootstrap over segments only ignores
 * the seeds and finds differences between groups that are identical in distribution. Here both are random
 * effects (Clark 1973; Baayen, Davidson and Bates 2008). With n_g models s in group g, bootstrap resamples k
 * of the segments and scores r_sk:
 *
 *     s2_g  = variance of the scores of group g over its seeds
 *     i2_g  = sum over seeds of Var_k(r_sk - mean_s r_sk) / (n_g - 1)        seed x segment interaction,
 *           contained in s2_g
 *     v     = Var_k(mean_s r_ask - mean_s r_bsk)                             segments
 *     SE^2  = s2_a/n_a + s2_b/n_b + max(0, v - i2_a/n_a - i2_b/n_b)
 *     df    = SE^4 / ((s2_a/n_a)^2/(n_a - 1) + (s2_b/n_b)^2/(n_b - 1))       Welch-Satterthwaite
 *     t     = (mean_a - mean_b) / SE
 */
#pragma once

#include <stddef.h>

#include "base/bootstrap.h"

/* Scores of n models with different seeds; resample k has the same segments for every model of both groups.
 * Not owned. */
typedef struct nm_seed_scores {
    size_t n, n_resamples;
    const double *scores;           /* [n], on the whole test set */
    const double *const *resamples; /* [n][n_resamples] */
} nm_seed_scores;

typedef struct nm_seed_difference {
    double value;          /* mean of a minus mean of b */
    double standard_error; /* SE; NaN with fewer than two seeds in a group */
    double df;             /* degrees of freedom; infinite if the seeds do not vary */
    double low, high;      /* confidence interval of the difference */
    double p;              /* two-sided */
} nm_seed_difference;

/* outside: 1 minus the confidence level, 0.05 for 95 %. */
nm_seed_difference nm_seed_test(const nm_seed_scores *a, const nm_seed_scores *b, double outside);
/* The same for the mean of one group against 0. With paired differences as scores and resamples, a paired
 * test: the groups have the same seeds, which makes their difference less variable. n_resamples 0: no
 * variance over segments. */
nm_seed_difference nm_seed_mean_test(const nm_seed_scores *scores, double outside);
/* Confidence interval of the mean of one group over seeds and segments; with one seed, the percentile
 * interval of the bootstrap over segments. */
nm_interval nm_seed_interval(const nm_seed_scores *scores, double outside);
/* Two one-sided tests (Schuirmann 1987): p of the hypothesis that the difference is at least the margin in
 * either direction. Small p: equivalent within the margin. NaN without a standard error. */
double nm_seed_equivalence(const nm_seed_difference *difference, double margin);

/* P(T <= t) of Student's distribution; df may be infinite. */
double nm_student_cdf(double t, double df);
/* The t with nm_student_cdf(t, df) = p, 0 < p < 1. */
double nm_student_quantile(double p, double df);
