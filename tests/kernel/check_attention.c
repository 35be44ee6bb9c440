/* Softmax attention over packed sequences and over a gathered KV cache. */
#include "kernel_checks.h"

typedef struct attention_case {
    bool cross, causal;
    const nm_dropout *drop;
    int32_t window;
} attention_case;

static const attention_case attention_cases[] = {{false, false, NULL, 0},  {false, true, &third, 0},
                                                 {true, false, &third, 0}, {true, true, &none, 0},
                                                 {false, true, &third, 1}, {true, true, &none, 5}};
enum { N_ATTENTION_CASES = 6 };

/* Self-attention: q, k, v are slices of one matrix; cross-attention: k, v are slices of another one. */
typedef struct attention_inputs {
    test_packing q_packing, k_packing;
    test_mat q, k, v;
    int32_t heads;
    double scale;
} attention_inputs;

static void attention_init(pair *p, attention_inputs *in, const attention_case *c, size z)
{
    int32_t n_seqs = z.rows < 4 ? 1 : 3, keys = c->cross ? z.rows + 5 * n_seqs : z.rows;
    packing_init(p, &in->q_packing, n_seqs, 1, z.rows);
    packing_init(p, &in->k_packing, n_seqs, c->cross ? 6 : 1, keys);
    test_mat all = pair_random(p, z.rows, 3 * z.cols, z.gap);
    in->q = mat_slice(p, all, 0, z.cols);
    test_mat other = c->cross ? pair_random(p, keys, 2 * z.cols, 0) : mat_slice(p, all, z.cols, 2 * z.cols);
    in->k = mat_slice(p, other, 0, z.cols);
    in->v = mat_slice(p, other, z.cols, z.cols);
    in->heads = heads_for(z.cols);
    in->scale = 1 / sqrt(z.cols / in->heads);
}

void check_attention(pair *p, size z)
{
    for (int i = 0; i < N_ATTENTION_CASES; i++) {
        const attention_case *c = &attention_cases[i];
        attention_inputs in;
        attention_init(p, &in, c, z);
        test_mat out = pair_random(p, z.rows, z.cols, z.gap), lse = random_vector(p, z.rows * in.heads);
        BOTH(p, attention, .q = in.q.m[s], .k = in.k.m[s], .v = in.v.m[s], .q_packing = &in.q_packing.side[s],
             .k_packing = &in.k_packing.side[s], .heads = in.heads, .causal = c->causal, .window = c->window,
             .scale = in.scale, .drop = c->drop, .out = out.m[s], .lse = i == 2 ? NULL : lse.m[s].data);
        mat_compare(p, "out", out, 64, 1);
        if (i != 2)
            mat_compare(p, "lse", lse, 32, 1);
    }
}

void check_attention_grad(pair *p, size z)
{
    for (int i = 0; i < N_ATTENTION_CASES; i++) {
        const attention_case *c = &attention_cases[i];
        attention_inputs in, grads;
        attention_init(p, &in, c, z);
        attention_init(p, &grads, c, z);
        test_mat out = pair_random(p, z.rows, z.cols, 0), dout = pair_random(p, z.rows, z.cols, z.gap);
        test_mat lse = random_vector(p, z.rows * in.heads);
        BOTH(p, attention, .q = in.q.m[s], .k = in.k.m[s], .v = in.v.m[s], .q_packing = &in.q_packing.side[s],
             .k_packing = &in.k_packing.side[s], .heads = in.heads, .causal = c->causal, .window = c->window,
             .scale = in.scale, .drop = c->drop, .out = out.m[s], .lse = lse.m[s].data);
        BOTH(p, attention_grad,
             .forward = {.q = in.q.m[s],
                         .k = in.k.m[s],
                         .v = in.v.m[s],
                         .q_packing = &in.q_packing.side[s],
                         .k_packing = &in.k_packing.side[s],
                         .heads = in.heads,
                         .causal = c->causal,
                         .window = c->window,
                         .scale = in.scale,
                         .drop = c->drop,
                         .out = out.m[s],
                         .lse = lse.m[s].data},
             .dout = dout.m[s], .dq = grads.q.m[s], .dk = grads.k.m[s], .dv = grads.v.m[s]);
        pair_mark(p, out);
        pair_mark(p, lse);
        mat_compare(p, "dq", grads.q, 128, 2);
        mat_compare(p, "dk", grads.k, 128, 2);
        mat_compare(p, "dv", grads.v, 128, 2);
    }
}

