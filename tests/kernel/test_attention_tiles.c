/* Attention over several tiles of keys and queries against the reference kernel in double: scores that grow,
 * fall or jump along the keys, so that the reference of the softmax rises in later tiles, beyond the range
 * where it is a multiple of ln 2, and without any finite score in a tile. Bitwise identical for every number
 * of threads. */
#include "kernel_pair.h"

#include "kernel_levels.h"
#include "support/sanitizer.h"

enum { HEADS = 2, V_WIDTH = 5 };

/* One column per head, exact in float: score of query i and key j = query(i) key(j); index = HEADS row +
 * head. */
typedef struct pattern {
    const char *name;
    double (*key)(pair *p, uint64_t index);
    /* |score| of which the backward pass makes weights; 0: only the forward pass is compared */
    double largest;
} pattern;

static double growing(pair *p, uint64_t index)
{
    (void)p;
    return 0.75 * (double)(index / HEADS);
}

static double falling(pair *p, uint64_t index)
{
    (void)p;
    return -0.75 * (double)(index / HEADS);
}

static double jumping(pair *p, uint64_t index)
{
    (void)p;
    return index % 131 == 130 ? 64 + (double)(index / 131) : (double)(index % 7);
}

/* Across the largest score whose reference is a multiple of ln 2, on both sides. */
static double far(pair *p, uint64_t index)
{
    (void)p;
    return ((double)(index / HEADS) - 150) * 256;
}

static double beyond(pair *p, uint64_t index)
{
    (void)p;
    return index % 200 == 199 ? 0x1p127 : -0x1p127 + (double)index * 0x1p110;
}

/* No finite score in the first tile. */
static double late(pair *p, uint64_t index)
{
    (void)p;
    return index < 130 * HEADS ? -(double)INFINITY : (double)(index % 5);
}

static const pattern patterns[] = {
    {"growing", growing, 440}, {"falling", falling, 440}, {"jumping", jumping, 80},   {"far", far, 0},
    {"beyond", beyond, 0},     {"late", late, 8},         {"normal", pair_normal, 16}};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

typedef struct lengths {
    int32_t queries[2], keys[2];
    bool causal;
    int32_t window;
} lengths;

/* Several blocks of queries and of keys; fewer, as many and more keys than queries; queries without keys.
 * Windows of one key, shorter and longer than a block of queries, of keys, and than a sequence. */
static const lengths all_lengths[] = {{{3, 170}, {140, 301}, false, 0},  {{131, 260}, {131, 260}, true, 0},
                                      {{5, 400}, {1, 270}, true, 0},     {{60, 57}, {449, 128}, true, 0},
                                      {{131, 600}, {131, 600}, true, 1}, {{700, 80}, {700, 80}, true, 40},
                                      {{10, 590}, {10, 590}, true, 128}, {{610, 65}, {610, 65}, true, 300},
                                      {{5, 400}, {1, 270}, true, 64},    {{60, 57}, {449, 128}, true, 97}};
enum { N_LENGTHS = sizeof all_lengths / sizeof *all_lengths };

static double halves(pair *p, uint64_t index)
{
    (void)p;
    return index % 2 ? 1 : 0.5;
}

static nm_packing packing_of(pair *p, const int32_t n[2], int32_t offsets[3], pair_list *list)
{
    offsets[0] = 0;
    offsets[1] = n[0];
    offsets[2] = n[0] + n[1];
    *list = pair_list_of(p, offsets, 3 * sizeof *offsets);
    return (nm_packing){
        .n_seqs = 2, .n_tokens = offsets[2], .longest = n[0] > n[1] ? n[0] : n[1], .offsets = offsets};
}

/* Error of a sum of n products in units of the last place, and that of a weight e^x, where x has `largest` as
 * its size and thus an error of as many units. */
static double error_ulps(int32_t n, double largest)
{
    return 16 + 2 * sqrt(n) + largest;
}

