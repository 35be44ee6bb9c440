/* Learning-rate schedules: the warm-up is the same in all of them. The rates of the papers' programs are
 * golden cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "train/schedule.h"

enum { WARMUP = 20, TOTAL = 200 };

static nm_schedule create(nm_schedule_name name, double fraction)
{
    const nm_schedule_config config = {.name = name,
                                       .lr = 0.001,
                                       .scale = 1,
                                       .decay = 0.5,
                                       .patience = 1,
                                       .decay_fraction = 0.25,
                                       .warmup = fraction > 0 ? 0 : WARMUP,
                                       .warmup_fraction = fraction};
    nm_schedule schedule;
    nm_schedule_init(&schedule, &config, 64, TOTAL);
    return schedule;
}

static const nm_schedule_name with_warmup[] = {NM_SCHEDULE_INVERSE_SQRT, NM_SCHEDULE_INV_SQRT_DECAY,
                                               NM_SCHEDULE_VAL_DECAY,    NM_SCHEDULE_COSINE,
                                               NM_SCHEDULE_LINEAR,       NM_SCHEDULE_WSD};
enum { N_WITH_WARMUP = sizeof with_warmup / sizeof *with_warmup };

static void test_warmup_is_linear_and_ends_at_the_peak(void **state)
{
    (void)state;
    for (int k = 0; k < N_WITH_WARMUP; k++) {
        nm_schedule s = create(with_warmup[k], 0);
        assert_int_equal(nm_schedule_warmup(&s), WARMUP);
        double peak = 0, step = nm_schedule_lr(&s, 3) - nm_schedule_lr(&s, 2);
        assert_true(step > 0);
        for (int64_t n = 1; n <= TOTAL; n++) {
            double rate = nm_schedule_lr(&s, n);
            peak = fmax(peak, rate);
            if (n > 1 && n < WARMUP)
                assert_true(fabs(rate - nm_schedule_lr(&s, n - 1) - step) < 1e-12);
            else if (n > WARMUP + 1)
                assert_true(rate <= nm_schedule_lr(&s, n - 1));
        }
        /* The position of the peak differs by one update between programs. */
        assert_true(nm_schedule_lr(&s, WARMUP) == peak || nm_schedule_lr(&s, WARMUP - 1) == peak ||
                    nm_schedule_lr(&s, WARMUP + 1) == peak);
    }
}

static void test_warmup_as_a_fraction(void **state)
{
    (void)state;
    for (int k = 0; k < N_WITH_WARMUP; k++) {
        nm_schedule updates = create(with_warmup[k], 0),
                    fraction = create(with_warmup[k], (double)WARMUP / TOTAL);
        assert_int_equal(nm_schedule_warmup(&fraction), WARMUP);
        for (int64_t n = 1; n <= TOTAL; n++)
            assert_true(nm_schedule_lr(&updates, n) == nm_schedule_lr(&fraction, n));
    }
}

static void assert_rate(nm_schedule_config config, double factor, int64_t n, double wanted)
{
    nm_schedule s;
    config.lr = 0.001;
    config.scale = 1;
    nm_schedule_init(&s, &config, 64, TOTAL);
    s.state.factor = factor;
    double rate = nm_schedule_lr(&s, n);
    if (!(fabs(rate - wanted) <= 1e-15))
        fail_msg("rate %.17g of update %lld instead of %.17g", rate, (long long)n, wanted);
}

static void test_rates_by_hand(void **state)
{
    (void)state;
    const nm_schedule_config root = {.name = NM_SCHEDULE_INVERSE_SQRT, .init_lr = 0.0002, .warmup = WARMUP},
                             no_rise = {.name = NM_SCHEDULE_INVERSE_SQRT, .init_lr = 0.0002};
    assert_rate(root, 1, 1, 0.0002);
    assert_rate(root, 1, 11, 0.0006);
    assert_rate(root, 1, 1 + WARMUP, 0.001);
    assert_rate(root, 1, 1 + 4 * WARMUP, 0.0005);
    assert_rate(no_rise, 1, 1, 0.001);
    assert_rate(no_rise, 1, 5, 0.0005);
    /* scale / sqrt(width) is 1/8; the warm-up of W updates ends at W - 1, at least at 1. */
    nm_schedule_config steps = {.name = NM_SCHEDULE_VAL_DECAY, .warmup = 4};
    assert_rate(steps, 1, 2, 2.0 / 64);
    assert_rate(steps, 1, 3, 3.0 / 64);
    assert_rate(steps, 0.5, 9, 1.5 / 64);
    steps.warmup = 1;
    assert_rate(steps, 1, 5, 1.0 / 8);
    steps.warmup = 0;
    assert_rate(steps, 1, 5, 1.0 / 8);
    assert_rate((nm_schedule_config){.name = NM_SCHEDULE_NO_WARMUP}, 0.25, 7, 0.00025);
}

