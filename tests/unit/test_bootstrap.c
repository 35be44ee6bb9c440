/* Bootstrap: compared with a simple recomputation, identical for every number of threads, and cases with
 * known results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "base/random.h"
#include "base/bootstrap.h"

/* Accuracy in percent: rows of (correct, all). */
static double accuracy(const int64_t *counts, const void *context)
{
    (void)context;
    return counts[1] ? 100.0 * (double)counts[0] / (double)counts[1] : 0;
}

enum { n_segments = 403 };
static int64_t better[n_segments][2], worse[n_segments][2], equal[n_segments][2];

static nm_counts counts_of(const int64_t (*rows)[2])
{
    return (nm_counts){rows[0], n_segments, 2};
}

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < n_segments; i++) {
        nm_random_words words = nm_random4(7, NM_RANDOM_TEST, 0, 0, (uint64_t)i);
        better[i][1] = worse[i][1] = equal[i][1] = 1;
        better[i][0] = nm_random_unit(words.w[0]) < 0.6;
        worse[i][0] = nm_random_unit(words.w[1]) < 0.4;
    }
    for (int i = 0; i < n_segments; i++) /* as many correct as in worse, but different segments */
        equal[i][0] = worse[(i + 1) % n_segments][0];
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double draw_score(const int64_t (*rows)[2], uint64_t seed, uint32_t draw)
{
    int64_t sum[2] = {0};
    for (uint32_t i = 0; i < n_segments; i++) {
        nm_random_words words = nm_random4(seed, NM_RANDOM_BOOTSTRAP, 0, draw, i / 4);
        uint32_t segment = (uint32_t)((uint64_t)words.w[i % 4] * n_segments >> 32);
        sum[0] += rows[segment][0];
        sum[1] += rows[segment][1];
    }
    assert_int_equal(sum[1], n_segments);
    return accuracy(sum, NULL);
}

static void recomputed(void **state)
{
    (void)state;
    nm_bootstrap_config config = nm_bootstrap_default();
    config.seed = 99;
    double draws[1000], sum = 0;
    int lost = 0, as_far = 0;
    double differences[1000], mean = 0;
    for (uint32_t k = 0; k < 1000; k++) {
        draws[k] = draw_score(worse, 99, k);
        differences[k] = fabs(draws[k] - draw_score(equal, 99, k));
        lost += draws[k] <= draw_score(equal, 99, k);
        sum += draws[k];
        mean += differences[k];
    }
    mean /= 1000;
    for (int k = 0; k < 1000; k++)
        as_far += differences[k] - mean >= 0;
    qsort(draws, 1000, sizeof *draws, ascending);
    nm_interval interval = nm_bootstrap_interval(counts_of(worse), accuracy, NULL, &config);
    assert_true(interval.low == draws[25] && interval.high == draws[974]);
    assert_true(fabs(interval.mean - sum / 1000) < 1e-12);
    nm_paired paired = nm_bootstrap_paired(counts_of(worse), counts_of(equal), accuracy, NULL, &config);
    assert_true(paired.score_a == paired.score_b);
    assert_true(paired.p == (lost + 1) / 1001.0);
    assert_true(paired.a.low == interval.low && paired.a.high == interval.high);
    config.centered = true;
    paired = nm_bootstrap_paired(counts_of(worse), counts_of(equal), accuracy, NULL, &config);
    assert_true(paired.p == (as_far + 1) / 1001.0);
}

/* 95 % of binomial proportions are within 1.96 standard errors. */
static void width(void **state)
{
    (void)state;
    nm_bootstrap_config config = nm_bootstrap_default();
    nm_interval interval = nm_bootstrap_interval(counts_of(better), accuracy, NULL, &config);
    double share = nm_counts_score(counts_of(better), accuracy, NULL) / 100;
    double half = 196 * sqrt(share * (1 - share) / n_segments);
    assert_true(fabs((interval.high - interval.low) / 2 / half - 1) < 0.1);
    assert_true(fabs(interval.mean - 100 * share) < 0.3);
}

static void assert_same(nm_paired x, nm_paired y)
{
    assert_true(x.p == y.p && x.a.mean == y.a.mean && x.b.low == y.b.low &&
                x.difference.high == y.difference.high);
}

static void same_for_any_threads(void **state)
{
    (void)state;
    nm_bootstrap_config config = nm_bootstrap_default();
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    nm_paired one = nm_bootstrap_paired(counts_of(better), counts_of(worse), accuracy, NULL, &config);
    for (int threads = 2; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        assert_same(one, nm_bootstrap_paired(counts_of(better), counts_of(worse), accuracy, NULL, &config));
    }
    config.seed++;
    nm_paired other = nm_bootstrap_paired(counts_of(better), counts_of(worse), accuracy, NULL, &config);
    assert_true(one.a.mean != other.a.mean);
    omp_set_num_threads(before);
}

static void known_answers(void **state)
{
    (void)state;
    nm_bootstrap_config config = nm_bootstrap_default();
    for (int centered = 0; centered < 2; centered++) {
        config.centered = centered;
        assert_true(nm_bootstrap_paired(counts_of(worse), counts_of(worse), accuracy, NULL, &config).p == 1);
        assert_true(nm_bootstrap_paired(counts_of(better), counts_of(worse), accuracy, NULL, &config).p <
                    0.001);
        nm_paired paired = nm_bootstrap_paired(counts_of(worse), counts_of(better), accuracy, NULL, &config);
        assert_true(paired.p < 0.001 && paired.difference.high < 0);
        assert_true(paired.difference.low < paired.score_a - paired.score_b);
    }
}

/* Stored resamples give the same results as the counts of the systems. */
static void kept_draws(void **state)
{
    (void)state;
    nm_bootstrap_config config = nm_bootstrap_default();
    for (int centered = 0; centered < 2; centered++) {
        config.centered = centered;
        nm_paired paired = nm_bootstrap_paired(counts_of(worse), counts_of(equal), accuracy, NULL, &config);
        double *a = nm_bootstrap_resamples(counts_of(worse), accuracy, NULL, &config),
               *b = nm_bootstrap_resamples(counts_of(equal), accuracy, NULL, &config);
        double p = nm_bootstrap_p(paired.score_a, a, paired.score_b, b, &config);
        nm_interval kept = nm_bootstrap_interval_of(b, &config);
        assert_true(p > 0 && p == paired.p);
        assert_true(kept.low == paired.b.low && kept.high == paired.b.high && kept.mean == paired.b.mean);
        free(a);
        free(b);
    }
}

static void smallest(void **state)
{
    (void)state;
    nm_bootstrap_config config = nm_bootstrap_default();
    nm_counts one = {better[0], 1, 2}, none = {better[0], 0, 2};
    nm_interval interval = nm_bootstrap_interval(one, accuracy, NULL, &config);
    assert_true(interval.low == interval.high && interval.low == 100.0 * (double)better[0][0]);
    assert_true(nm_bootstrap_paired(none, none, accuracy, NULL, &config).p == 1);
    config.n_resamples = 1;
    interval = nm_bootstrap_interval(counts_of(better), accuracy, NULL, &config);
    assert_true(interval.low == interval.high && interval.mean == interval.low);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed),    cmocka_unit_test(width),      cmocka_unit_test(same_for_any_threads),
        cmocka_unit_test(known_answers), cmocka_unit_test(kept_draws), cmocka_unit_test(smallest),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
