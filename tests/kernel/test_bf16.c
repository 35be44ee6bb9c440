/* Matrix multiplications on bf16 operands: bitwise identical on `ref` and on every CPU level and number of
 * threads, for odd sizes, with packed weights, at extreme values; the exact result within the bound that
 * follows from the roundings; the loss close to that of `ref`. Tests of devices run on the emulator or, with
 * DEVICE=cuda in the environment, on a GPU. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bf16.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernel_levels.h"

static nm_backend *create(const char *name, const char *level, int32_t threads)
{
    return level_create((nm_backend_options){.name = name, .isa = level, .bf16 = true, .threads = threads});
}

static float draw(uint32_t site, size_t i)
{
    nm_random_words words = nm_random4(1, NM_RANDOM_TEST, site, 0, i);
    return (float)nm_random_normal(words.w[0], words.w[1]);
}

/* Operands of a linear layer and results of all its kernels, in one array of host memory. */
typedef struct layer {
    int32_t rows, in, out;
    float *values, *x, *weight, *bias, *dy; /* inputs */
    float *y, *dx, *dw, *packed_y;          /* outputs; dx and dw also have initial values */
    size_t n, n_inputs;
} layer;

static layer layer_create(int32_t rows, int32_t in, int32_t out, float (*value)(uint32_t site, size_t i))
{
    const size_t x = (size_t)rows * (size_t)in, y = (size_t)rows * (size_t)out, w = (size_t)out * (size_t)in;
    layer l = {.rows = rows, .in = in, .out = out, .n = 2 * (x + w) + 3 * y + (size_t)out};
    float *at = l.values = nm_allocate(l.n * sizeof *at);
    l.x = at;
    l.weight = at += x;
    l.bias = at += w;
    l.dy = at += out;
    l.y = at += y;
    l.n_inputs = (size_t)(l.y - l.values);
    l.packed_y = at += y;
    l.dx = at += y;
    l.dw = at + x;
    for (size_t i = 0; i < l.n; i++)
        l.values[i] = value(1, i);
    return l;
}

/* The copy of a part of the host array in the device array. */
static nm_mat device_mat(const layer *l, float *device, const float *part, int32_t rows, int32_t cols)
{
    return nm_mat_of(device + (part - l->values), rows, cols);
}

/* All kernels of the layer; results: [n], the whole array afterwards. */
static void run(nm_backend *b, const layer *l, const nm_dropout *drop, float *results)
{
    nm_error err;
    void *memory, *packed = NULL;
    size_t bytes = 0;
    assert_int_equal(nm_backend_alloc(b, l->n * sizeof(float), &memory, &err), NM_OK);
    nm_backend_upload(b, memory, l->values, l->n * sizeof(float));
    const nm_mat x = device_mat(l, memory, l->x, l->rows, l->in),
                 weight = device_mat(l, memory, l->weight, l->out, l->in),
                 dy = device_mat(l, memory, l->dy, l->rows, l->out);
    const void *bias = device_mat(l, memory, l->bias, 1, l->out).data;
    NM_CALL(b, linear, .x = x, .weight = weight, .bias = bias, .act = NM_ACT_RELU, .drop = drop,
            .y = device_mat(l, memory, l->y, l->rows, l->out));
    NM_CALL(b, pack, .weight = weight, .bytes = &bytes);
    if (bytes) {
        assert_int_equal(nm_backend_alloc(b, bytes, &packed, &err), NM_OK);
        NM_CALL(b, pack, .weight = weight, .packed = packed, .bytes = &bytes);
        nm_backend_register_weight(b, weight, packed);
    }
    NM_CALL(b, linear, .x = x, .weight = weight, .y = device_mat(l, memory, l->packed_y, l->rows, l->out));
    if (bytes)
        nm_backend_unregister_weight(b, packed);
    NM_CALL(b, linear_grad_input, .dy = dy, .weight = weight, .add = drop != NULL,
            .dx = device_mat(l, memory, l->dx, l->rows, l->in));
    NM_CALL(b, linear_grad_weight, .dy = dy, .x = x, .dw = device_mat(l, memory, l->dw, l->out, l->in));
    nm_backend_download(b, results, memory, l->n * sizeof(float));
    nm_backend_dealloc(b, memory);
    nm_backend_dealloc(b, packed);
}

