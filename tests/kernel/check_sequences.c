/* Kernels over packed sequences of unequal length: attention with relative positions, pooling, conditional
 * random field. */
#include "kernel_checks.h"

enum { SHORT_SEQS = 4 };

/* Up to four sequences of unequal length, none of them empty. */
static nm_packing short_packing(int32_t rows, int32_t offsets[SHORT_SEQS + 1])
{
    int32_t n = rows < SHORT_SEQS ? rows : SHORT_SEQS, longest = 0;
    for (int32_t s = 0; s <= n; s++)
        offsets[s] = (int32_t)((int64_t)rows * s * s / (n * n));
    for (int32_t s = 1; s < n; s++)
        offsets[s] = offsets[s] > offsets[s - 1] ? offsets[s] : offsets[s - 1] + 1;
    for (int32_t s = 0; s < n; s++)
        longest = offsets[s + 1] - offsets[s] > longest ? offsets[s + 1] - offsets[s] : longest;
    return (nm_packing){n, rows, longest, offsets, NULL};
}

typedef struct relative_inputs {
    int32_t offsets[SHORT_SEQS + 1];
    nm_packing packing;
    test_mat qkv, key_bias, distance_bias, positions, out, lse;
    nm_relative_attention_args call[2];
} relative_inputs;

static void relative_forward(pair *p, relative_inputs *in, size z, const nm_dropout *drop)
{
    int32_t heads = heads_for(z.cols), c = z.cols / heads;
    in->packing = short_packing(z.rows, in->offsets);
    int32_t zero = in->packing.longest - 1;
    in->qkv = pair_make(p, z.rows, 3 * z.cols, z.gap, small);
    in->key_bias = random_vector(p, z.cols);
    in->distance_bias = random_vector(p, z.cols);
    in->positions = pair_random(p, 2 * zero + 1, c, 0);
    in->out = pair_random(p, z.rows, z.cols, z.gap);
    in->lse = pair_random(p, heads, z.rows, 0);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        in->call[s] = (nm_relative_attention_args){.q = mat_slice(p, in->qkv, 0, z.cols).m[s],
                                                   .k = mat_slice(p, in->qkv, z.cols, z.cols).m[s],
                                                   .v = mat_slice(p, in->qkv, 2 * z.cols, z.cols).m[s],
                                                   .q_packing = &in->packing,
                                                   .k_packing = &in->packing,
                                                   .heads = heads,
                                                   .key_bias = in->key_bias.m[s].data,
                                                   .distance_bias = in->distance_bias.m[s].data,
                                                   .positions = in->positions.m[s],
                                                   .zero_row = zero,
                                                   .drop = drop ? *drop : none,
                                                   .out = in->out.m[s],
                                                   .lse = in->lse.m[s].data};
        p->on[s]->k.relative_attention(p->on[s], &in->call[s]);
    }
}

/* Scores are sums of c products of normal numbers; an absolute error of a score is a relative error of its
 * weight. */
void check_relative_attention(pair *p, size z)
{
    for (int d = 0; d < 2; d++) {
        relative_inputs in;
        relative_forward(p, &in, z, drops[d]);
        mat_compare(p, "out", in.out, 64 + 4 * sum_ulps(z.cols), 0.1);
        mat_compare(p, "lse", in.lse, sum_ulps(z.cols), 1);
        pair_close(p);
    }
}

void check_relative_attention_grad(pair *p, size z)
{
    relative_inputs in;
    relative_forward(p, &in, z, &third);
    test_mat dout = pair_random(p, z.rows, z.cols, 0), d = pair_random(p, z.rows, 3 * z.cols, z.gap);
    test_mat d_key = random_vector(p, z.cols), d_distance = random_vector(p, z.cols);
    BOTH(p, relative_attention_grad, .forward = in.call[s], .dout = dout.m[s],
         .dq = mat_slice(p, d, 0, z.cols).m[s], .dk = mat_slice(p, d, z.cols, z.cols).m[s],
         .dv = mat_slice(p, d, 2 * z.cols, z.cols).m[s], .d_key_bias = d_key.m[s].data,
         .d_distance_bias = d_distance.m[s].data);
    double ulps = 64 + 8 * sum_ulps(z.cols), rows = sqrt(z.rows);
    mat_compare(p, "out", in.out, ulps, 0.1);
    mat_compare(p, "lse", in.lse, ulps, 1);
    mat_compare(p, "dq, dk, dv", d, ulps, rows);
    mat_compare(p, "d_key_bias", d_key, ulps, rows);
    mat_compare(p, "d_distance_bias", d_distance, ulps, rows);
}

