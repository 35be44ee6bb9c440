/* Results of a row do not depend on the other rows: GEMM, attention, norms and gated linear units are bitwise
 * identical whether a row, a query or a sequence is computed alone or in a batch, on every CPU level; and at
 * sizes that use several threads, for one, two and three threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/random.h"
#include "kernel_levels.h"

enum { ROWS = 301, IN = 600, OUT = 333, WORDS = 700, HEADS = 4, WIDTH = 64, LENGTH = 21 };

static nm_backend *create(const char *level, int32_t threads)
{
    return level_create((nm_backend_options){.name = "cpu", .isa = level, .threads = threads});
}

static float *alloc_floats(nm_backend *backend, size_t floats, uint32_t site)
{
    void *memory;
    nm_error err;
    if (nm_backend_alloc(backend, floats * sizeof(float), &memory, &err) != NM_OK)
        fail_msg("%s", err.text);
    float *values = memory;
    for (size_t i = 0; site && i < floats; i++) {
        nm_random_words words = nm_random4(1, NM_RANDOM_TEST, site, 0, i);
        values[i] = (float)nm_random_normal(words.w[0], words.w[1]);
    }
    return values;
}

static void check_same(const float *a, const float *b, size_t n, const char *what, const char *level,
                       int32_t rows)
{
    if (memcmp(a, b, n * sizeof(float)) != 0)
        fail_msg("%s, %s: results differ with %d rows", what, level, (int)rows);
}

/* Every row of x alone, and ranges of several sizes, against all rows at once. */
static void check_gemm_blocks(nm_backend *b, const char *level)
{
    static const int32_t counts[] = {1, 2, 5, 20, 32, 33, 113, 250};
    float *x = alloc_floats(b, (size_t)ROWS * IN, 1), *weight = alloc_floats(b, (size_t)OUT * IN, 2),
          *bias = alloc_floats(b, OUT, 3);
    float *all = alloc_floats(b, (size_t)ROWS * OUT, 0), *some = alloc_floats(b, (size_t)ROWS * OUT, 0);
    nm_mat w = nm_mat_of(weight, OUT, IN);
    NM_CALL(b, linear, .x = nm_mat_of(x, ROWS, IN), .weight = w, .bias = bias, .act = NM_ACT_RELU,
            .y = nm_mat_of(all, ROWS, OUT));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int32_t first = 0; first + counts[i] <= ROWS; first += 37) {
            NM_CALL(b, linear, .x = nm_mat_of(x + (size_t)first * IN, counts[i], IN), .weight = w,
                    .bias = bias, .act = NM_ACT_RELU, .y = nm_mat_of(some, counts[i], OUT));
            check_same(some, all + (size_t)first * OUT, (size_t)counts[i] * OUT, "linear", level, counts[i]);
        }
}

/* A packed weight, whole and in ranges of rows that begin at a panel or elsewhere, against the weight
 * itself; the packed weight is read, not the weight. */
static void check_packed_weight(nm_backend *b, const char *level)
{
    static const int32_t counts[] = {1, 5, 33, 250}, firsts[] = {0, 64, 70, 320};
    float *x = alloc_floats(b, (size_t)ROWS * IN, 7), *weight = alloc_floats(b, (size_t)OUT * IN, 8);
    float *plain = alloc_floats(b, (size_t)ROWS * OUT, 0), *packed_y = alloc_floats(b, (size_t)ROWS * OUT, 0);
    size_t bytes = 0;
    NM_CALL(b, pack, .weight = nm_mat_of(weight, OUT, IN), .bytes = &bytes);
    assert_true(bytes >= (size_t)OUT * IN * sizeof(float));
    float *packed = alloc_floats(b, bytes / sizeof(float), 0);
    NM_CALL(b, pack, .weight = nm_mat_of(weight, OUT, IN), .packed = packed, .bytes = &bytes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
            int32_t out = OUT - firsts[f];
            nm_mat few = nm_mat_of(x, counts[i], IN);
            nm_mat w = nm_mat_of(weight + (size_t)firsts[f] * IN, out, IN);
            NM_CALL(b, linear, .x = few, .weight = w, .act = NM_ACT_NONE,
                    .y = nm_mat_of(plain, counts[i], out));
            nm_backend_register_weight(b, nm_mat_of(weight, OUT, IN), packed);
            NM_CALL(b, linear, .x = few, .weight = w, .act = NM_ACT_NONE,
                    .y = nm_mat_of(packed_y, counts[i], out));
            nm_backend_unregister_weight(b, packed);
            check_same(plain, packed_y, (size_t)counts[i] * (size_t)out, "linear with a packed weight", level,
                       counts[i]);
        }
    nm_mat all = nm_mat_of(plain, 5, OUT), five = nm_mat_of(x, 5, IN), w = nm_mat_of(weight, OUT, IN);
    memset(packed, 0, bytes);
    nm_backend_register_weight(b, w, packed);
    NM_CALL(b, linear, .x = five, .weight = w, .y = all);
    for (int32_t i = 0; i < 5 * OUT; i++)
        assert_true(plain[i] == 0);
    nm_backend_unregister_weight(b, packed);
}