/* NaNs are equal, zeros of different sign are not. */
static void check_same(const layer *l, const float *actual, const float *expected, const char *level,
                       int32_t threads)
{
    static const char *const names[] = {"y", "y with a packed weight", "dx", "dw"};
    const float *const parts[] = {l->y, l->packed_y, l->dx, l->dw};
    for (size_t i = 0; i < l->n; i++) {
        if (memcmp(&actual[i], &expected[i], sizeof *actual) == 0 || (isnan(actual[i]) && isnan(expected[i])))
            continue;
        int part = 3;
        while (part > 0 && l->values + i < parts[part])
            part--;
        fail_msg("%s of %d x %d x %d on %s, %d threads: element %td is %a, expected %a", names[part],
                 (int)l->rows, (int)l->in, (int)l->out, level, (int)threads, l->values + i - parts[part],
                 (double)actual[i], (double)expected[i]);
    }
}

/* Result of ref in `expected`; every CPU level gives the same with 1 to 3 threads. */
static void check_levels(const layer *l, const nm_dropout *drop, float *expected)
{
    nm_backend *ref = create("ref", "auto", 1);
    float *actual = nm_allocate(l->n * sizeof *actual);
    run(ref, l, drop, expected);
    nm_backend_free(ref);
    for (size_t i = 0; i < N_CPU_LEVELS; i++)
        for (int32_t threads = 1; threads <= 3; threads += 1 + (i == 0)) {
            nm_backend *b = create("cpu", cpu_levels[i], threads);
            if (!b)
                break;
            run(b, l, drop, actual);
            check_same(l, actual, expected, cpu_levels[i], threads);
            nm_backend_free(b);
        }
    free(actual);
}

/* Odd sizes, several chunks of 512 in each of the three depths, several row and column blocks. */
static void test_sizes(void **state)
{
    (void)state;
    static const int32_t sizes[][3] = {{1, 1, 1},      {1, 2, 3},      {3, 1, 2},     {2, 17, 16},
                                       {5, 33, 31},    {15, 64, 65},   {17, 511, 33}, {3, 513, 70},
                                       {1, 1025, 40},  {130, 129, 12}, {600, 21, 37}, {37, 19, 514},
                                       {515, 34, 129}, {12, 2051, 9}};
    const nm_dropout third = {0.3, 7, 5, 9};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        layer l = layer_create(sizes[i][0], sizes[i][1], sizes[i][2], draw);
        float *expected = nm_allocate(l.n * sizeof *expected);
        check_levels(&l, i % 2 ? &third : NULL, expected);
        free(expected);
        free(l.values);
    }
}

/* Normal numbers whose products are around the smallest normal number, denormal numbers, rounding ties,
 * zeros of both signs. */
static float tiny(uint32_t site, size_t i)
{
    nm_random_words words = nm_random4(2, NM_RANDOM_TEST, site, 0, i);
    int exponent = (int)(words.w[0] % 12);
    float sign = words.w[1] & 1 ? -1 : 1, size = 1 + (float)(words.w[2] % 1024) / 1024;
    switch (words.w[3] % 8) {
    case 0:
        return sign * 0;
    case 1:
        return sign * ldexpf(size, -130);
    case 2:
        return sign * ldexpf(size, -126 + exponent % 2);
    case 3:
        return sign * ldexpf(1 + (float)(2 * exponent + 1) / 256, -62); /* ties */
    default:
        return sign * ldexpf(size, -60 - exponent);
    }
}

