/* Variants and grids as norma compare is given them: what they set, and what is refused; and how the runs share the cores.
 * The program's files are in no library, so those under test are taken in here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/compare_share.c"
#include "cli/compare_variants.c"

static void has_setting(const compare_variant *variant, size_t i, const char *key, const char *value)
{
    assert_true(i < variant->n);
    assert_string_equal(variant->settings[i].key, key);
    assert_string_equal(variant->settings[i].value, value);
}

static void variants_are_settings(void **state)
{
    (void)state;
    compare_variants v = {0};
    nm_error err;
    assert_int_equal(
        compare_variants_parse(&v, "layer,,scale+fix:norm.scale.trainable=false:x.y,a+off", &err), NM_OK);
    assert_int_equal(v.n, 3);
    has_setting(&v.list[0], 0, "model.norm", "layer");
    assert_int_equal(v.list[0].n, 1);
    assert_string_equal(v.list[1].name, "scale+fix:norm.scale.trainable=false:x.y");
    has_setting(&v.list[1], 0, "model.fixnorm", "true");
    has_setting(&v.list[1], 1, "model.norm", "scale");
    has_setting(&v.list[1], 2, "norm.scale.trainable", "false");
    has_setting(&v.list[1], 3, "x.y", "true");
    has_setting(&v.list[2], 0, "model.fixnorm", "off");
    assert_int_equal(v.list[2].origin, 2);
    compare_variants_release(&v);
}

static void bad_variants(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ",", "+fix", ":a=b", "layer:=3", "layer::a=b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        compare_variants v = {0};
        nm_error err;
        assert_int_equal(compare_variants_parse(&v, bad[i], &err), NM_USAGE);
        compare_variants_release(&v);
    }
}

static void bad_grids(void **state)
{
    (void)state;
    static const char *const bad[] = {"a", "=1", "a=", "a=1,", "a=1,,2", "a=1;a=2", "b=1;c"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        compare_grid grid = {0};
        nm_error err;
        assert_int_equal(compare_grid_parse(&grid, bad[i], &err), NM_USAGE);
        compare_grid_release(&grid);
    }
}

/* layer has no lambda; the last axis runs fastest; every point keeps what its variant set. */
static void points(void **state)
{
    (void)state;
    compare_variants v = {0}, p = {0};
    compare_grid grid = {0};
    nm_error err;
    char model[] = "[model]\nnorm = x ; command line\nfinal_norm =  ; default\n";
    char *models[] = {model, model};
    assert_int_equal(compare_variants_parse(&v, "layer,rbn:norm.rbn.scale=mean", &err), NM_OK);
    assert_int_equal(compare_grid_parse(&grid, "norm.rbn.lambda=0,0.1,1;", &err), NM_OK);
    assert_int_equal(compare_grid_parse(&grid, "train.max_tokens=64,128", &err), NM_OK);
    assert_int_equal(compare_grid_expand(&grid, &v, models, &p, &err), NM_OK);
    assert_int_equal(p.n, 2 + 3 * 2);
    assert_string_equal(p.list[1].name, "layer:train.max_tokens=128");
    has_setting(&p.list[1], 1, "train.max_tokens", "128");
    assert_string_equal(p.list[2].name, "rbn:norm.rbn.scale=mean:norm.rbn.lambda=0:train.max_tokens=64");
    assert_string_equal(p.list[5].name, "rbn:norm.rbn.scale=mean:norm.rbn.lambda=0.1:train.max_tokens=128");
    has_setting(&p.list[7], 1, "norm.rbn.scale", "mean");
    has_setting(&p.list[7], 2, "norm.rbn.lambda", "1");
    has_setting(&p.list[7], 3, "train.max_tokens", "128");
    for (size_t i = 0; i < p.n; i++)
        assert_true(p.list[i].point && p.list[i].origin == (i < 2 ? 0 : 1));
    compare_grid_release(&grid);
    compare_variants_release(&v);
    compare_variants_release(&p);
}