/* Rows of the weight in other numbers and at other positions, for rows of x in other numbers. */
static void check_selected(nm_backend *b, const char *level)
{
    enum { SELECTED = 90 };
    static const int32_t counts[] = {1, 2, 3, 4, 5, 9};
    float *x = alloc_floats(b, (size_t)ROWS * IN, 20), *weight = alloc_floats(b, (size_t)OUT * IN, 21),
          *bias = alloc_floats(b, OUT, 22);
    float *all = alloc_floats(b, 9 * SELECTED, 0), *some = alloc_floats(b, 9 * SELECTED, 0);
    int32_t *rows = (int32_t *)(void *)alloc_floats(b, SELECTED, 0);
    nm_mat w = nm_mat_of(weight, OUT, IN);
    for (int32_t i = 0; i < SELECTED; i++)
        rows[i] = i * 37 % OUT;
    NM_CALL(b, linear_selected, .x = nm_mat_of(x, 9, IN), .weight = w, .bias = bias, .rows = rows,
            .y = nm_mat_of(all, 9, SELECTED));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int32_t first = 0; first + counts[i] <= 9; first++)
            for (int32_t from = 0; from < SELECTED; from += 11) {
                int32_t n = (SELECTED - from + 1) / 2;
                NM_CALL(b, linear_selected, .x = nm_mat_of(x + (size_t)first * IN, counts[i], IN),
                        .weight = w, .bias = bias, .rows = rows + from, .y = nm_mat_of(some, counts[i], n));
                for (int32_t r = 0; r < counts[i]; r++)
                    check_same(some + (size_t)(r * n), all + (size_t)((first + r) * SELECTED + from),
                               (size_t)n, "linear_selected", level, counts[i]);
            }
}

/* Queries over a gathered KV cache in float and in bf16, all at once and each alone. */
static void check_attention_cached(nm_backend *b, const char *level)
{
    enum { QUERIES = 20, COLS = HEADS * WIDTH };
    float *x = alloc_floats(b, (size_t)QUERIES * COLS, 18), *kv = alloc_floats(b, (size_t)LENGTH * COLS, 19);
    float *all = alloc_floats(b, (size_t)QUERIES * COLS, 0), *one = alloc_floats(b, COLS, 0);
    uint16_t *numbers = (uint16_t *)(void *)alloc_floats(b, (size_t)LENGTH * COLS, 0);
    int32_t *rows = (int32_t *)(void *)alloc_floats(b, (size_t)QUERIES * LENGTH, 0),
            *starts = (int32_t *)(void *)alloc_floats(b, QUERIES + 1, 0);
    for (int32_t i = 0; i < QUERIES; i++) {
        starts[i + 1] = starts[i] + 1 + i % LENGTH;
        for (int32_t j = starts[i]; j < starts[i + 1]; j++)
            rows[j] = j * 5 % LENGTH;
    }
    NM_CALL(b, store_bf16, .x = nm_mat_of(kv, LENGTH, COLS), .y = numbers);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const nm_mat cache = nm_mat_of(bf16 ? (void *)numbers : kv, LENGTH, COLS);
        NM_CALL(b, attention_cached, .q = nm_mat_of(x, QUERIES, COLS), .k = cache, .v = cache,
                .bf16 = bf16 != 0, .rows = rows, .offsets = starts, .heads = HEADS, .scale = 0.125,
                .out = nm_mat_of(all, QUERIES, COLS));
        for (int32_t i = 0; i < QUERIES; i++) {
            NM_CALL(b, attention_cached, .q = nm_mat_of(x + (size_t)i * COLS, 1, COLS), .k = cache,
                    .v = cache, .bf16 = bf16 != 0, .rows = rows, .offsets = starts + i, .heads = HEADS,
                    .scale = 0.125, .out = nm_mat_of(one, 1, COLS));
            check_same(one, all + (size_t)i * COLS, COLS, "attention_cached", level, 1);
        }
    }
}

