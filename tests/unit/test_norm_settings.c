/* Options of normalization types that change the formula, by arithmetic on one row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "norma/norm.h"

enum { WIDTH = 4 };

static void infer(const char *type, const char *settings, const double *x, double *y)
{
    nm_backend *backend;
    nm_norm *norm;
    nm_error err;
    const nm_backend_options options = {.name = "ref", .dtype = NM_F64};
    const nm_norm_site site = {.width = WIDTH, .groups = 1};
    assert_int_equal(nm_backend_create(&backend, &options, &err), NM_OK);
    if (nm_norm_create(&norm, backend, type, settings, &site, &err) != NM_OK)
        fail_msg("%s", err.text);
    assert_int_equal(nm_norm_infer(norm, 1, x, y, &err), NM_OK);
    nm_norm_free(norm);
    nm_backend_free(backend);
}

static void test_groups(void **state)
{
    (void)state;
    const double x[WIDTH] = {1, 3, 10, 30}, expected[WIDTH] = {-1, 1, -1, 1};
    double y[WIDTH];
    infer("group", "groups=2 epsilon=0", x, y);
    for (int i = 0; i < WIDTH; i++)
        assert_true(fabs(y[i] - expected[i]) < 1e-12);
    infer("group", "groups=0 epsilon=0", x, y); /* those of the site */
    assert_true(fabs(y[0] - (1 - 11) / sqrt((100 + 64 + 1 + 361) / 4.0)) < 1e-12);
}

static void test_alpha(void **state)
{
    (void)state;
    const double x[WIDTH] = {-2, 0, 0.5, 8};
    double y[WIDTH];
    infer("dyt", "alpha_init=0.25", x, y);
    for (int i = 0; i < WIDTH; i++)
        assert_true(fabs(y[i] - tanh(0.25 * x[i])) < 1e-12);
}

static void test_alpha_and_shift(void **state)
{
    (void)state;
    const double x[WIDTH] = {-2, 0, 0.5, 8};
    double y[WIDTH];
    infer("derf", "alpha_init=0.25 shift_init=-0.3", x, y);
    for (int i = 0; i < WIDTH; i++)
        assert_true(fabs(y[i] - erf(0.25 * x[i] - 0.3)) < 1e-12);
}

/* Only models know how long the sequences of a batch are. */
static void test_padding_needs_sequences(void **state)
{
    (void)state;
    nm_backend *backend;
    nm_norm *norm;
    nm_error err;
    const nm_backend_options options = {.name = "ref", .dtype = NM_F64};
    assert_int_equal(nm_backend_create(&backend, &options, &err), NM_OK);
    for (int i = 0; i < 4; i++) {
        const nm_norm_site site = {.width = WIDTH, .groups = 1, .sequences = i > 1};
        nm_status status =
            nm_norm_create(&norm, backend, i % 2 ? "power" : "batch", "count_padding=true", &site, &err);
        assert_int_equal(status, site.sequences ? NM_OK : NM_USAGE);
        if (status == NM_OK)
            nm_norm_free(norm);
    }
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_alpha),
                                       cmocka_unit_test(test_alpha_and_shift),
                                       cmocka_unit_test(test_padding_needs_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