static void test_cosine_starts_low_and_ends_at_zero(void **state)
{
    (void)state;
    nm_schedule s = create(NM_SCHEDULE_COSINE, 0);
    assert_true(nm_schedule_lr(&s, 1) == 0.001 / WARMUP);
    assert_true(nm_schedule_lr(&s, WARMUP) == 0.001);
    assert_true(fabs(nm_schedule_lr(&s, (TOTAL + WARMUP) / 2) - 0.0005) < 1e-12);
    assert_true(nm_schedule_lr(&s, TOTAL) == 0);
    assert_true(nm_schedule_lr(&s, TOTAL + 1) == 0);
    s.total = WARMUP; /* the training ends with the warm-up */
    assert_true(nm_schedule_lr(&s, WARMUP) == 0.001);
    assert_true(nm_schedule_lr(&s, WARMUP + 1) == 0);
}

static void test_wsd_is_constant_between_warmup_and_decay(void **state)
{
    (void)state;
    enum { DECAY = TOTAL / 4 };
    nm_schedule s = create(NM_SCHEDULE_WSD, 0);
    for (int64_t n = 1; n <= TOTAL; n++) {
        double rate = n < WARMUP          ? 0.001 * (double)n / WARMUP
                      : n > TOTAL - DECAY ? 0.001 * (double)(TOTAL - n) / DECAY
                                          : 0.001;
        assert_true(fabs(nm_schedule_lr(&s, n) - rate) < 1e-15);
    }
    assert_true(nm_schedule_lr(&s, TOTAL + 1) == 0);
    s.config.decay_fraction = 0;
    assert_true(nm_schedule_lr(&s, TOTAL) == 0.001);
    s.config.decay_fraction = 1; /* the decay begins in the warm-up */
    assert_true(nm_schedule_lr(&s, 1) == 0.001 / WARMUP);
    assert_true(fabs(nm_schedule_lr(&s, TOTAL / 2) - 0.0005) < 1e-15);
}

/* With r the rate is r lr + (1 - r) times the rate without it, from the peak on. */
static void test_the_final_rate_is_a_fraction_of_the_peak(void **state)
{
    (void)state;
    static const nm_schedule_name names[] = {NM_SCHEDULE_COSINE, NM_SCHEDULE_COSINE_MA2019,
                                             NM_SCHEDULE_LINEAR, NM_SCHEDULE_WSD};
    static const double fractions[] = {0.1, 0.5, 1};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 3; i++) {
            nm_schedule s = create(names[k], 0), plain = create(names[k], 0);
            const double r = s.config.final_fraction = fractions[i];
            for (int64_t n = 1; n <= TOTAL + 5; n++) {
                const double without = nm_schedule_lr(&plain, n);
                const double rate = n <= WARMUP ? without : r * 0.001 + (1 - r) * without;
                assert_true(fabs(nm_schedule_lr(&s, n) - rate) < 1e-15);
            }
            assert_true(fabs(nm_schedule_lr(&s, TOTAL + 1) - r * 0.001) < 1e-18);
        }
    nm_schedule s = create(NM_SCHEDULE_WSD, 0);
    s.config.decay_fraction = 1; /* the decay begins in the warm-up */
    s.config.final_fraction = 0.5;
    assert_true(nm_schedule_lr(&s, 1) == 0.001 / WARMUP);
    assert_true(fabs(nm_schedule_lr(&s, TOTAL / 2) - 0.00075) < 1e-15);
}

/* The released code of Ma et al. 2019 sets the rate after each update. */
static void test_released_cosine_starts_at_the_full_rate(void **state)
{
    (void)state;
    nm_schedule s = create(NM_SCHEDULE_COSINE_MA2019, 0);
    assert_true(nm_schedule_lr(&s, 1) == 0.001);
    assert_true(nm_schedule_lr(&s, 2) == 0.001 / WARMUP);
}