/* The last of several sequences of equal length, alone and in a batch. */
static void check_attention(nm_backend *b, const char *level)
{
    enum { SEQS = 5, COLS = HEADS * WIDTH, TOKENS = SEQS * LENGTH };
    static const int32_t offsets[] = {0, LENGTH, 2 * LENGTH, 3 * LENGTH, 4 * LENGTH, 5 * LENGTH};
    const nm_packing five = {SEQS, TOKENS, LENGTH, offsets, offsets},
                     one = {1, LENGTH, LENGTH, offsets, offsets};
    float *x = alloc_floats(b, (size_t)TOKENS * COLS, 4), *all = alloc_floats(b, (size_t)TOKENS * COLS, 0);
    float *some = alloc_floats(b, (size_t)TOKENS * COLS, 0);
    size_t last = (size_t)(SEQS - 1) * LENGTH * COLS;
    nm_mat many = nm_mat_of(x, TOKENS, COLS), few = nm_mat_of(x + last, LENGTH, COLS);
    NM_CALL(b, attention, .q = many, .k = many, .v = many, .q_packing = &five, .k_packing = &five,
            .heads = HEADS, .causal = true, .scale = 0.125, .out = nm_mat_of(all, TOKENS, COLS));
    NM_CALL(b, attention, .q = few, .k = few, .v = few, .q_packing = &one, .k_packing = &one, .heads = HEADS,
            .causal = true, .scale = 0.125, .out = nm_mat_of(some, LENGTH, COLS));
    check_same(some, all + last, (size_t)LENGTH * COLS, "attention", level, LENGTH);
}

/* Norms of a matrix large enough for streaming stores against ranges of its rows; the upstream gradient is
 * y. */
enum { LARGE = 24 << 10, LARGE_COLS = 256, LARGE_GROUPS = 8, PIECE = 100 };

typedef struct large {
    float *x, *vectors, *scale, *y, *dx;
} large;

static void run_norm(nm_backend *b, bool tokens, const large *m, int32_t first, int32_t rows, float *y,
                     float *dx)
{
    const size_t at = (size_t)first * LARGE_COLS;
    float *scale = m->scale + (size_t)first * LARGE_GROUPS, *v = m->vectors, *w = v + LARGE_COLS;
    nm_mat x = nm_mat_of(m->x + at, rows, LARGE_COLS), to = nm_mat_of(y, rows, LARGE_COLS);
    nm_mat down = nm_mat_of(dx, rows, LARGE_COLS);
    if (tokens) {
        const nm_token_norm spec = {.kind = NM_TOKEN_RMS,
                                    .groups = LARGE_GROUPS,
                                    .eps = 1e-5,
                                    .weight_len = LARGE_COLS,
                                    .bias_len = LARGE_COLS};
        NM_CALL(b, token_norm, .spec = &spec, .x = x, .weight = v, .bias = w, .y = to, .scale = scale);
        NM_CALL(b, token_norm_grad, .spec = &spec, .dy = to, .x = x, .weight = v, .scale = scale, .dx = down,
                .d_weight = m->vectors + 2 * LARGE_COLS);
    } else {
        const nm_feature_norm spec = {.groups = LARGE_GROUPS, .eps = 1e-5},
                              ready = {.groups = LARGE_GROUPS, .eps = 1e-5, .row_scale_ready = true};
        NM_CALL(b, feature_norm, .spec = &spec, .x = x, .row_scale = scale, .scale = v, .weight = w,
                .bias = v, .y = to);
        NM_CALL(b, feature_norm_grad, .spec = &ready, .dy = to, .x = x, .row_scale = scale, .scale = v,
                .a = w, .c1 = w, .dx = down);
    }
}

static void check_norms(nm_backend *b, const char *level)
{
    const size_t floats = (size_t)LARGE * LARGE_COLS;
    const large m = {alloc_floats(b, floats, 12), alloc_floats(b, 3 * LARGE_COLS, 13),
                     alloc_floats(b, (size_t)LARGE * LARGE_GROUPS, 0), alloc_floats(b, floats, 0),
                     alloc_floats(b, floats, 0)};
    float *y = alloc_floats(b, (size_t)PIECE * LARGE_COLS, 0),
          *dx = alloc_floats(b, (size_t)PIECE * LARGE_COLS, 0);
    for (int tokens = 0; tokens < 2; tokens++) {
        run_norm(b, tokens, &m, 0, LARGE, m.y, m.dx);
        for (int32_t first = 0; first + PIECE <= LARGE; first += 5 * PIECE) {
            const size_t at = (size_t)first * LARGE_COLS;
            run_norm(b, tokens, &m, first, PIECE, y, dx);
            check_same(y, m.y + at, (size_t)PIECE * LARGE_COLS, "norm", level, PIECE);
            check_same(dx, m.dx + at, (size_t)PIECE * LARGE_COLS, "norm, backward", level, PIECE);
        }
    }
}