static void axes_that_apply(void **state)
{
    (void)state;
    compare_variants v = {0}, p = {0};
    compare_grid grid = {0};
    nm_error err;
    char plain[] = "[model]\nnorm = layer ; default\n",
         mixed[] = "[model]\nnorm = layer ; default\nencoder_norm = rbn ; file\n",
         close_by[] = "[model]\nnorm = rbn2 ; default\nwidth = 1 ; rbn\n";
    char *models[] = {plain};
    assert_int_equal(compare_variants_parse(&v, "layer", &err), NM_OK);
    assert_int_equal(compare_grid_parse(&grid, "norm.rbn.lambda=0", &err), NM_OK);
    assert_false(compare_axis_applies(&grid.list[0], &v.list[0], plain));
    assert_false(compare_axis_applies(&grid.list[0], &v.list[0], close_by));
    assert_true(compare_axis_applies(&grid.list[0], &v.list[0], mixed));
    assert_int_equal(compare_grid_expand(&grid, &v, models, &p, &err), NM_USAGE);
    compare_variants_release(&p);
    models[0] = mixed;
    assert_int_equal(compare_grid_expand(&grid, &v, models, &p, &err), NM_OK);
    assert_int_equal(p.n, 1);
    assert_false(p.list[0].point); /* one value is no choice, but is set */
    has_setting(&p.list[0], 1, "norm.rbn.lambda", "0");
    compare_grid_release(&grid);
    compare_variants_release(&v);
    compare_variants_release(&p);
}

static void too_many_points(void **state)
{
    (void)state;
    compare_variants v = {0}, p = {0};
    compare_grid grid = {0};
    nm_error err;
    char model[] = "", *models[] = {model};
    assert_int_equal(compare_variants_parse(&v, "layer", &err), NM_OK);
    assert_int_equal(compare_grid_parse(&grid, "a=1,2,3,4,5,6,7,8,9,10;b=1,2,3,4,5,6,7,8,9,10", &err), NM_OK);
    assert_int_equal(compare_grid_parse(&grid, "c=1,2,3,4,5,6,7,8,9,10;d=1,2,3,4,5,6,7,8,9,10;e=1,2", &err),
                     NM_OK);
    assert_int_equal(compare_grid_expand(&grid, &v, models, &p, &err), NM_USAGE);
    compare_grid_release(&grid);
    compare_variants_release(&v);
    compare_variants_release(&p);
}

static void every_core_once(void **state)
{
    (void)state;
    for (int64_t cores = 1; cores <= 64; cores++)
        for (int64_t n = 0; n <= 40; n++) {
            compare_share s = compare_share_cores(n, 0, 0, cores);
            assert_int_equal(s.at_once * s.threads, cores);
            assert_true(s.at_once <= (n ? n : 1));
            for (int64_t more = s.at_once + 1; more <= n && more <= cores; more++)
                assert_true(cores % more); /* more at a time would leave a core idle */
            assert_int_equal(compare_share_cores(n, 0, 4, cores).threads, 4);
            assert_int_equal(compare_share_cores(n, 0, 4, cores).at_once, cores < 4 ? 1 : cores / 4);
            assert_int_equal(compare_share_cores(n, 3, 0, cores).at_once, 3);
            if (n >= 3 && cores >= 3)
                assert_true(3 * compare_share_cores(n, 3, 0, cores).threads <= cores);
            assert_true(compare_share_cores(n, 3, 0, cores).threads >= 1);
        }
    assert_int_equal(compare_share_cores(5, 0, 0, 8).at_once, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_are_settings),
        cmocka_unit_test(bad_variants),
        cmocka_unit_test(bad_grids),
        cmocka_unit_test(points),
        cmocka_unit_test(axes_that_apply),
        cmocka_unit_test(too_many_points),
        cmocka_unit_test(every_core_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