/* Updates of equal time: the estimate is the number of updates that the time allows. */
static void test_a_limit_of_time_ends_the_schedule(void **state)
{
    (void)state;
    static const nm_schedule_name names[] = {NM_SCHEDULE_COSINE, NM_SCHEDULE_COSINE_MA2019,
                                             NM_SCHEDULE_LINEAR};
    for (int k = 0; k < 3; k++) {
        nm_schedule timed = create(names[k], 0), planned = create(names[k], 0);
        timed.config.updates = 10 * TOTAL;
        for (int64_t n = TOTAL / 20 + 1; n <= TOTAL; n++) {
            nm_schedule_plan(&timed, n, (double)(n - 1) / TOTAL);
            assert_true(fabs(timed.total - TOTAL) < 1e-9);
            assert_true(fabs(nm_schedule_lr(&timed, n) - nm_schedule_lr(&planned, n)) < 1e-12);
        }
        timed.config.updates = 0;
        nm_schedule_plan(&timed, 1, 0);
        assert_true(nm_schedule_lr(&timed, 1) == nm_schedule_lr(&planned, 1));
        nm_schedule_plan(&planned, 77, 0);
        assert_true(planned.total == TOTAL);
    }
}

/* The slower limit does not matter, and a machine that becomes slower does not raise the rate. */
static void test_the_nearer_limit_counts(void **state)
{
    (void)state;
    nm_schedule s = create(NM_SCHEDULE_LINEAR, 0);
    nm_schedule_plan(&s, 100, 0.1);
    assert_true(s.total == TOTAL);
    double last = INFINITY;
    for (int64_t n = WARMUP + 1; n <= TOTAL; n++) {
        double time = fmin(1, 0.004 * (double)n + (n > 60 ? 0.01 * (double)(n - 60) : 0));
        nm_schedule_plan(&s, n, time);
        assert_true(nm_schedule_lr(&s, n) <= last);
        last = nm_schedule_lr(&s, n);
    }
    assert_true(last == 0);
}

/* A limit of time that is not reached leaves the rates exactly as they are without it, however slow the first
 * updates are. */
static void test_a_distant_limit_of_time(void **state)
{
    (void)state;
    nm_schedule s = create(NM_SCHEDULE_LINEAR, 0), plain = create(NM_SCHEDULE_LINEAR, 0);
    for (int64_t n = 1; n <= TOTAL; n++) {
        nm_schedule_plan(&s, n, 0.01 + 0.6 * (double)(n - 1) / TOTAL);
        assert_true(s.total == TOTAL);
        assert_true(nm_schedule_lr(&s, n) == nm_schedule_lr(&plain, n));
    }
}

static void test_early_stopping_ends_the_schedule(void **state)
{
    (void)state;
    nm_schedule s = create(NM_SCHEDULE_LINEAR, 0);
    s.config.early_stopping = true;
    nm_schedule_skip(&s, 50, 0, 0); /* a new best at one quarter */
    nm_schedule_plan(&s, 51, 0);
    assert_true(s.total == TOTAL);
    nm_schedule_skip(&s, 60, 0, 0.5);
    nm_schedule_plan(&s, 60, 0);
    assert_true(fabs(60 / s.total - 0.625) < 1e-12); /* half of the rest after one quarter */
    nm_schedule_skip(&s, 70, 0, 0);                  /* a new best does not return to an earlier position */
    nm_schedule_plan(&s, 70, 0);
    double at = 70 / s.total;
    assert_true(fabs(at - (0.625 + 0.375 * (0.35 - 0.3) / 0.7)) < 1e-12);
    nm_schedule_skip(&s, 80, 0, 1);
    nm_schedule_plan(&s, 80, 0);
    assert_true(fabs(s.total - 80) < 1e-9);
    assert_true(fabs(nm_schedule_lr(&s, 80)) < 1e-15);
    /* Late in the schedule, half of the rest after an early best is behind: nothing is skipped. */
    nm_schedule late = create(NM_SCHEDULE_LINEAR, 0);
    late.config.early_stopping = true;
    nm_schedule_skip(&late, TOTAL / 10, 0, 0);
    nm_schedule_skip(&late, TOTAL * 9 / 10, 0, 0.5);
    nm_schedule_plan(&late, TOTAL * 9 / 10, 0);
    assert_true(late.total == TOTAL);
    nm_schedule off = create(NM_SCHEDULE_LINEAR, 0);
    nm_schedule_skip(&off, 80, 0, 1);
    nm_schedule_plan(&off, 81, 0);
    assert_true(off.total == TOTAL);
}

/* Without warm-up the first rate is the peak; with warm-up it is one step of it, in every schedule. */
static void test_first_update(void **state)
{
    (void)state;
    for (int k = 0; k < N_WITH_WARMUP; k++) {
        nm_schedule s = create(with_warmup[k], 0);
        assert_true(nm_schedule_lr(&s, 1) <= 1.001 * nm_schedule_lr(&s, WARMUP) / (WARMUP - 1));
    }
}

