/* Int8 linear layers: bitwise identical on every CPU level, independent of the other rows, at extreme
 * values; within a bound of the float result derived from the roundings; quantization is idempotent. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/random.h"
#include "kernel_levels.h"

static nm_backend *create(const char *name, const char *level)
{
    return level_create((nm_backend_options){.name = name, .isa = level, .threads = 1});
}

static float draw(uint32_t site, size_t i)
{
    nm_random_words words = nm_random4(1, NM_RANDOM_TEST, site, 0, i);
    return (float)nm_random_normal(words.w[0], words.w[1]);
}

static void fill(float *to, size_t n, uint32_t site)
{
    for (size_t i = 0; i < n; i++)
        to[i] = draw(site, i);
}

/* Operands of a linear layer in host memory. */
typedef struct linear_case {
    int32_t rows, in, out;
    float *x, *weight, *bias, *y;
} linear_case;

static linear_case product_create(int32_t rows, int32_t in, int32_t out)
{
    size_t n = (size_t)rows * (size_t)in, m = (size_t)out * (size_t)in;
    linear_case p = {.rows = rows, .in = in, .out = out};
    p.x = nm_allocate((n + 1) * sizeof(float));
    p.weight = nm_allocate((m + 1) * sizeof(float));
    p.bias = nm_allocate((size_t)out * sizeof(float));
    p.y = nm_allocate((size_t)rows * (size_t)out * sizeof(float));
    fill(p.x, n, 1);
    fill(p.weight, m, 2);
    fill(p.bias, (size_t)out, 3);
    return p;
}

static void product_release(linear_case *p)
{
    free(p->x);
    free(p->weight);
    free(p->bias);
    free(p->y);
}

static void *upload(nm_backend *b, const void *data, size_t bytes)
{
    void *memory;
    nm_error err;
    assert_int_equal(nm_backend_alloc(b, bytes, &memory, &err), NM_OK);
    if (data)
        nm_backend_upload(b, memory, data, bytes);
    return memory;
}

static void *packed(nm_backend *b, const float *weight, int32_t out, int32_t in, size_t *bytes)
{
    void *device = upload(b, weight, (size_t)out * (size_t)in * sizeof(float));
    nm_mat mat = nm_mat_of(device, out, in);
    NM_CALL(b, pack_int8, .weight = mat, .bytes = bytes);
    void *form = upload(b, NULL, *bytes);
    NM_CALL(b, pack_int8, .weight = mat, .packed = form, .bytes = bytes);
    nm_backend_dealloc(b, device);
    return form;
}

/* y of the rows first .. first + rows - 1 of x. */
static void run(nm_backend *b, const linear_case *p, int32_t first, int32_t rows, float *y)
{
    size_t bytes, n = (size_t)rows * (size_t)p->in, m = (size_t)rows * (size_t)p->out;
    void *form = packed(b, p->weight, p->out, p->in, &bytes);
    void *x = upload(b, p->x + (size_t)first * (size_t)p->in, n * sizeof(float));
    void *bias = upload(b, p->bias, (size_t)p->out * sizeof(float));
    void *out = upload(b, NULL, m * sizeof(float));
    const nm_int8 weight = {form, p->out, p->in, 0};
    NM_CALL(b, linear_int8, .x = nm_mat_of(x, rows, p->in), .weight = &weight, .bias = bias,
            .y = nm_mat_of(out, rows, p->out));
    nm_backend_download(b, y, out, m * sizeof(float));
    void *const memory[] = {form, x, bias, out};
    for (int i = 0; i < 4; i++)
        nm_backend_dealloc(b, memory[i]);
}

/* NaNs are equal. */
static void check_same(const float *actual, const float *expected, size_t n, const char *what,
                       const char *level)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&actual[i], &expected[i], sizeof *actual) != 0 &&
            !(isnan(actual[i]) && isnan(expected[i])))
            fail_msg("%s, %s: element %zu is %.9g, expected %.9g", what, level, i, (double)actual[i],
                     (double)expected[i]);
}