/* Gated linear units of a matrix large enough for streaming stores against ranges of its rows; gate and x are
 * the halves of one matrix, and so are their gradients. */
static void run_gate(nm_backend *b, float *halves, int32_t rows, float *y, float *grads)
{
    const int32_t stride = 2 * LARGE_COLS;
    const nm_mat gate = {halves, rows, LARGE_COLS, stride},
                 x = {halves + LARGE_COLS, rows, LARGE_COLS, stride};
    const nm_mat dgate = {grads, rows, LARGE_COLS, stride},
                 dx = {grads + LARGE_COLS, rows, LARGE_COLS, stride};
    const nm_mat to = nm_mat_of(y, rows, LARGE_COLS);
    NM_CALL(b, gate, .op = NM_MAP_SILU, .gate = gate, .x = x, .y = to);
    NM_CALL(b, gate_grad, .forward = {.op = NM_MAP_SILU, .gate = gate, .x = x}, .dy = to, .dgate = dgate,
            .dx = dx);
}

static void check_gate(nm_backend *b, const char *level)
{
    const size_t floats = (size_t)LARGE * LARGE_COLS, piece = (size_t)PIECE * LARGE_COLS;
    float *halves = alloc_floats(b, 2 * floats, 17), *all = alloc_floats(b, floats, 0),
          *all_grads = alloc_floats(b, 2 * floats, 0);
    float *y = alloc_floats(b, piece, 0), *grads = alloc_floats(b, 2 * piece, 0);
    run_gate(b, halves, LARGE, all, all_grads);
    for (size_t first = 0; first + PIECE <= LARGE; first += 5 * PIECE) {
        const size_t at = first * LARGE_COLS;
        run_gate(b, halves + 2 * at, PIECE, y, grads);
        check_same(y, all + at, piece, "gate", level, PIECE);
        check_same(grads, all_grads + 2 * at, 2 * piece, "gate, backward", level, PIECE);
    }
}

static void test_rows_are_independent(void **state)
{
    (void)state;
    for (int i = 0; i < N_CPU_LEVELS; i++) {
        nm_backend *backend = create(cpu_levels[i], 2);
        if (!backend)
            continue;
        check_gemm_blocks(backend, cpu_levels[i]);
        check_packed_weight(backend, cpu_levels[i]);
        check_attention(backend, cpu_levels[i]);
        check_selected(backend, cpu_levels[i]);
        check_attention_cached(backend, cpu_levels[i]);
        check_norms(backend, cpu_levels[i]);
        check_gate(backend, cpu_levels[i]);
        nm_backend_free(backend);
    }
}

