/* Parts of norms that depend on the number of the update: the moving average and the limit of r of MABN, the
 * ramp of d of Batch Renormalization. Every batch is constant apart from its sign, so that all statistics
 * have a closed form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "near.h"
#include "norma/norm_type.h"

enum { ROWS = 4, WIDTH = 2, N = ROWS * WIDTH };

typedef struct layer {
    nm_backend *backend;
    nm_norm *norm;
    double y[N];
} layer;

static layer create(const char *type, const char *settings)
{
    static const nm_norm_site site = {.name = "norm", .width = WIDTH, .groups = 1};
    const nm_backend_options options = {.name = "ref", .dtype = NM_F64, .threads = 1};
    layer made = {0};
    nm_error err = {0};
    assert_int_equal(nm_backend_create(&made.backend, &options, &err), NM_OK);
    if (nm_norm_create(&made.norm, made.backend, type, settings, &site, &err) != NM_OK)
        fail_msg("%s", err.text);
    return made;
}

static void release(layer *made)
{
    nm_norm_free(made->norm);
    nm_backend_free(made->backend);
}

/* An update with the values mean + size and mean - size in turn; returns the first output. */
static double update(layer *made, double mean, double size)
{
    double x[N], dy[N] = {0}, dx[N];
    nm_error err;
    for (int i = 0; i < N; i++)
        x[i] = i / WIDTH % 2 ? mean - size : mean + size;
    assert_int_equal(nm_norm_forward(made->norm, ROWS, x, made->y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(made->norm, dy, dx, &err), NM_OK);
    return made->y[0];
}

/* y = x / sqrt(v): v is the mean square of this batch in the first L updates, then the mean over the last L
 * updates. */
static void test_moving_average_of_mabn(void **unused)
{
    (void)unused;
    static const double sizes[] = {1, 2, 3, 5, 4, 0.5, 6};
    enum { L = 3 };
    layer made = create("mabn", "window=3 warmup=0 epsilon=0 r_hold=1000");
    for (int t = 0; t < 7; t++) {
        double square = sizes[t] * sizes[t];
        if (t >= L)
            square = (sizes[t] * sizes[t] + sizes[t - 1] * sizes[t - 1] + sizes[t - 2] * sizes[t - 2]) / L;
        assert_near(update(&made, 0, sizes[t]), sizes[t] / sqrt(square), 1e-12);
    }
    release(&made);
}

/* y = r x / sqrt(v),  r = clip(sqrt(v) / sqrt(running_var), 1 / r_limit, r_limit),  running_var = 1 as decay
 *                     = 1. */
static void test_limit_of_r_of_mabn(void **unused)
{
    (void)unused;
    layer made = create("mabn", "window=16 warmup=0 epsilon=0 r_hold=1 r_limit=4 decay=1");
    assert_near(update(&made, 0, 3), 1, 1e-12); /* held */
    assert_near(update(&made, 0, 3), 3, 1e-12);
    assert_near(update(&made, 0, 4.5), 4, 1e-12);
    assert_near(update(&made, 0, 100), 4, 1e-12);
    assert_near(update(&made, 0, 0.5), 0.5, 1e-12);
    assert_near(update(&made, 0, 0.01), 0.25, 1e-12);
    release(&made);
}

/* y = r z + d,  z = 1 or -1,  d = clip(mean, -dmax(n), dmax(n)) as the running values stay 0 and 1,
 * dmax(n) = 0 until update 2, 3 (n - 2) / 6 until update 8, then 3. */
static void test_ramps_of_batch_renormalization(void **unused)
{
    (void)unused;
    layer made =
        create("renorm",
               "decay=1 epsilon=0 ramp_start=2 r_ramp_end=6 d_ramp_end=8 r_max=3 d_max=3 shorten_ramp=false");
    for (int n = 0; n < 12; n++) {
        double d_max = n <= 2 ? 0 : n < 8 ? 3 * (n - 2) / 6.0 : 3;
        double r_max = n <= 2 ? 1 : n < 6 ? 1 + 2 * (n - 2) / 4.0 : 3;
        double mean = n % 2 ? 10 : -10, size = n % 3 ? 50 : 0.001;
        double r = size > 1 ? r_max : 1 / r_max, d = mean > 0 ? d_max : -d_max;
        assert_near(update(&made, mean, size), r + d, 1e-9);
    }
    release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moving_average_of_mabn),
        cmocka_unit_test(test_limit_of_r_of_mabn),
        cmocka_unit_test(test_ramps_of_batch_renormalization),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