/* Result of ref in p->y; every CPU level gives the same, for all rows at once and for the last row. */
static void check_levels(const linear_case *p, const char *what)
{
    nm_backend *ref = create("ref", "auto");
    size_t n = (size_t)p->rows * (size_t)p->out, last = n - (size_t)p->out;
    float *y = nm_allocate(n * sizeof *y);
    run(ref, p, 0, p->rows, p->y);
    nm_backend_free(ref);
    for (size_t i = 0; i < N_CPU_LEVELS; i++) {
        nm_backend *b = create("cpu", cpu_levels[i]);
        if (!b)
            continue;
        run(b, p, 0, p->rows, y);
        check_same(y, p->y, n, what, cpu_levels[i]);
        run(b, p, p->rows - 1, 1, y);
        check_same(y, p->y + last, (size_t)p->out, "the last row alone", cpu_levels[i]);
        nm_backend_free(b);
    }
    free(y);
}

static void test_sizes(void **state)
{
    (void)state;
    static const int32_t ins[] = {1, 3, 4, 5, 63, 64, 65, 130}, outs[] = {1, 15, 16, 17, 33, 100};
    static const int32_t sizes[] = {1, 2, 3, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 81};
    for (int i = 0; i < 8; i++)
        for (int j = i % 3; j < 19; j += 3) {
            linear_case p = product_create(sizes[j], ins[i], outs[(i + j) % 6]);
            check_levels(&p, "linear_int8");
            product_release(&p);
        }
}

static void fill_row(float *x, int32_t row, int32_t n, float value)
{
    for (int32_t i = 0; i < n; i++)
        x[(size_t)row * (size_t)n + (size_t)i] = value;
}

static void test_extremes(void **state)
{
    (void)state;
    enum { IN = 37, OUT = 19, ROWS = 9 };
    linear_case p = product_create(ROWS, IN, OUT);
    fill_row(p.x, 0, IN, 0);
    fill_row(p.x, 1, IN, 0x1p-101f); /* below the smallest scale */
    fill_row(p.x, 2, IN, -0.0f);
    p.x[3 * IN + 5] = NAN;
    p.x[4 * IN + 36] = -INFINITY;
    p.x[5 * IN] = 1e30f;
    fill_row(p.x, 6, IN, 0x1p-100f);
    fill_row(p.x, 7, IN, -3.5f);
    fill_row(p.weight, 2, IN, 0);
    p.weight[3 * IN + 7] = NAN;
    p.weight[4 * IN + 1] = INFINITY;
    fill_row(p.weight, 5, IN, FLT_MIN / 4);
    fill_row(p.weight, 6, IN, -1.25f);
    check_levels(&p, "extreme values");
    for (int j = 0; j < OUT; j++) {
        bool bad = j == 3 || j == 4; /* rows of the weight that are not finite affect their output only */
        for (int r = 0; r < ROWS; r++)
            assert_int_equal(isnan(p.y[r * OUT + j]), bad || r == 3 || r == 4);
        for (int r = 0; r < 3 && !bad; r++)
            assert_true(p.y[r * OUT + j] == p.bias[j]);
        if (j == 2 || j == 5)
            assert_true(p.y[8 * OUT + j] == p.bias[j]);
    }
    /* equal values are exact up to the scale (17 bits) and the rounding to float */
    double equal = 3.5 * 1.25 * IN + (double)p.bias[6];
    assert_true(fabs((double)p.y[7 * OUT + 6] - equal) < 1.1 * 0x1p-16 * equal);
    /* with one very large value the other ones are quantized to 0 */
    double most = 0;
    for (int c = 0; c < IN; c++)
        most = fmax(most, fabs((double)p.weight[8 * IN + c]));
    assert_true(fabs((double)p.y[5 * OUT + 8] / 1e30 - (double)p.weight[8 * IN]) < most / 127);
    product_release(&p);
}

/* The largest sums do not overflow; a wider weight has no packed layout. */
static void test_widest(void **state)
{
    (void)state;
    linear_case p = product_create(2, NM_INT8_COLS, 3);
    fill_row(p.x, 0, NM_INT8_COLS, 2);
    fill_row(p.x, 1, NM_INT8_COLS, -2);
    fill_row(p.weight, 0, NM_INT8_COLS, 1);
    fill_row(p.weight, 1, NM_INT8_COLS, -1);
    check_levels(&p, "the widest weight");
    for (int i = 0; i < 4; i++) {
        double expected = ((i / 2 ^ i % 2) ? -2.0 : 2.0) * NM_INT8_COLS;
        assert_true(fabs((double)p.y[i / 2 * 3 + i % 2] - expected) < 1e-4 * fabs(expected));
    }
    product_release(&p);
    nm_backend *ref = create("ref", "auto");
    float number = 1;
    size_t bytes = 1;
    NM_CALL(ref, pack_int8, .weight = nm_mat_of(&number, 1, NM_INT8_COLS + 1), .bytes = &bytes);
    assert_int_equal(bytes, 0);
    nm_backend_free(ref);
}

