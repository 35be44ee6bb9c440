/* Tests over seeds and segments: Student's distribution at tabulated values, a hand-computed case, and the
 * rate of false positives of simulated comparisons of identical variants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "base/seed_test.h"

static void test_student_equals_tables(void **state)
{
    (void)state;
    /* two-sided 5 % and one-sided 1 % points */
    const struct {
        double df, p, t;
    } cases[] = {{1, 0.975, 12.7062047364},        {2, 0.975, 4.30265272991}, {4, 0.975, 2.7764451052},
                 {10, 0.975, 2.22813885199},       {30, 0.99, 2.45726154},    {1e3, 0.975, 1.9623390808},
                 {INFINITY, 0.975, 1.95996398454}, {3, 0.05, -2.35336343}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(fabs(nm_student_quantile(cases[i].p, cases[i].df) - cases[i].t) < 1e-7);
        assert_true(fabs(nm_student_cdf(cases[i].t, cases[i].df) - cases[i].p) < 1e-9);
    }
    assert_true(nm_student_cdf(0, 5) == 0.5);
    assert_true(nm_student_cdf(-INFINITY, 2) == 0 && nm_student_cdf(INFINITY, 2) == 1);
}

static void test_one_case_by_arithmetic(void **state)
{
    (void)state;
    /* Every model moves alike with the segments: no interaction, and the segments cancel in the
     * difference. */
    const double shift[] = {-1, 0, 1, 0, -2, 2}, scores_a[] = {10, 12, 14}, scores_b[] = {9, 11};
    double resamples[5][6];
    const double *a[3], *b[2];
    for (int s = 0; s < 5; s++) {
        for (int k = 0; k < 6; k++)
            resamples[s][k] = (s < 3 ? scores_a[s] : scores_b[s - 3]) + shift[k];
        if (s < 3)
            a[s] = resamples[s];
        else
            b[s - 3] = resamples[s];
    }
    nm_seed_scores group_a = {3, 6, scores_a, a}, group_b = {2, 6, scores_b, b};
    nm_seed_difference d = nm_seed_test(&group_a, &group_b, 0.05);
    double va = 4.0 / 3, vb = 2.0 / 2, variance = va + vb,
           df = variance * variance / (va * va / 2 + vb * vb / 1);
    assert_true(fabs(d.value - 2) < 1e-12);
    assert_true(fabs(d.standard_error - sqrt(variance)) < 1e-12);
    assert_true(fabs(d.df - df) < 1e-12);
    assert_true(fabs(d.p - 2 * nm_student_cdf(-2 / sqrt(variance), df)) < 1e-12);
    assert_true(d.low < 0 && d.high > 0 && fabs(d.low + d.high - 2 * d.value) < 1e-9);
    /* The interval of one group contains the variance of the segments: 10 / 5. */
    nm_interval interval = nm_seed_interval(&group_a, 0.05);
    variance = va + 2;
    assert_true(fabs(interval.high - 12 -
                     sqrt(variance) * nm_student_quantile(0.975, variance * variance * 2 / (va * va))) <
                1e-9);
    interval = nm_seed_interval(&group_b, 0.05); /* two seeds, one degree of freedom */
    variance = vb + 2;
    assert_true(fabs(interval.high - 10 -
                     sqrt(variance) * nm_student_quantile(0.975, variance * variance / (vb * vb))) < 1e-9);
    assert_true(nm_seed_equivalence(&d, 100) < 0.01 && nm_seed_equivalence(&d, 1) > 0.5);
    group_b.n = 1;
    assert_true(isnan(nm_seed_test(&group_a, &group_b, 0.05).p));
    interval = nm_seed_interval(&group_b, 0.05); /* one seed: a bootstrap over the segments */
    assert_true(interval.low >= 9 - 2 && interval.low < 9 && interval.high > 9 && interval.high <= 9 + 2);
}

enum { N_SEEDS = 3, N_SEGMENTS = 150, N_RESAMPLES = 200, N_COMPARISONS = 600 };

static double normal(uint32_t comparison, uint32_t site, uint64_t index)
{
    nm_random_words words = nm_random4(11, NM_RANDOM_TEST, site, comparison, index);
    return sqrt(-2 * log(nm_random_unit(words.w[0]))) * cos(6.283185307179586 * nm_random_unit(words.w[1]));
}

/* Accuracy of models whose score depends on the segment, on the seed and on both; the variants are
 * identical. */
static void simulate(uint32_t comparison, double scores[2][N_SEEDS],
                     double (*resamples)[N_SEEDS][N_RESAMPLES])
{
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t s = 0; s < N_SEEDS; s++) {
            double seed_effect = 0.15 * normal(comparison, 1 + g, s), correct[N_SEGMENTS];
            scores[g][s] = 0;
            for (uint32_t i = 0; i < N_SEGMENTS; i++) {
                double margin = 0.5 + normal(comparison, 3, i) + seed_effect +
                                0.5 * normal(comparison, 4 + g, (uint64_t)s * N_SEGMENTS + i);
                correct[i] = margin > 0;
                scores[g][s] += correct[i] / N_SEGMENTS;
            }
            for (uint32_t k = 0; k < N_RESAMPLES; k++) {
                resamples[g][s][k] = 0;
                for (uint32_t i = 0; i < N_SEGMENTS; i++) {
                    uint32_t word = nm_random4(5, NM_RANDOM_BOOTSTRAP, 0, k, i).w[0];
                    resamples[g][s][k] += correct[(uint64_t)word * N_SEGMENTS >> 32] / N_SEGMENTS;
                }
            }
        }
}

