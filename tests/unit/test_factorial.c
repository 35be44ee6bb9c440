/* Factorial comparisons: the cells of factors, and effects that are computed manually. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "experiment/factorial.h"
#include "base/bootstrap.h"

static void test_cells_are_variants_and_rates_a_grid(void **state)
{
    (void)state;
    nm_factorial f = {0};
    nm_error err;
    assert_int_equal(nm_factorial_parse(&f, "norm=scale+fix,power; site=pre,post ;lr=0.001,0.002", &err),
                     NM_OK);
    assert_int_equal(f.n_cells, 4);
    assert_string_equal(f.norms, "scale+fix/pre=scale+fix:model.norm_position={pre},"
                                 "scale+fix/post=scale+fix:model.norm_position={post},"
                                 "power/pre=power:model.norm_position={pre},"
                                 "power/post=power:model.norm_position={post}");
    assert_string_equal(f.rates, "schedule.lr=0.001,0.002");
    nm_variants variants = {0};
    assert_int_equal(nm_variants_parse(&variants, f.norms, &err), NM_OK);
    assert_int_equal(variants.n, 4);
    nm_variants_release(&variants);
    nm_factorial_release(&f);
    /* a value with a comma, and no norm */
    assert_int_equal(
        nm_factorial_parse(&f, "norm.at={enc.0=batch,enc.1=rms},enc.0=rms;model.width=64,128", &err), NM_OK);
    assert_non_null(
        strstr(f.norms, "enc.0_batch_enc.1_rms/64=recipe:norm.at={enc.0=batch,enc.1=rms}:model.width={64}"));
    nm_factorial_release(&f);
}

static void test_a_norm_has_a_label_and_settings(void **state)
{
    (void)state;
    nm_factorial f = {0};
    nm_error err;
    assert_int_equal(
        nm_factorial_parse(
            &f, "norm=layer,at=batch:model.norm_position=sub:norm.at={enc.0=none};model.init=x=y,z", &err),
        NM_OK);
    assert_string_equal(f.norms, "layer/x_y=layer:model.init={x=y},layer/z=layer:model.init={z},"
                                 "at/x_y=batch:model.norm_position=sub:norm.at={enc.0=none}:model.init={x=y},"
                                 "at/z=batch:model.norm_position=sub:norm.at={enc.0=none}:model.init={z}");
    nm_factorial_compute(&f, (const nm_run_result *[4]){0}, 1, 0);
    assert_string_equal(f.effects[0].contrast, "at - layer");
    assert_string_equal(f.effects[0].level, "at");
    assert_null(f.effects[0].second_level);
    assert_string_equal(f.effects[2].contrast, "(at - layer) x (z - x=y)");
    assert_string_equal(f.effects[2].level, "at");
    assert_string_equal(f.effects[2].second_level, "z");
    nm_factorial_release(&f);
}

static void test_wrong_factors_are_errors(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"width=1,2", "unknown factor width"},       {"norm=layer", "norm has one level"},
        {"norm=layer,layer", "level layer twice"},   {"lr=0.1,0.2", "no factors"},
        {"norm=layer,rms;norm=a,b", "listed twice"}, {"norm", "expected KEY=VALUE"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_factorial f = {0};
        nm_error err;
        assert_int_equal(nm_factorial_parse(&f, cases[i][0], &err), NM_USAGE);
        assert_non_null(strstr(err.text, cases[i][1]));
        nm_factorial_release(&f);
    }
}

/* Three seeds; the third one is missing in a cell. Values of layer/pre, layer/post, power/pre, power/post. */
static void test_effects_are_those_of_the_cells(void **state)
{
    (void)state;
    enum { CELLS = 4, SEEDS = 4 };
    const double values[CELLS][SEEDS] = {
        {10, 11, 12, 50}, {12, 14, 13, 50}, {13, 13, 16, 0}, {18, 20, 20, 50}};
    nm_factorial f = {0};
    nm_error err;
    nm_run_result results[CELLS * SEEDS] = {0};
    const nm_run_result *runs[CELLS * SEEDS];
    double *draws = nm_allocate((size_t)nm_bootstrap_default().n_resamples * sizeof *draws);
    for (size_t c = 0; c < CELLS; c++)
        for (size_t s = 0; s < SEEDS; s++) {
            results[c * SEEDS + s].value = values[c][s];
            results[c * SEEDS + s].draws = draws; /* equal: no variance over segments */
            runs[c * SEEDS + s] = c == 2 && s == 3 ? NULL : &results[c * SEEDS + s];
        }
    assert_int_equal(nm_factorial_parse(&f, "norm=layer,power;site=pre,post", &err), NM_OK);
    nm_factorial_compute(&f, runs, SEEDS, 2);
    assert_int_equal(f.n_effects, 3);
    /* norm by seeds: 4.5, 4, 5.5; site: 3.5, 5, 2.5; interaction: 3, 4, 3 */
    const double expected[] = {14.0 / 3, 11.0 / 3, 10.0 / 3};
    const char *const terms[] = {"norm", "site", "norm x site"};
    for (int k = 0; k < 3; k++) {
        assert_true(fabs(f.effects[k].effect - expected[k]) < 1e-12);
        assert_string_equal(f.effects[k].term, terms[k]);
        assert_int_equal(f.effects[k].seeds, 3);
    }
    assert_string_equal(f.effects[2].contrast, "(power - layer) x (post - pre)");
    /* interaction: sd 1/sqrt(3), t = (10/3) / (1/3) = 10 with 2 degrees of freedom: R: 2 * pt(-10, 2) */
    assert_true(fabs(f.effects[2].deviation - 1 / sqrt(3)) < 1e-12);
    assert_true(fabs(f.effects[2].p - 0.00985245) < 1e-7);
    assert_true(fabs(f.effects[2].low - (10.0 / 3 - 4.30265272991 / 3)) < 1e-8);
    /* norm: t = (14/3) / (sqrt(7/12) / sqrt(3)) = 10.583: p 0.0088093, the smallest: three times with Holm */
    assert_true(fabs(f.effects[0].p_holm - 3 * f.effects[0].p) < 1e-12);
    assert_true(fabs(f.effects[2].p_holm - fmax(2 * f.effects[2].p, f.effects[0].p_holm)) < 1e-12);
    /* the noisiest factor needs the most seeds */
    assert_true(f.effects[1].seeds_needed > f.effects[0].seeds_needed && f.effects[0].seeds_needed >= 2);
    nm_factorial_release(&f);
    free(draws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells_are_variants_and_rates_a_grid),
        cmocka_unit_test(test_a_norm_has_a_label_and_settings),
        cmocka_unit_test(test_wrong_factors_are_errors),
        cmocka_unit_test(test_effects_are_those_of_the_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