/* Loss with all gradients, then norms of the result. Returns a hash of all results. */
static uint64_t hash_of_step(const char *level, int32_t threads)
{
    enum { D = 96, BIG = 700 };
    nm_backend *b = create(level, threads);
    if (!b)
        return 0;
    float *hidden = alloc_floats(b, (size_t)BIG * D, 5), *weight = alloc_floats(b, (size_t)WORDS * D, 6);
    float *out = alloc_floats(b, (size_t)BIG * D * 4 + (size_t)WORDS * (D + 1) + 4 * D, 0);
    size_t floats = (size_t)BIG * D * 4 + (size_t)WORDS * (D + 1) + 4 * D;
    int32_t *targets = (int32_t *)(void *)alloc_floats(b, BIG, 0);
    for (int32_t i = 0; i < BIG; i++)
        targets[i] = i * 31 % WORDS;
    float *d_hidden = out, *y = out + BIG * D, *dx = y + BIG * D, *z = dx + BIG * D, *d_weight = z + BIG * D;
    float *d_bias = d_weight + WORDS * D, *d_gain = d_bias + WORDS;
    float *stats = alloc_floats(b, 4 * BIG, 0);
    double *sums = (double *)(void *)alloc_floats(b, 4, 0);
    nm_softmax_loss_args loss = {.hidden = nm_mat_of(hidden, BIG, D),
                                 .weight = nm_mat_of(weight, WORDS, D),
                                 .targets = targets,
                                 .eps = 0.1,
                                 .grad_scale = 1,
                                 .sums = sums,
                                 .d_hidden = d_hidden,
                                 .d_weight = d_weight,
                                 .d_bias = d_bias};
    b->k.softmax_loss(b, &loss);
    nm_token_norm spec = {.kind = NM_TOKEN_CENTER, .groups = 2, .eps = 1e-5, .weight_len = D, .bias_len = D};
    nm_mat x = nm_mat_of(d_hidden, BIG, D);
    NM_CALL(b, token_norm, .spec = &spec, .x = x, .weight = weight, .bias = weight, .y = nm_mat_of(y, BIG, D),
            .shift = stats, .scale = stats + 2 * BIG);
    NM_CALL(b, token_norm_grad, .spec = &spec, .dy = nm_mat_of(hidden, BIG, D), .x = x, .weight = weight,
            .shift = stats, .scale = stats + 2 * BIG, .dx = nm_mat_of(dx, BIG, D), .d_weight = d_gain,
            .d_bias = d_gain + D);
    nm_feature_norm feature = {0};
    NM_CALL(b, feature_moments, .spec = &feature, .x = x, .center = d_gain + 2 * D, .mean = d_gain + 2 * D,
            .square = d_gain + 3 * D);
    NM_CALL(b, linear_grad_weight, .dy = x, .x = nm_mat_of(y, BIG, D), .dw = nm_mat_of(z, D, D));
    uint64_t hash = XXH3_64bits(out, floats * sizeof(float)) ^ XXH3_64bits(sums, 2 * sizeof *sums);
    nm_backend_free(b);
    return hash;
}

static void test_threads(void **state)
{
    (void)state;
    for (int i = 0; i < N_CPU_LEVELS; i++) {
        uint64_t one = hash_of_step(cpu_levels[i], 1);
        for (int32_t threads = 2; threads <= 3; threads++)
            if (hash_of_step(cpu_levels[i], threads) != one)
                fail_msg("%s: results with %d threads differ from those with one", cpu_levels[i],
                         (int)threads);
    }
}

/* All numbers of rows around which the partition into blocks changes, also with more threads than blocks. */
static void test_blocks(void **state)
{
    (void)state;
    enum { MOST = 1200, DEPTH = 33, COLS = 70 };
    static const int32_t threads[] = {1, 2, 5, 16};
    for (int i = 0; i < N_CPU_LEVELS; i++) {
        uint64_t hashes[MOST + 1];
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            nm_backend *b = create(cpu_levels[i], threads[t]);
            if (!b)
                break;
            float *x = alloc_floats(b, (size_t)MOST * DEPTH, 14),
                  *weight = alloc_floats(b, (size_t)COLS * DEPTH, 15);
            float *bias = alloc_floats(b, COLS, 16), *y = alloc_floats(b, (size_t)MOST * COLS, 0);
            for (int32_t rows = 1; rows <= MOST; rows += rows < 300 ? 1 : 31) {
                NM_CALL(b, linear, .x = nm_mat_of(x, rows, DEPTH), .weight = nm_mat_of(weight, COLS, DEPTH),
                        .bias = bias, .act = NM_ACT_RELU, .y = nm_mat_of(y, rows, COLS));
                uint64_t hash = XXH3_64bits(y, (size_t)rows * COLS * sizeof(float));
                if (t == 0)
                    hashes[rows] = hash;
                else if (hash != hashes[rows])
                    fail_msg("%s: results of %d rows with %d threads differ from those with one",
                             cpu_levels[i], (int)rows, (int)threads[t]);
            }
            nm_backend_free(b);
        }
    }
}

/* Random initialization is identical on every CPU level; ref may differ in the last bit. */
static void test_random_init(void **state)
{
    (void)state;
    enum { N = 100001 };
    uint64_t expected = 0;
    for (int i = 0; i < N_CPU_LEVELS; i++) {
        nm_backend *b = create(cpu_levels[i], 1 + i);
        if (!b)
            continue;
        float *values = alloc_floats(b, N, 0);
        NM_CALL(b, random_init, .init = (nm_init){NM_INIT_NORMAL, 0.7}, .seed = 11, .site = 3, .n = N,
                .out = values);
        uint64_t hash = XXH3_64bits(values, N * sizeof(float));
        if (expected && hash != expected)
            fail_msg("%s: random initialization differs from level %s", cpu_levels[i], cpu_levels[0]);
        expected = hash;
        nm_backend_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_are_independent),
                                       cmocka_unit_test(test_threads), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_random_init)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