static void check(pair *p, const pattern *keys, const lengths *l, const nm_dropout *drop)
{
    int32_t q_offsets[3], k_offsets[3];
    pair_list q_list, k_list;
    const nm_packing q_packing = packing_of(p, l->queries, q_offsets, &q_list),
                     k_packing = packing_of(p, l->keys, k_offsets, &k_list);
    const int32_t m = q_offsets[2], n = k_offsets[2];
    test_mat q = pair_make(p, m, HEADS, 1, halves), k = pair_make(p, n, HEADS, 0, keys->key),
             v = pair_random(p, n, HEADS * V_WIDTH, 3), out = pair_random(p, m, HEADS * V_WIDTH, 0),
             lse = pair_random(p, 1, HEADS * m, 0), dout = pair_random(p, m, HEADS * V_WIDTH, 0);
    nm_attention_args args[2];
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        args[s] = (nm_attention_args){.q = q.m[s],
                                      .k = k.m[s],
                                      .v = v.m[s],
                                      .q_packing = &q_packing,
                                      .k_packing = &k_packing,
                                      .heads = HEADS,
                                      .causal = l->causal,
                                      .window = l->window,
                                      .scale = 1,
                                      .drop = drop,
                                      .out = out.m[s],
                                      .lse = lse.m[s].data};
        p->on[s]->k.attention(p->on[s], &args[s]);
    }
    mat_compare(p, "out", out, error_ulps(n, 0), 1);
    mat_compare(p, "lse", lse, 16, 1);
    if (keys->largest > 0) {
        test_mat dq = pair_random(p, m, HEADS, 1), dk = pair_random(p, n, HEADS, 2),
                 dv = pair_random(p, n, HEADS * V_WIDTH, 0);
        BOTH(p, attention_grad, .forward = args[s], .dout = dout.m[s], .dq = dq.m[s], .dk = dk.m[s],
             .dv = dv.m[s]);
        if (isfinite(keys->key(p, 0)))
            mat_compare(p, "dq", dq, error_ulps(n, keys->largest), keys->largest * V_WIDTH);
        else /* 0 times infinity */
            pair_mark(p, dq);
        mat_compare(p, "dk", dk, error_ulps(m, keys->largest), V_WIDTH * sqrt(m));
        mat_compare(p, "dv", dv, error_ulps(m, keys->largest), sqrt(m));
    }
    pair_close(p);
}

/* The hash of all results. step: every step-th pair of a pattern and lengths is checked. */
static uint64_t check_backend(nm_backend *backend, nm_backend *reference, const char *level, int step)
{
    static const nm_dropout half = {0.5, 7, 5, 9};
    pair p = {.on = {backend, reference}, .seed = 1};
    for (int i = 0; i < N_PATTERNS; i++)
        for (int l = 0; l < N_LENGTHS; l++) {
            char what[100];
            if ((i + 3 * l) % step)
                continue;
            snprintf(what, sizeof what, "%s, %s, lengths %d", level, patterns[i].name, l);
            p.what = what;
            check(&p, &patterns[i], &all_lengths[l], (i + l) % 2 ? &half : NULL);
        }
    return p.hash;
}

static void test_levels(void **state)
{
    (void)state;
    nm_backend *reference = level_create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    for (size_t i = 0; i < N_CPU_LEVELS; i++) {
        uint64_t first = 0;
        for (int32_t threads = 1; threads <= 3; threads++) {
            nm_backend *b =
                level_create((nm_backend_options){.name = "cpu", .isa = cpu_levels[i], .threads = threads});
            if (!b)
                break;
            uint64_t hash = check_backend(b, reference, cpu_levels[i], 1);
            if (threads > 1 && hash != first)
                fail_msg("%s: results with %d threads differ from those with one", cpu_levels[i],
                         (int)threads);
            first = hash;
            nm_backend_free(b);
        }
    }
    nm_backend_free(reference);
}

/* The emulator is slow: a sample that has every pattern and all lengths. */
static void test_emulated(void **state)
{
    (void)state;
    if (THREAD_SANITIZER || ADDRESS_SANITIZER)
        skip();
    nm_backend *reference = level_create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    nm_backend *b = level_create((nm_backend_options){.name = "emulated", .threads = 2});
    check_backend(b, reference, "emulated", N_PATTERNS);
    nm_backend_free(b);
    nm_backend_free(reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels), cmocka_unit_test(test_emulated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
