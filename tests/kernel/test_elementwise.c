/* Elementwise kernels: `vec` is bitwise identical on every CPU level, for every number of threads, to the
 * reference kernel in float; limits of the pointwise functions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernel_levels.h"

enum { MAX_N = 20011 };

static float *alloc_floats(nm_backend *backend, size_t n)
{
    void *memory;
    nm_error err;
    if (nm_backend_alloc(backend, n * sizeof(float), &memory, &err) != NM_OK)
        fail_msg("%s", err.text);
    return memory;
}

/* Normal numbers, and every 13th one of zeros, infinities and NaN. */
static float *random_floats(nm_backend *backend, uint32_t site)
{
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0.25f, 1e-40f};
    float *values = alloc_floats(backend, MAX_N);
    for (uint32_t i = 0; i < MAX_N; i++) {
        nm_random_words words = nm_random4(1, NM_RANDOM_TEST, site, 0, i);
        values[i] = i % 13 == 5 ? special[words.w[2] % 7] : (float)nm_random_normal(words.w[0], words.w[1]);
    }
    return values;
}

static bool same_floats(const float *a, const float *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static void check_vec(nm_backend *b, nm_backend *ref, const char *level)
{
    static const int32_t sizes[] = {0, 1, 3, 7, 16, 129, 512, 1023, 1024, 1025, 9001, MAX_N};
    float *in[] = {random_floats(ref, 1), random_floats(ref, 2), random_floats(ref, 3)};
    float *expected = alloc_floats(ref, MAX_N), *actual = alloc_floats(b, MAX_N + 1);
    for (int op = NM_VEC_FILL; op <= NM_VEC_POW; op++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int operands = 0; operands <= 3; operands++) {
                nm_vec_args args = {.op = (nm_vec_op)op, .n = sizes[i], .s = 0.3, .t = 0.7};
                args.a = operands > 0 ? in[0] : NULL;
                args.b = operands > 1 ? in[1] : NULL;
                args.c = operands > 2 ? in[2] : NULL;
                args.out = expected;
                ref->k.vec(ref, &args);
                actual[sizes[i]] = 77;
                args.out = actual;
                if (operands == 3) { /* in place */
                    memcpy(actual, in[0], (size_t)sizes[i] * sizeof *actual);
                    args.a = actual;
                }
                b->k.vec(b, &args);
                if (!same_floats(actual, expected, sizes[i]))
                    fail_msg("vec, operation %d on %s: not bitwise identical, n = %d, %d operands", op, level,
                             (int)sizes[i], operands);
                assert_true(actual[sizes[i]] == 77);
            }
}

static void test_vec_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < N_CPU_LEVELS; i++)
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            nm_backend *ref = level_create((nm_backend_options){.name = "ref"});
            nm_backend *b =
                level_create((nm_backend_options){.name = "cpu", .isa = cpu_levels[i], .threads = threads});
            if (b)
                check_vec(b, ref, cpu_levels[i]);
            nm_backend_free(b);
            nm_backend_free(ref);
        }
}

/* f(-inf), f(inf) and f(NaN) */
static void test_map_limits(void **state)
{
    (void)state;
    static const struct {
        nm_map_op op;
        float low, high;
    } limits[] = {
        {NM_MAP_RELU, 0, INFINITY}, {NM_MAP_TANH, -1, 1}, {NM_MAP_ERF, -1, 1}, {NM_MAP_SIGMOID, 0, 1}};
    for (int i = 0; i < N_CPU_LEVELS; i++) {
        nm_backend *b = level_create((nm_backend_options){.name = "cpu", .isa = cpu_levels[i], .threads = 1});
        if (!b)
            continue;
        float x[] = {-INFINITY, INFINITY, NAN, -30, 30}, y[5];
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            NM_CALL(b, map, .op = limits[k].op, .x = nm_mat_of(x, 1, 5), .y = nm_mat_of(y, 1, 5));
            assert_true(fabsf(y[0] - limits[k].low) < 1e-30f);
            assert_true(y[1] == limits[k].high);
            assert_true(isnan(y[2]));
            assert_true(fabsf(y[3] - limits[k].low) < 1e-12f);
            assert_true(y[4] == (limits[k].op == NM_MAP_RELU ? 30 : limits[k].high));
        }
        for (int op = NM_MAP_SILU; op <= NM_MAP_GELU_TANH; op++) {
            NM_CALL(b, map, .op = (nm_map_op)op, .x = nm_mat_of(x + 2, 1, 3), .y = nm_mat_of(y, 1, 3));
            assert_true(isnan(y[0]) && fabsf(y[1]) < 1e-10f && y[2] == 30);
        }
        nm_backend_free(b);
    }
}

/* The largest error of tanh in units in the last place, over floats from 5e-10 to 12; |tanh| <= 1. The
 * rounding of the result has 0.5, and that of the quotient, which is at most 1/4 of the result, of its
 * operands and of the exponential the rest. */
static void test_tanh_error(void **state)
{
    (void)state;
    enum { COUNT = 1 << 12, STRIDE = 911 };
    const double bound = 1.2;
    for (int i = 0; i < N_CPU_LEVELS; i++) {
        nm_backend *b = level_create((nm_backend_options){.name = "cpu", .isa = cpu_levels[i], .threads = 1});
        static float x[COUNT], y[COUNT];
        double largest = 0;
        for (uint32_t first = 0x30000000u; b && first < 0x41400000u; first += COUNT * STRIDE) {
            for (uint32_t k = 0; k < COUNT; k++) {
                uint32_t bits = (first + k * STRIDE) ^ (k % 2 << 31);
                memcpy(x + k, &bits, sizeof bits);
            }
            NM_CALL(b, map, .op = NM_MAP_TANH, .x = nm_mat_of(x, 1, COUNT), .y = nm_mat_of(y, 1, COUNT));
            for (int k = 0; k < COUNT; k++) {
                int exponent;
                double expected = tanh((double)x[k]);
                frexp(expected, &exponent);
                largest = fmax(largest, fabs((double)y[k] - expected) / ldexp(1, exponent - 24));
                assert_true(fabsf(y[k]) <= 1);
            }
        }
        if (largest > bound)
            fail_msg("%s: error of %.3f units in the last place", cpu_levels[i], largest);
        nm_backend_free(b);
    }
}

/* A NaN remains a NaN of the same sign, whatever its bits are. */
static void test_bf16_nan(void **state)
{
    (void)state;
    const uint32_t bits[] = {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC00000};
    const uint16_t expected[] = {0x7FC0, 0xFFC0, 0x7FFF, 0x7FC0};
    for (int i = 0; i <= N_CPU_LEVELS; i++) {
        const bool is_ref = i == N_CPU_LEVELS;
        nm_backend *b = level_create((nm_backend_options){
            .name = is_ref ? "ref" : "cpu", .isa = is_ref ? NULL : cpu_levels[i], .threads = 1});
        if (!b)
            continue;
        float x[4];
        uint16_t y[4];
        memcpy(x, bits, sizeof x);
        NM_CALL(b, store_bf16, .x = nm_mat_of(x, 1, 4), .y = y);
        assert_memory_equal(y, expected, sizeof y);
        nm_backend_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vec_is_exact), cmocka_unit_test(test_map_limits),
                                       cmocka_unit_test(test_tanh_error), cmocka_unit_test(test_bf16_nan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