/* Fails unless the matrices are bitwise identical in each backend. */
static void check_identical(pair *p, test_mat a, test_mat b)
{
    const size_t n = (size_t)a.m[0].rows * (size_t)a.m[0].stride;
    double *values[] = {nm_allocate(n * sizeof(double)), nm_allocate(n * sizeof(double))};
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        const size_t bytes = n * nm_dtype_bytes(p->on[s]->dtype);
        nm_backend_download(p->on[s], values[0], a.m[s].data, bytes);
        nm_backend_download(p->on[s], values[1], b.m[s].data, bytes);
        if (memcmp(values[0], values[1], bytes))
            fail_msg("%s: the results differ from those with float keys and values", p->what);
    }
    free(values[0]);
    free(values[1]);
}

/* A matrix of bf16 numbers: its columns from `first` on. */
static nm_mat bf16_columns(void *numbers, nm_mat whole, int32_t first, int32_t cols)
{
    return (nm_mat){(uint16_t *)numbers + first, whole.rows, cols, whole.cols};
}

/* The arguments of both backends with keys and values kv = [k | v] in bf16; the results are those in float of
 * the same numbers. */
static void check_bf16_cache(pair *p, const nm_attention_cached_args *args, test_mat kv, test_mat out)
{
    const int32_t k_cols = args[0].k.cols, v_cols = args[0].v.cols;
    const size_t bytes = (size_t)kv.m[0].rows * (size_t)kv.m[0].cols * sizeof(uint16_t);
    uint16_t *zeros = nm_allocate(bytes);
    pair_list numbers = pair_list_of(p, zeros, bytes);
    test_mat plain = pair_random(p, out.m[0].rows, out.m[0].cols, out.m[0].stride - out.m[0].cols);
    BOTH(p, store_bf16, .x = kv.m[s], .y = numbers.memory[s]);
    BOTH(p, load_bf16, .x = numbers.memory[s], .y = kv.m[s]);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        nm_attention_cached_args call = args[s];
        call.out = plain.m[s];
        p->on[s]->k.attention_cached(p->on[s], &call);
        call.bf16 = true;
        call.k = bf16_columns(numbers.memory[s], kv.m[s], 0, k_cols);
        call.v = bf16_columns(numbers.memory[s], kv.m[s], k_cols, v_cols);
        call.out = out.m[s];
        p->on[s]->k.attention_cached(p->on[s], &call);
    }
    check_identical(p, out, plain);
    mat_compare(p, "out, bf16", out, 64, 1);
    pair_mark(p, plain);
    pair_mark(p, kv);
    free(zeros);
}

/* group: number of query heads that read a key head. A single head has keys and values of different
 * widths. */
