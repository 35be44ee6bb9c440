/* Softmax attention over packed sequences and over a gathered KV cache. */
#include "kernel_checks.h"

typedef struct attention_case {
    bool cross, causal;
    const nm_dropout *drop;
} attention_case;

static const attention_case attention_cases[] = {
    {false, false, NULL}, {false, true, &third}, {true, false, &third}, {true, true, &none}};
enum { N_ATTENTION_CASES = 4 };

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
             .k_packing = &in.k_packing.side[s], .heads = in.heads, .causal = c->causal, .scale = in.scale,
             .drop = c->drop, .out = out.m[s], .lse = i == 2 ? NULL : lse.m[s].data);
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
             .k_packing = &in.k_packing.side[s], .heads = in.heads, .causal = c->causal, .scale = in.scale,
             .drop = c->drop, .out = out.m[s], .lse = lse.m[s].data);
        BOTH(p, attention_grad,
             .forward = {.q = in.q.m[s],
                         .k = in.k.m[s],
                         .v = in.v.m[s],
                         .q_packing = &in.q_packing.side[s],
                         .k_packing = &in.k_packing.side[s],
                         .heads = in.heads,
                         .causal = c->causal,
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

/* group: number of query heads that read a key head. A single head has keys and values of different widths. */
static void check_cached(pair *p, size z, int32_t heads, int32_t group)
{
    enum { CACHE = 21 };
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
    BOTH(p, attention_cached, .q = q.m[s], .k = k.m[s], .v = v.m[s], .rows = rows.memory[s],
         .offsets = starts.memory[s], .heads = heads, .key_heads = group == 1 ? 0 : key_heads, .scale = 0.4,
         .out = out.m[s]);
    mat_compare(p, "out", out, 64, 1);
    pair_close(p);
    free(offsets);
}

/* Every divisor of the number of heads as the number of query heads that read a key head. Heads of 4 to 64 columns fill whole
 * vectors of every CPU level, so that several of them are summed at once. */
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
    pair_list loss = pair_list_of(p, (double[]){7}, sizeof(double));
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
