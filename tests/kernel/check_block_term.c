/* Block-term attention, causal and not. */
#include "kernel_checks.h"

typedef struct term_inputs {
    test_packing packing;
    test_mat qkv, part[3], positions, weight, core, content, position;
    nm_block_term_args side[2];
} term_inputs;

/* Segments of up to 5 tokens; if causal, the last one is shorter. */
static int32_t term_init(pair *p, term_inputs *in, size z, bool causal)
{
    int32_t length = z.rows < 5 ? z.rows : 5, h = z.cols % 9 + 1, n_seqs = z.rows / length;
    n_seqs = n_seqs > MAX_SEQS ? MAX_SEQS : n_seqs;
    int32_t tokens = causal && length > 1 ? n_seqs * length - 1 : n_seqs * length;
    packing_init(p, &in->packing, n_seqs, length, tokens);
    in->qkv = pair_random(p, tokens, 3 * h, z.gap);
    for (int i = 0; i < 3; i++)
        in->part[i] = mat_slice(p, in->qkv, i * h, h);
    in->positions = pair_random(p, length, h, 0);
    in->weight = pair_random(p, length * length, z.cols, z.gap);
    in->core = pair_random(p, 2, h, 0);
    in->content = random_vector(p, h);
    in->position = random_vector(p, h);
    for (int s = ACTUAL; s <= EXPECTED; s++)
        in->side[s] = (nm_block_term_args){.q = in->part[0].m[s],
                                           .k = in->part[1].m[s],
                                           .v = in->part[2].m[s],
                                           .positions = in->positions.m[s],
                                           .weight = in->weight.m[s],
                                           .core = in->core.m[s],
                                           .content_bias = in->content.m[s].data,
                                           .position_bias = in->position.m[s].data,
                                           .packing = &in->packing.side[s],
                                           .length = length,
                                           .causal = causal};
    return tokens;
}

/* Sums of 25 pairs times 9 features of products of three and more factors: large terms cancel. */
enum { TERM_ULPS = 256, TERM_SIZE = 8 };

void check_block_term(pair *p, size z)
{
    for (int causal = 0; causal < 2; causal++) {
        term_inputs in;
        int32_t tokens = term_init(p, &in, z, causal);
        test_mat out = pair_random(p, tokens, z.cols, z.gap);
        for (int s = ACTUAL; s <= EXPECTED; s++) {
            in.side[s].out = out.m[s];
            p->on[s]->k.block_term(p->on[s], &in.side[s]);
        }
        mat_compare(p, "out", out, TERM_ULPS, TERM_SIZE);
    }
}

void check_block_term_grad(pair *p, size z)
{
    for (int causal = 0; causal < 2; causal++) {
        term_inputs in, d;
        int32_t tokens = term_init(p, &in, z, causal);
        term_init(p, &d, z, causal);
        test_mat dout = pair_random(p, tokens, z.cols, z.gap);
        BOTH(p, block_term_grad, .forward = in.side[s], .dout = dout.m[s], .dq = d.part[0].m[s],
             .dk = d.part[1].m[s], .dv = d.part[2].m[s], .dpositions = d.positions.m[s],
             .dweight = d.weight.m[s], .dcore = d.core.m[s], .dcontent_bias = d.content.m[s].data,
             .dposition_bias = d.position.m[s].data);
        double wide = TERM_SIZE * sqrt((double)z.cols);
        mat_compare(p, "dqkv", d.qkv, TERM_ULPS, wide);
        mat_compare(p, "dpositions", d.positions, TERM_ULPS, wide);
        mat_compare(p, "dweight", d.weight, TERM_ULPS, TERM_SIZE);
        mat_compare(p, "dcore", d.core, TERM_ULPS, wide);
        mat_compare(p, "dcontent", d.content, TERM_ULPS, wide);
        mat_compare(p, "dplace", d.position, TERM_ULPS, wide);
    }
}