/* Bound of the difference from float.
 * With w' = s q and x' = t p, |w - w'| <= s/2 and |x - x'| <= t (1/2 + e): the quotient before the rounding
 * of x has two roundings of at most 127 2^-24 each, e = 2^-16 covers them. So
 *     |sum x w - sum x' w'| <= sum |x| |w - w'| + |x - x'| |w'| <= s/2 sum |x| + t (1/2 + e) sum |w'|
 * and the roundings after the sum (to float, two multiplications, the bias) add 4 2^-24 of the largest
 * value. s is max |w| / 127 rounded up by at most 2^-16 of itself. */
static double bound_of(const linear_case *p, int32_t r, int32_t j)
{
    const float *x = p->x + (size_t)r * (size_t)p->in, *w = p->weight + (size_t)j * (size_t)p->in;
    double sum_x = 0, sum_w = 0, most_x = 0, most_w = 0;
    for (int32_t c = 0; c < p->in; c++) {
        sum_x += fabs((double)x[c]);
        sum_w += fabs((double)w[c]);
        most_x = fmax(most_x, fabs((double)x[c]));
        most_w = fmax(most_w, fabs((double)w[c]));
    }
    double s = most_w / 127 * (1 + 0x1p-16), t = most_x / 127;
    sum_w += p->in * s / 2;
    double after = 4 * 0x1p-24 * (sum_w * (most_x + t) + fabs((double)p->bias[j]));
    return s / 2 * sum_x + t * (0.5 + 0x1p-16) * sum_w + after;
}

static void test_bound(void **state)
{
    (void)state;
    enum { IN = 256, OUT = 301, ROWS = 15 };
    linear_case p = product_create(ROWS, IN, OUT);
    p.x[7] *= 40; /* an outlier, as in hidden vectors of trained models */
    check_levels(&p, "bound");
    double worst = 0, share = 0, squares = 0, size = 0;
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t j = 0; j < OUT; j++) {
            double exact = (double)p.bias[j];
            for (int32_t c = 0; c < IN; c++)
                exact += (double)p.x[r * IN + c] * (double)p.weight[j * IN + c];
            double error = fabs((double)p.y[r * OUT + j] - exact);
            share = fmax(share, error / bound_of(&p, r, j));
            worst = fmax(worst, error);
            squares += error * error;
            size += exact * exact;
        }
    if (share > 1)
        fail_msg("an error of %.3g times the bound", share);
    assert_true(worst > 0);
    /* independent roundings: s^2/12 sum x^2 + t^2/12 sum w^2 per element, about 2 % of y here; twice that
     * is an error */
    assert_true(sqrt(squares / size) < 0.04);
    product_release(&p);
}

static void test_rounding(void **state)
{
    (void)state;
    enum { ROWS = 33, COLS = 70, N = ROWS * COLS };
    nm_backend *b = create("ref", "auto");
    float before[N], once[N], twice[N];
    size_t bytes;
    for (size_t i = 0; i < N; i++)
        before[i] = ldexpf(draw(9, i), (int)(i / COLS) * 5 - 80);
    void *device = upload(b, before, sizeof before);
    NM_CALL(b, round_int8, .m = nm_mat_of(device, ROWS, COLS));
    nm_backend_download(b, once, device, sizeof once);
    NM_CALL(b, round_int8, .m = nm_mat_of(device, ROWS, COLS));
    nm_backend_download(b, twice, device, sizeof twice);
    assert_memory_equal(once, twice, sizeof once);
    void *form = packed(b, before, ROWS, COLS, &bytes), *again = packed(b, once, ROWS, COLS, &bytes);
    assert_memory_equal(form, again, bytes);
    for (int r = 0; r < ROWS; r++) {
        float most = 0;
        for (int c = 0; c < COLS; c++)
            most = fmaxf(most, fabsf(before[r * COLS + c]));
        for (int c = 0; c < COLS; c++)
            assert_true(fabsf(once[r * COLS + c] - before[r * COLS + c]) <= most / 254 * (1 + 0x1p-15f));
    }
    nm_backend_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_widest), cmocka_unit_test(test_bound),
                                       cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