void check_pool_max(pair *p, size z)
{
    int32_t offsets[SHORT_SEQS + 1];
    nm_packing packing = short_packing(z.rows, offsets);
    test_mat x = pair_make(p, z.rows, z.cols, z.gap, coarse),
             out = pair_random(p, packing.n_seqs, z.cols, z.gap);
    test_mat dout = pair_random(p, packing.n_seqs, z.cols, z.gap), dx = pair_random(p, z.rows, z.cols, z.gap);
    pair_list where = pair_ids(p, packing.n_seqs * z.cols, 1);
    pair_list list = pair_list_of(p, offsets, ((size_t)packing.n_seqs + 1) * sizeof *offsets);
    nm_packing on[2] = {packing, packing};
    on[ACTUAL].device_offsets = list.memory[ACTUAL];
    on[EXPECTED].device_offsets = list.memory[EXPECTED];
    BOTH(p, pool_max, .x = x.m[s], .packing = &on[s], .out = out.m[s], .where = where.memory[s]);
    BOTH(p, pool_max_grad, .dout = dout.m[s], .where = where.memory[s], .dx = dx.m[s]);
    mat_compare(p, "out", out, 0, 0);
    mat_compare(p, "dx", dx, 0, 0);
}

void check_pool_max_grad(pair *p, size z)
{
    check_pool_max(p, z); /* the gradient needs the rows found by the forward kernel */
}

void check_crf(pair *p, size z)
{
    int32_t offsets[SHORT_SEQS + 1], tags = z.cols < 30 ? z.cols : 30;
    nm_packing packing = short_packing(z.rows, offsets);
    test_mat x = pair_random(p, z.rows, tags, z.gap), transitions = pair_random(p, tags, tags, 0);
    test_mat start = random_vector(p, tags), end = random_vector(p, tags),
             d = pair_random(p, z.rows, tags, 0);
    test_mat d_transitions = pair_random(p, tags, tags, 0), d_start = random_vector(p, tags);
    test_mat d_end = random_vector(p, tags);
    pair_list gold = pair_ids(p, z.rows, tags), sums = pair_list_of(p, (double[]){7, 8}, 2 * sizeof(double));
    for (int with_grad = 0; with_grad < 2; with_grad++) {
        for (int s = ACTUAL; s <= EXPECTED; s++) {
            nm_crf_args crf = {.emissions = x.m[s],
                               .transitions = transitions.m[s].data,
                               .start = start.m[s].data,
                               .end = end.m[s].data,
                               .packing = &packing,
                               .gold = gold.memory[s],
                               .grad_scale = 0.5,
                               .sums = sums.memory[s],
                               .d_emissions = with_grad ? d.m[s].data : NULL,
                               .d_transitions = with_grad ? d_transitions.m[s].data : NULL,
                               .d_start = with_grad ? d_start.m[s].data : NULL,
                               .d_end = with_grad ? d_end.m[s].data : NULL};
            p->on[s]->k.crf(p->on[s], &crf);
        }
        pair_compare_sums(p, (double *const[]){sums.memory[ACTUAL], sums.memory[EXPECTED]}, z.rows);
    }
    mat_compare(p, "d_emissions", d, 16, 1);
    mat_compare(p, "d_transitions", d_transitions, 16, 1);
    mat_compare(p, "d_start", d_start, 16, 1);
    mat_compare(p, "d_end", d_end, 16, 1);
}