/* The scores that a schedule keeps are bounded by schedule.patience, which may be smaller after a resume. */
static void test_resume_with_a_smaller_patience(void **state)
{
    (void)state;
    nm_schedule_config config = {.name = NM_SCHEDULE_NO_WARMUP, .lr = 1, .decay = 0.5, .patience = 8};
    nm_schedule resumed, fresh;
    nm_schedule_init(&resumed, &config, 1, 0);
    for (int64_t i = 0; i < 8; i++)
        nm_schedule_evaluated(&resumed, (double)i, i);
    config.patience = 2;
    nm_schedule_init(&fresh, &config, 1, 0);
    for (int64_t i = 6; i < 8; i++)
        nm_schedule_evaluated(&fresh, (double)i, i);
    resumed.config = config;
    for (int64_t i = 0; i < 2 * NM_SCHEDULE_MAX_PATIENCE; i++) {
        nm_schedule_evaluated(&resumed, (double)(i % 5), i);
        nm_schedule_evaluated(&fresh, (double)(i % 5), i);
        assert_int_equal(resumed.state.n_scores, 2);
        assert_memory_equal(resumed.state.scores, fresh.state.scores, 2 * sizeof *fresh.state.scores);
        assert_true(resumed.state.factor == fresh.state.factor);
    }
    assert_true(fresh.state.factor < 1);
}

/* Factor of the rate after the validations with these scores, the last of them after `update`. */
static double decayed(int64_t warmup, int64_t update, const double *scores, int n)
{
    const nm_schedule_config config = {
        .name = NM_SCHEDULE_VAL_DECAY, .lr = 1, .scale = 1, .decay = 0.5, .patience = 2, .warmup = warmup};
    nm_schedule schedule;
    nm_schedule_init(&schedule, &config, 64, 0);
    for (int i = 0; i < n; i++)
        nm_schedule_evaluated(&schedule, scores[i], update - n + 1 + i);
    return schedule.state.factor;
}

/* Below all of the last `patience` scores. */
static void test_a_low_score_causes_a_decay(void **state)
{
    (void)state;
    static const double below[] = {1, 5, 0.5}, between[] = {1, 5, 3}, equal[] = {1, 5, 1},
                        after[] = {0, 4, 5, 3};
    assert_true(decayed(0, 10, below, 3) == 0.5);
    assert_true(decayed(0, 10, between, 3) == 1);
    assert_true(decayed(0, 10, equal, 3) == 1);
    assert_true(decayed(0, 10, after, 4) == 0.5);
    assert_true(decayed(0, 10, below, 2) == 1);
}

static void test_no_decay_in_the_warmup(void **state)
{
    (void)state;
    static const double falling[] = {3, 2, 1};
    assert_true(decayed(10, 9, falling, 3) == 1);
    assert_true(decayed(10, 10, falling, 3) == 0.5);
}

static void test_schedules_that_need_the_planned_updates(void **state)
{
    (void)state;
    nm_schedule_config config = {.name = NM_SCHEDULE_INVERSE_SQRT};
    assert_false(nm_schedule_has_length(&config));
    config.warmup_fraction = 0.1;
    assert_true(nm_schedule_has_length(&config));
    config = (nm_schedule_config){.name = NM_SCHEDULE_LINEAR};
    assert_true(nm_schedule_has_length(&config));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_is_linear_and_ends_at_the_peak),
        cmocka_unit_test(test_warmup_as_a_fraction),
        cmocka_unit_test(test_rates_by_hand),
        cmocka_unit_test(test_cosine_starts_low_and_ends_at_zero),
        cmocka_unit_test(test_wsd_is_constant_between_warmup_and_decay),
        cmocka_unit_test(test_the_final_rate_is_a_fraction_of_the_peak),
        cmocka_unit_test(test_released_cosine_starts_at_the_full_rate),
        cmocka_unit_test(test_a_limit_of_time_ends_the_schedule),
        cmocka_unit_test(test_the_nearer_limit_counts),
        cmocka_unit_test(test_a_distant_limit_of_time),
        cmocka_unit_test(test_early_stopping_ends_the_schedule),
        cmocka_unit_test(test_first_update),
        cmocka_unit_test(test_resume_with_a_smaller_patience),
        cmocka_unit_test(test_a_low_score_causes_a_decay),
        cmocka_unit_test(test_no_decay_in_the_warmup),
        cmocka_unit_test(test_schedules_that_need_the_planned_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