static double variance_of(const double *values, int n)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += values[i] / n;
    for (int i = 0; i < n; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return sum / (n - 1);
}

/* The variance over segments without the part that the variance over seeds contains already: the
 * interaction. */
static void test_interaction_is_subtracted(void **state)
{
    (void)state;
    enum { K = 4, SEEDS = 2 };
    static const double resamples[2][SEEDS][K] = {{{1, 5, 2, 8}, {2, 9, 1, 7}}, {{3, 1, 6, 2}, {4, 1, 5, 1}}};
    static const double scores[2][SEEDS] = {{4, 5}, {3, 2.5}};
    double difference[K], variances[2], interaction = 0;
    nm_seed_scores groups[2];
    const double *rows[2][SEEDS];
    for (int g = 0; g < 2; g++) {
        for (int s = 0; s < SEEDS; s++)
            rows[g][s] = resamples[g][s];
        groups[g] = (nm_seed_scores){SEEDS, K, scores[g], rows[g]};
        variances[g] = variance_of(scores[g], SEEDS) / SEEDS;
    }
    for (int k = 0; k < K; k++)
        difference[k] =
            (resamples[0][0][k] + resamples[0][1][k] - resamples[1][0][k] - resamples[1][1][k]) / 2;
    /* with two seeds both deviations from their mean are half of their difference */
    for (int g = 0; g < 2; g++) {
        double half[K];
        for (int k = 0; k < K; k++)
            half[k] = (resamples[g][0][k] - resamples[g][1][k]) / 2;
        interaction += 2 * variance_of(half, K) / (SEEDS - 1) / SEEDS;
    }
    assert_true(interaction > 0.1 && variance_of(difference, K) > interaction);
    double expected = variances[0] + variances[1] + variance_of(difference, K) - interaction;
    nm_seed_difference d = nm_seed_test(&groups[0], &groups[1], 0.05);
    assert_true(fabs(d.standard_error * d.standard_error - expected) < 1e-12);
    /* The degrees of freedom are of the variance over seeds and segments: SciPy 1.17.1, stats.t. */
    assert_true(fabs(d.df - 10458.986928104576) < 1e-8);
    assert_true(fabs(d.p - 0.7331937466920072) < 1e-10);
    assert_true(fabs(d.low + 8.31289628) < 1e-7 && fabs(d.high - 11.81289628) < 1e-7);
}

static void test_identical_variants_differ_at_the_nominal_rate(void **state)
{
    (void)state;
    static double resamples[2][N_SEEDS][N_RESAMPLES];
    double scores[2][N_SEEDS];
    int found = 0, found_by_segments = 0;
    for (uint32_t c = 0; c < N_COMPARISONS; c++) {
        simulate(c, scores, resamples);
        const double *rows[2][N_SEEDS];
        double means[2] = {0}, mean_resamples[2][N_RESAMPLES] = {0};
        for (int g = 0; g < 2; g++)
            for (int s = 0; s < N_SEEDS; s++) {
                rows[g][s] = resamples[g][s];
                means[g] += scores[g][s] / N_SEEDS;
                for (int k = 0; k < N_RESAMPLES; k++)
                    mean_resamples[g][k] += resamples[g][s][k] / N_SEEDS;
            }
        const nm_seed_scores a = {N_SEEDS, N_RESAMPLES, scores[0], rows[0]},
                             b = {N_SEEDS, N_RESAMPLES, scores[1], rows[1]};
        found += nm_seed_test(&a, &b, 0.05).p < 0.05;
        nm_bootstrap_config config = nm_bootstrap_default();
        config.n_resamples = N_RESAMPLES;
        found_by_segments +=
            nm_bootstrap_p(means[0], mean_resamples[0], means[1], mean_resamples[1], &config) < 0.05;
    }
    double rate = (double)found / N_COMPARISONS, deviation = sqrt(0.05 * 0.95 / N_COMPARISONS);
    print_message(
        "false positives of %d comparisons at 5 %%: %.1f %% over seeds and segments, %.1f %% over segments\n",
        N_COMPARISONS, 100 * rate, 100.0 * found_by_segments / N_COMPARISONS);
    assert_true(fabs(rate - 0.05) < 2.576 * deviation);
    assert_true(found_by_segments > N_COMPARISONS / 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_student_equals_tables),
                                       cmocka_unit_test(test_one_case_by_arithmetic),
                                       cmocka_unit_test(test_interaction_is_subtracted),
                                       cmocka_unit_test(test_identical_variants_differ_at_the_nominal_rate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