static void check_cached(pair *p, size z, int32_t heads, int32_t group)
{
    enum { CACHE = 70 }; /* several chunks of 32 keys */
    const int32_t width = z.cols / heads, v_width = heads > 1 ? width : other_width(z.cols);
    const int32_t key_heads = heads / group, k_cols = key_heads * width, v_cols = key_heads * v_width;
    int32_t *offsets = nm_allocate(((size_t)z.rows + 1) * sizeof *offsets);
    for (int32_t i = 0; i < z.rows; i++)
        offsets[i + 1] = offsets[i] + 1 + i * 7 % CACHE;
    test_mat q = pair_random(p, z.rows, z.cols, z.gap);
    test_mat out = pair_random(p, z.rows, heads * v_width, z.gap);
    test_mat kv = pair_random(p, CACHE, k_cols + v_cols, 0);
    test_mat k = mat_slice(p, kv, 0, k_cols), v = mat_slice(p, kv, k_cols, v_cols);
    pair_list rows = pair_ids(p, offsets[z.rows], CACHE);
    pair_list starts = pair_list_of(p, offsets, ((size_t)z.rows + 1) * sizeof *offsets);
    nm_attention_cached_args args[2];
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        args[s] = (nm_attention_cached_args){.q = q.m[s],
                                             .k = k.m[s],
                                             .v = v.m[s],
                                             .rows = rows.memory[s],
                                             .offsets = starts.memory[s],
                                             .heads = heads,
                                             .key_heads = group == 1 ? 0 : key_heads,
                                             .scale = 0.4,
                                             .out = out.m[s]};
        p->on[s]->k.attention_cached(p->on[s], &args[s]);
    }
    mat_compare(p, "out", out, 64, 1);
    check_bf16_cache(p, args, kv, out);
    pair_close(p);
    free(offsets);
}

/* Every divisor of the number of heads as the number of query heads that read a key head. Heads of 4 to 64
 * columns fill whole vectors of every CPU level, so that several of them are summed at once. */
void check_attention_cached(pair *p, size z)
{
    enum { HEADS = 8 };
    const int32_t heads = heads_for(z.cols);
    for (int32_t group = 1; group <= heads; group++)
        if (heads % group == 0)
            check_cached(p, z, heads, group);
    for (int32_t width = 4; z.cols == 64 && width <= 64; width *= 2)
        for (int32_t group = 1; group <= HEADS; group *= 2)
            check_cached(p, (size){z.rows, HEADS * width, z.gap}, HEADS, group);
}

/* Queries with no, one and several given keys; the first of the heads of wide matrices. */
void check_guided_attention(pair *p, size z)
{
    static const attention_case cross = {.cross = true};
    attention_inputs in, grads;
    attention_init(p, &in, &cross, z);
    attention_init(p, &grads, &cross, z);
    int32_t *offsets = nm_allocate(((size_t)z.rows + 1) * sizeof *offsets), width = z.cols / in.heads;
    for (int32_t i = 0; i < z.rows; i++)
        offsets[i + 1] = offsets[i] + i % 4;
    int32_t *keys = nm_allocate(((size_t)offsets[z.rows] + 1) * sizeof *keys);
    for (int32_t i = 0; i < z.rows; i++)
        for (int32_t g = offsets[i]; g < offsets[i + 1]; g++)
            keys[g] = 2 * (g - offsets[i]); /* every sequence has at least 6 keys */
    pair_list starts = pair_list_of(p, offsets, ((size_t)z.rows + 1) * sizeof *offsets);
    pair_list given = pair_list_of(p, keys, ((size_t)offsets[z.rows] + 1) * sizeof *keys);
    pair_list loss = pair_list_of(p, (double[]){7, 7}, 2 * sizeof(double));
    BOTH(p, guided_attention, .q = mat_slice(p, in.q, 0, width).m[s], .k = mat_slice(p, in.k, 0, width).m[s],
         .q_packing = &in.q_packing.side[s], .k_packing = &in.k_packing.side[s], .scale = in.scale,
         .weight = 0.7, .grad_scale = 0.5, .offsets = starts.memory[s], .keys = given.memory[s],
         .loss = loss.memory[s], .dq = mat_slice(p, grads.q, 0, width).m[s],
         .dk = mat_slice(p, grads.k, 0, width).m[s]);
    pair_compare_sums(p, (double *const[]){loss.memory[ACTUAL], loss.memory[EXPECTED]}, z.rows);
    mat_compare(p, "dq", grads.q, 16, 1);
    mat_compare(p, "dk", grads.k, 16, 1);
    free(offsets);
    free(keys);
}
