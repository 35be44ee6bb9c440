/* Norms of a token whose squares are above the range of float: every CPU level agrees with the reference
 * implementation, in which the sums are double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/random.h"
#include "kernel/kernel_levels.h"

enum { ROWS = 3, COLS = 37, N = ROWS * COLS };

static const nm_token_norm specs[] = {
    {.kind = NM_TOKEN_CENTER, .groups = 1, .eps = 1e-5},
    {.kind = NM_TOKEN_CENTER_UNBIASED, .groups = 1, .eps = 1e-5},
    {.kind = NM_TOKEN_RMS, .groups = 1, .eps = 1e-5},
    {.kind = NM_TOKEN_RMS_OUTSIDE, .groups = 1, .eps = 1e-5},
    {.kind = NM_TOKEN_L2, .groups = 1, .eps = 1e-5},
    {.kind = NM_TOKEN_L2, .groups = 1, .eps = 1e-5, .power = 1},
    {.kind = NM_TOKEN_CENTER_OUTSIDE, .groups = 1, .eps = 1e-5},
    {.kind = NM_TOKEN_RMS_OUTSIDE, .groups = 1, .eps = 1e-5, .n_used = 5},
    {.kind = NM_TOKEN_CENTER, .groups = 1, .eps = 1e-5, .ada_c = 1, .ada_k = 0.1}};
enum { N_SPECS = sizeof specs / sizeof *specs };

typedef struct result {
    float y[N], scale[ROWS], dx[N], pooled[N]; /* pooled: with the row scale of PowerNorm */
} result;

static void *upload(nm_backend *b, const void *values, size_t bytes)
{
    void *memory;
    nm_error err;
    assert_int_equal(nm_backend_alloc(b, bytes, &memory, &err), NM_OK);
    nm_backend_upload(b, memory, values, bytes);
    return memory;
}

static void compute(nm_backend *b, const nm_token_norm *spec, const float *x, const float *dy, result *out)
{
    static const float zero[N];
    float *in = upload(b, x, N * sizeof *x), *up = upload(b, dy, N * sizeof *dy);
    float *y = upload(b, zero, sizeof zero), *dx = upload(b, zero, sizeof zero),
          *scale = upload(b, zero, ROWS * sizeof *zero), *shift = upload(b, zero, ROWS * sizeof *zero);
    const nm_feature_norm scaling = {.groups = 1, .eps = 1e-5};
    NM_CALL(b, token_norm, .spec = spec, .x = nm_mat_of(in, ROWS, COLS), .y = nm_mat_of(y, ROWS, COLS),
            .scale = scale, .shift = shift);
    nm_backend_download(b, out->y, y, sizeof out->y);
    nm_backend_download(b, out->scale, scale, sizeof out->scale);
    NM_CALL(b, token_norm_grad, .spec = spec, .dy = nm_mat_of(up, ROWS, COLS), .x = nm_mat_of(in, ROWS, COLS),
            .scale = scale, .shift = shift, .dx = nm_mat_of(dx, ROWS, COLS));
    nm_backend_download(b, out->dx, dx, sizeof out->dx);
    NM_CALL(b, feature_norm, .spec = &scaling, .x = nm_mat_of(in, ROWS, COLS), .row_scale = scale,
            .y = nm_mat_of(y, ROWS, COLS));
    nm_backend_download(b, out->pooled, y, sizeof out->pooled);
    float *all[] = {in, up, y, dx, scale, shift};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        nm_backend_dealloc(b, all[i]);
}

static void assert_close(const char *level, int kind, const float *actual, const float *expected, int n)
{
    float largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(expected[i]));
    assert_true(largest > 0 && isfinite(largest));
    for (int i = 0; i < n; i++)
        if (!(fabsf(actual[i] - expected[i]) <= 1e-5f * largest))
            fail_msg("%s, kind %d, element %d: %g, expected %g", level, kind, i, (double)actual[i],
                     (double)expected[i]);
}

static void test_squares_above_the_range_of_float(void **state)
{
    (void)state;
    nm_backend *ref = level_create((nm_backend_options){.name = "ref", .dtype = NM_F32});
    float x[N], dy[N];
    for (uint64_t i = 0; i < N; i++) {
        nm_random_words words = nm_random4(7, NM_RANDOM_TEST, 0, 0, i);
        x[i] = 3e20f * (float)nm_random_normal(words.w[0], words.w[1]);
        dy[i] = (float)nm_random_normal(words.w[2], words.w[3]);
    }
    for (int l = 0; l < N_CPU_LEVELS; l++) {
        nm_backend *b = level_create((nm_backend_options){.name = "cpu", .isa = cpu_levels[l], .threads = 1});
        for (int k = 0; b && k < N_SPECS; k++) {
            result actual, expected;
            compute(b, &specs[k], x, dy, &actual);
            compute(ref, &specs[k], x, dy, &expected);
            assert_close(cpu_levels[l], k, actual.y, expected.y, N);
            assert_close(cpu_levels[l], k, actual.scale, expected.scale, ROWS);
            assert_close(cpu_levels[l], k, actual.dx, expected.dx, N);
            assert_close(cpu_levels[l], k, actual.pooled, expected.pooled, N);
        }
        if (b)
            nm_backend_free(b);
    }
    nm_backend_free(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_squares_above_the_range_of_float)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