/* Infinities, NaN, numbers that round to infinity, overflow of sums. */
static float huge(uint32_t site, size_t i)
{
    nm_random_words words = nm_random4(3, NM_RANDOM_TEST, site, 0, i);
    float sign = words.w[1] & 1 ? -1 : 1;
    switch (words.w[0] % 64) {
    case 0:
        return sign * INFINITY;
    case 1:
        return NAN;
    case 2:
        return sign * FLT_MAX;
    case 3:
        return sign * 1e30f;
    default:
        return draw(site, i);
    }
}

static void test_extremes(void **state)
{
    (void)state;
    float (*const values[])(uint32_t, size_t) = {tiny, huge};
    int small = 0, bad = 0;
    for (int i = 0; i < 2; i++) {
        layer l = layer_create(33, 67, 35, values[i]);
        float *expected = nm_allocate(l.n * sizeof *expected);
        check_levels(&l, NULL, expected);
        for (size_t j = l.n_inputs; j < l.n; j++) {
            small += i == 0 && fabsf(expected[j]) < 0x1p-120f && expected[j] != 0;
            bad += i == 1 && !isfinite(expected[j]);
            assert_false(i == 0 && fabsf(expected[j]) < FLT_MIN && expected[j] != 0);
        }
        free(expected);
        free(l.values);
    }
    assert_true(small > 100 && bad > 100);
}

/* One product and one sum at the limit of the normal numbers, which the test above rarely reaches: the
 * result is rounded to 24 bits before it is compared with FLT_MIN. Values of k: 0, 1, 2; those of 0 and 2 are
 * added first. */
static void test_smallest_results(void **state)
{
    (void)state;
    static const struct {
        float x[3], y[3], expected;
    } cases[] = {
        {{1, 0, 0x1p-63f}, {0x1p-126f, 0, -0x1.8p-88f}, 0},       /* FLT_MIN (1 - 0.75 2^-24): below */
        {{1, 0, 0x1p-63f}, {0x1p-126f, 0, -0x1p-89f}, 0x1p-126f}, /* FLT_MIN (1 - 0.25 2^-24): rounds up */
        {{0x1p-63f, 0, 0}, {-0x1p-70f, 0, 0}, 0},                 /* below, alone */
        {{1, 0, 0x1p-63f}, {0x1p-120f, 0, 0x1p-70f}, 0x1.0008p-120f}, /* added exactly */
        {{0x1p-63f, 0, 1}, {-0x1p-64f, 0, 0x1p-126f}, 0x1p-126f},     /* the first sum becomes 0 */
        {{1, 0, 1}, {-0x1p-126f, 0, 0x1.fep-126f}, 0},
        {{1, 1, 0x1p-24f}, {1, -1, 0x1p-1f}, 0},  /* 1 + 2^-25 is rounded before 1 is subtracted */
        {{1, 0x1p-25f, 1}, {1, 1, -1}, 0x1p-25f}, /* odd k have a separate sum */
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        layer l = layer_create(1, 3, 1, draw);
        float expected[32];
        assert_true(l.n <= 32);
        memcpy(l.x, cases[c].x, sizeof cases[c].x);
        memcpy(l.weight, cases[c].y, sizeof cases[c].y);
        *l.bias = 0;
        check_levels(&l, NULL, expected);
        float y = expected[l.packed_y - l.values];
        if (memcmp(&y, &cases[c].expected, sizeof y) != 0)
            fail_msg("case %zu: %a, expected %a", c, (double)y, (double)cases[c].expected);
        free(l.values);
    }
}

/* The padding of the last block turns the sums -0 of its even and odd products into +0: the sum of the first
 * two blocks is -0, each of the two products of the third is. */
static void test_padding(void **state)
{
    (void)state;
    enum { DEPTH = 2 * NM_BF16_BLOCK + 2 };
    float expected[4 * DEPTH + 4], zero = 0;
    layer l = layer_create(1, DEPTH, 1, draw);
    assert_true(l.n <= sizeof expected / sizeof *expected);
    memset(l.x, 0, DEPTH * sizeof *l.x);
    memset(l.weight, 0, DEPTH * sizeof *l.weight);
    l.x[0] = l.x[NM_BF16_BLOCK] = 1;
    l.weight[0] = FLT_MIN;
    l.weight[NM_BF16_BLOCK] = -1.5f * FLT_MIN;
    l.x[DEPTH - 2] = l.x[DEPTH - 1] = 0x1p-70f;
    l.weight[DEPTH - 2] = l.weight[DEPTH - 1] = -0x1p-70f;
    *l.bias = 0;
    check_levels(&l, NULL, expected);
    assert_memory_equal(&expected[l.packed_y - l.values], &zero, sizeof zero);
    free(l.values);
}

