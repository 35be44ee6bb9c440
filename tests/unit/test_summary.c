/* Mean, deviation and Holm's correction against values computed manually, and against their definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/random.h"
#include "base/summary.h"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (1 + fabs(b));
}

static void mean_and_deviation(void **state)
{
    (void)state;
    const double values[] = {2, 4, 4, 4, 5, 5, 7, 9};
    nm_summary s = nm_summary_of(values, 8);
    assert_int_equal(s.n, 8);
    assert_true(near(s.mean, 5));
    assert_true(near(s.deviation, sqrt(32.0 / 7)));
    const double large[] = {1e9 + 1, 1e9 + 2, 1e9 + 3};
    assert_true(near(nm_summary_of(large, 3).deviation, 1));
    const double uneven[] = {1e9, 1e9 + 1, 1e9 + 1}; /* the mean is rounded */
    assert_true(fabs(nm_summary_of(uneven, 3).deviation - sqrt(1.0 / 3)) < 1e-12);
}

static void little_to_average(void **state)
{
    (void)state;
    const double values[] = {NAN, 3, INFINITY};
    nm_summary s = nm_summary_of(values, 3);
    assert_int_equal(s.n, 1);
    assert_true(s.mean == 3 && isnan(s.deviation));
    s = nm_summary_of(values, 1);
    assert_true(s.n == 0 && isnan(s.mean) && isnan(s.deviation));
    assert_true(isnan(nm_summary_of(NULL, 0).mean));
}

/* 0.01 x 4, 0.013 x 3 lifted to it, 0.03 x 2, 0.04 x 1 lifted to that. */
static void holm_by_hand(void **state)
{
    (void)state;
    const double p[] = {0.03, 0.01, NAN, 0.04, 0.013}, wanted[] = {0.06, 0.04, NAN, 0.06, 0.04};
    double adjusted[5];
    nm_holm(p, 5, adjusted);
    for (int i = 0; i < 5; i++)
        assert_true(isnan(wanted[i]) ? isnan(adjusted[i]) : near(adjusted[i], wanted[i]));
    double one[] = {0.02}, high[] = {0.7, 0.6};
    nm_holm(one, 1, one);
    nm_holm(high, 2, high);
    assert_true(near(one[0], 0.02) && high[0] == 1 && high[1] == 1);
    double first[] = {NAN, 0.02};
    nm_holm(first, 2, first);
    assert_true(isnan(first[0]) && near(first[1], 0.02));
}

/* For every alpha: step down from the smallest, rejecting while p_(k) <= alpha / (m - k + 1). */
static bool rejected_stepwise(const double *p, int n, int which, double alpha)
{
    bool done[8] = {false};
    for (int k = 0; k < n; k++) {
        int least = -1;
        for (int i = 0; i < n; i++)
            if (!done[i] && (least < 0 || p[i] < p[least]))
                least = i;
        if (p[least] > alpha / (n - k))
            return false;
        if (least == which)
            return true;
        done[least] = true;
    }
    return false;
}

static void holm_rejects_the_same(void **state)
{
    (void)state;
    enum { N = 8 };
    for (uint32_t t = 0; t < 200; t++) {
        double p[N], adjusted[N];
        for (uint32_t i = 0; i < N; i++)
            p[i] = pow(nm_random_unit(nm_random4(3, NM_RANDOM_TEST, 0, t, i).w[0]), 3);
        nm_holm(p, N, adjusted);
        for (int i = 0; i < N; i++)
            for (double alpha = 0.013; alpha < 1; alpha += 0.0717)
                assert_true((adjusted[i] <= alpha) == rejected_stepwise(p, N, i, alpha));
    }
}

/* Whole fields that two signatures begin with; a signature may be the beginning of the other. */
static void common_fields_of_signatures(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b, *common;
    } cases[] = {{"f1|scheme:bio|recall:10.00", "f1|scheme:bio|recall:10.25", "f1|scheme:bio"},
                 {"f1|scheme:bio", "f1|scheme:bioes", "f1"},
                 {"f1|scheme:bio", "f1|scheme:bio|recall:1", "f1|scheme:bio"},
                 {"f1|scheme:bio|recall:1", "f1|scheme:bio", "f1|scheme:bio"},
                 {"bleu|a", "bleu|a", "bleu|a"},
                 {"bleu", "f1", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(nm_signature_common(cases[i].a, strlen(cases[i].a), cases[i].b),
                         strlen(cases[i].common));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_and_deviation),
        cmocka_unit_test(little_to_average),
        cmocka_unit_test(holm_by_hand),
        cmocka_unit_test(holm_rejects_the_same),
        cmocka_unit_test(common_fields_of_signatures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