/* Operands have a relative error of at most 2^-8, and every addition one of 2^-24:
 *     |sum x w - result| <= (2 2^-8 + 2^-16 + n 2^-24) sum |x w|
 * and the errors are independent: their root mean square is about sqrt(2) 2^-8 / sqrt(12) ... of the size of
 * a product, times sqrt(n). */
static void test_bound(void **state)
{
    (void)state;
    layer l = layer_create(20, 700, 30, draw);
    float *expected = nm_allocate(l.n * sizeof *expected);
    check_levels(&l, NULL, expected);
    double errors = 0, squares = 0;
    for (int32_t r = 0; r < l.rows; r++)
        for (int32_t j = 0; j < l.out; j++) {
            double exact = 0, size = 0;
            for (int32_t c = 0; c < l.in; c++) {
                double product = (double)l.x[r * l.in + c] * (double)l.weight[j * l.in + c];
                exact += product;
                size += fabs(product);
            }
            double error = fabs((double)expected[l.packed_y - l.values + r * l.out + j] - exact);
            assert_true(error <= (0x1p-7 + 0x1p-16 + 700 * 0x1p-24) * size);
            errors += error * error;
            squares += exact * exact;
        }
    assert_true(errors > 0 && sqrt(errors / squares) < 0x1p-8);
    free(expected);
    free(l.values);
}

enum { TOKENS = 600, WORDS = 97, WIDTH = 40, LOSS_FLOATS = TOKENS * WIDTH + WORDS * WIDTH + WORDS };

typedef struct loss_results {
    double sums[2];
    float values[LOSS_FLOATS]; /* d_hidden, d_weight, d_bias */
} loss_results;

static void run_loss(nm_backend *b, loss_results *to)
{
    nm_error err;
    float inputs[(TOKENS + WORDS) * WIDTH + WORDS];
    int32_t targets[TOKENS];
    void *in, *out, *ids, *sums;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        inputs[i] = draw(4, i) / 2;
    for (int32_t i = 0; i < TOKENS; i++)
        targets[i] = i % 50 ? i * 31 % WORDS : NM_TARGET_IGNORED;
    assert_int_equal(nm_backend_alloc(b, sizeof inputs, &in, &err), NM_OK);
    assert_int_equal(nm_backend_alloc(b, sizeof to->values, &out, &err), NM_OK);
    assert_int_equal(nm_backend_alloc(b, sizeof targets, &ids, &err), NM_OK);
    assert_int_equal(nm_backend_alloc(b, sizeof to->sums, &sums, &err), NM_OK);
    nm_backend_upload(b, in, inputs, sizeof inputs);
    nm_backend_upload(b, ids, targets, sizeof targets);
    float *hidden = in, *d_hidden = out;
    NM_CALL(b, softmax_loss, .hidden = nm_mat_of(hidden, TOKENS, WIDTH),
            .weight = nm_mat_of(hidden + TOKENS * WIDTH, WORDS, WIDTH),
            .bias = hidden + (TOKENS + WORDS) * WIDTH, .targets = ids, .eps = 0.1, .grad_scale = 0.5,
            .sums = sums, .d_hidden = d_hidden, .d_weight = d_hidden + TOKENS * WIDTH,
            .d_bias = d_hidden + (TOKENS + WORDS) * WIDTH);
    nm_backend_download(b, to->values, out, sizeof to->values);
    nm_backend_download(b, to->sums, sums, sizeof to->sums);
}

/* L2 norm of the difference, relative to the norm of b. */
static double distance(const float *a, const float *b, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return difference == 0 ? 0 : sqrt(difference / size);
}

/* Every level agrees with ref in bf16 up to few operands that are rounded to the other neighbor (2^-8 of
 * their value), and differs from float as much as bf16 must. */
static void test_loss(void **state)
{
    (void)state;
    static loss_results expected, exact, actual;
    nm_backend *ref = create("ref", "auto", 1), *plain = level_create((nm_backend_options){.name = "ref"});
    run_loss(ref, &expected);
    run_loss(plain, &exact);
    double rounding = distance(expected.values, exact.values, LOSS_FLOATS);
    assert_true(rounding > 0x1p-12 && rounding < 0x1p-7);
    assert_true(fabs(expected.sums[0] - exact.sums[0]) < 1e-3 * exact.sums[0]);
    for (size_t i = 0; i < N_CPU_LEVELS; i++) {
        nm_backend *b = create("cpu", cpu_levels[i], 2);
        if (!b)
            continue;
        run_loss(b, &actual);
        double difference = distance(actual.values, expected.values, LOSS_FLOATS);
        if (difference > 0x1p-14 || fabs(actual.sums[0] - expected.sums[0]) > 1e-6 * expected.sums[0])
            fail_msg("%s: distance of the gradients %.3g, loss %.9g, expected %.9g", cpu_levels[i],
                     difference, actual.sums[0], expected.sums[0]);
        nm_backend_free(b);
    }
    nm_backend_free(ref);
    nm_backend_free(plain);
}

enum { MOST_ATTENTION = 6 * 200 * 60 };

typedef struct attention_case {
    int32_t heads, width, v_width; /* of a head */
    int32_t queries[2], keys[2];   /* of two sequences */
    bool causal;
    int32_t window;
} attention_case;

/* out, dq, dk, dv; returns their number. */
static size_t run_attention(nm_backend *b, const attention_case *c, float *results)
{
    nm_error err;
    const nm_dropout drop = {0.2, 7, 5, 9};
    const int32_t q_offsets[] = {0, c->queries[0], c->queries[0] + c->queries[1]},
                  k_offsets[] = {0, c->keys[0], c->keys[0] + c->keys[1]};
    const int32_t m = q_offsets[2], n = k_offsets[2], cols = c->heads * c->width,
                  v_cols = c->heads * c->v_width;
    const nm_packing q_packing = {.n_seqs = 2,
                                  .n_tokens = m,
                                  .longest = c->queries[c->queries[1] > c->queries[0]],
                                  .offsets = q_offsets},
                     k_packing = {.n_seqs = 2,
                                  .n_tokens = n,
                                  .longest = c->keys[c->keys[1] > c->keys[0]],
                                  .offsets = k_offsets};
    const size_t sizes[] = {
        (size_t)m * (size_t)cols,   (size_t)n * (size_t)cols,   (size_t)n * (size_t)v_cols,
        (size_t)m * (size_t)v_cols, (size_t)m * (size_t)v_cols, (size_t)m * (size_t)cols,
        (size_t)n * (size_t)cols,   (size_t)n * (size_t)v_cols, (size_t)m * (size_t)c->heads};
    enum { Q, K, V, DOUT, OUT, DQ, DK, DV, LSE, PARTS };
    float *at[PARTS];
    void *memory;
    size_t total = 0, first_result = 0;
    for (int i = 0; i < PARTS; i++)
        total += sizes[i];
    assert_true(total < MOST_ATTENTION);
    assert_int_equal(nm_backend_alloc(b, total * sizeof(float), &memory, &err), NM_OK);
    at[0] = memory;
    for (int i = 1; i < PARTS; i++)
        at[i] = at[i - 1] + sizes[i - 1];
    for (int i = 0; i < OUT; i++)
        first_result += sizes[i];
    for (size_t i = 0; i < first_result; i++)
        results[i] = draw(6, i);
    nm_backend_upload(b, memory, results, first_result * sizeof(float));
    const nm_attention_args forward = {.q = nm_mat_of(at[Q], m, cols),
                                       .k = nm_mat_of(at[K], n, cols),
                                       .v = nm_mat_of(at[V], n, v_cols),
                                       .q_packing = &q_packing,
                                       .k_packing = &k_packing,
                                       .heads = c->heads,
                                       .causal = c->causal,
                                       .window = c->window,
                                       .scale = 0.3,
                                       .drop = &drop,
                                       .out = nm_mat_of(at[OUT], m, v_cols),
                                       .lse = at[LSE]};
    b->k.attention(b, &forward);
    NM_CALL(b, attention_grad, .forward = forward, .dout = nm_mat_of(at[DOUT], m, v_cols),
            .dq = nm_mat_of(at[DQ], m, cols), .dk = nm_mat_of(at[DK], n, cols),
            .dv = nm_mat_of(at[DV], n, v_cols));
    nm_backend_download(b, results, at[OUT], (total - first_result) * sizeof(float));
    nm_backend_dealloc(b, memory);
    return total - first_result;
}

static const attention_case attention_cases[] = {
    {1, 1, 1, {1, 2}, {1, 3}, false, 0},       {2, 7, 5, {3, 9}, {3, 9}, true, 0},
    {3, 16, 33, {5, 60}, {7, 13}, false, 0},   {2, 40, 17, {121, 2}, {121, 5}, true, 0},
    {1, 64, 64, {57, 1}, {71, 1}, true, 0},    {2, 15, 16, {9, 4}, {4, 4}, true, 0},
    {1, 9, 16, {131, 3}, {331, 3}, true, 0},   {2, 7, 5, {3, 9}, {3, 9}, true, 2},
    {1, 16, 9, {421, 3}, {421, 3}, true, 150},
};

/* Odd widths and lengths, several blocks of queries and of keys, a sequence without keys for its first
 * queries. Levels agree with ref up to softmax weights that are rounded to the other neighbor; bitwise
 * identical for any number of threads. */
static void test_attention(void **state)
{
    (void)state;
    static float expected[MOST_ATTENTION], exact[MOST_ATTENTION], actual[MOST_ATTENTION],
        threaded[MOST_ATTENTION];
    nm_backend *ref = create("ref", "auto", 1), *plain = level_create((nm_backend_options){.name = "ref"});
    for (size_t c = 0; c < sizeof attention_cases / sizeof *attention_cases; c++) {
        size_t n = run_attention(ref, &attention_cases[c], expected);
        run_attention(plain, &attention_cases[c], exact);
        for (size_t i = 0; i < n; i++) /* the log of the denominator of no keys */
            if (isinf(expected[i]) && expected[i] == exact[i])
                expected[i] = exact[i] = 0;
        double rounding = distance(expected, exact, n);
        if (!(rounding > 0x1p-13 && rounding < 0x1p-6))
            fail_msg("case %zu: bf16 differs from float by %.3g", c, rounding);
        for (size_t i = 0; i < N_CPU_LEVELS; i++) {
            nm_backend *b = create("cpu", cpu_levels[i], 1), *three = create("cpu", cpu_levels[i], 3);
            if (!b)
                continue;
            run_attention(b, &attention_cases[c], actual);
            run_attention(three, &attention_cases[c], threaded);
            assert_memory_equal(actual, threaded, n * sizeof *actual);
            for (size_t j = 0; j < n; j++)
                actual[j] = isinf(actual[j]) ? 0 : actual[j];
            double difference = distance(actual, expected, n);
            if (!(difference < 0x1p-11))
                fail_msg("case %zu, %s: differs from ref by %.3g", c, cpu_levels[i], difference);
            nm_backend_free(b);
            nm_backend_free(three);
        }
    }
    nm_backend_free(ref);
    nm_backend_free(plain);
}

/* DEVICE_CACHE: folder of the kernels compiled for a GPU */
static nm_backend *create_device(bool own_gemm)
{
    const char *name = getenv("DEVICE");
    nm_backend *b = level_create((nm_backend_options){
        .name = name ? name : "emulated", .own_gemm = own_gemm, .cache = getenv("DEVICE_CACHE")});
    b->bf16 = true;
    return b;
}

static bool is_emulated(const nm_backend *b)
{
    return !strcmp(b->name, "emulated");
}

/* Tensor cores add in another order than ref. */
static void test_device_attention(void **state)
{
    (void)state;
    static float expected[MOST_ATTENTION], actual[MOST_ATTENTION];
    nm_backend *ref = create("ref", "auto", 1), *b = create_device(true);
    for (size_t c = 0; c < sizeof attention_cases / sizeof *attention_cases; c++) {
        const size_t n = run_attention(ref, &attention_cases[c], expected);
        run_attention(b, &attention_cases[c], actual);
        for (size_t i = 0; i < n; i++) {
            if (isinf(expected[i]) && expected[i] == actual[i])
                expected[i] = actual[i] = 0;
        }
        const double difference = distance(actual, expected, n);
        if (!(difference < 0x1p-11))
            fail_msg("case %zu, %s: differs from ref by %.3g", c, b->name, difference);
    }
    nm_backend_free(ref);
    nm_backend_free(b);
}

/* Products on the device and by ref at odd sizes, with more than one tile and chunk in each direction.
 * limit: largest difference */
static void check_products(nm_backend *b, float (*value)(uint32_t site, size_t i), double limit)
{
    static const int32_t sizes[][3] = {{1, 1, 1}, {5, 33, 31}, {17, 511, 33}, {130, 129, 12}, {67, 300, 70}};
    const nm_dropout third = {0.3, 7, 5, 9};
    nm_backend *ref = create("ref", "auto", 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        layer l = layer_create(sizes[i][0], sizes[i][1], sizes[i][2], value);
        float *expected = nm_allocate(2 * l.n * sizeof *expected), *actual = expected + l.n;
        const float *const ends[] = {l.y, l.packed_y, l.dx, l.dw, l.values + l.n};
        run(ref, &l, i % 2 ? &third : NULL, expected);
        run(b, &l, i % 2 ? &third : NULL, actual);
        for (int part = 0; part < 4; part++) {
            const size_t at = (size_t)(ends[part] - l.values), n = (size_t)(ends[part + 1] - ends[part]);
            const double difference = distance(actual + at, expected + at, n);
            if (!(difference <= limit))
                fail_msg("size %zu, part %d, %s: differs from ref by %.3g", i, part, b->name, difference);
        }
        free(expected);
        free(l.values);
    }
    nm_backend_free(ref);
}

static float whole(uint32_t site, size_t i)
{
    return rintf(3 * draw(site, i));
}

/* As ref, but for the order of the sums and, on a GPU, their rounding: of the at most 38 steps of a sum, each
 * may cut off 2^-23 of it. Sums of integers are exact in every order. On a GPU also by cuBLASLt. */
static void test_device_products(void **state)
{
    (void)state;
    nm_backend *first = create_device(true);
    const bool emulated = is_emulated(first);
    nm_backend_free(first);
    for (int own = emulated; own < 2; own++) {
        nm_backend *b = create_device(own);
        check_products(b, draw, emulated ? 0x1p-21 : 0x1p-17);
        check_products(b, whole, 0);
        nm_backend_free(b);
    }
}

static void test_float64_is_rejected(void **state)
{
    (void)state;
    nm_backend *b;
    nm_error err;
    const nm_backend_options options = {.name = "ref", .dtype = NM_F64, .bf16 = true};
    assert_int_equal(nm_backend_create(&b, &options, &err), NM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "bf16"));
    b = create("ref", "auto", 1);
    char text[100];
    nm_backend_describe(b, text, sizeof text);
    assert_non_null(strstr(text, "bf16"));
    nm_backend_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_smallest_results),
                                       cmocka_unit_test(test_padding),
                                       cmocka_unit_test(test_bound),
                                       cmocka_unit_test(test_loss),
                                       cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_device_attention),
                                       cmocka_unit_test(test_device_products),
                                       cmocka_unit_test(test_float64_is_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
