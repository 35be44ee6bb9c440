/* Block-term attention (Ma et al. 2019), without softmax: a query attends to all pairs of a key and a value,
 * weighted per feature by a core. The formula is at nm_block_term_args in norma/backend.h. The backward
 * kernel recomputes the intermediates of the forward pass; none is stored. */
#include "nn/tape.h"

typedef struct term_saved {
    nm_block_term_params params;
    nm_tensor *positions;
    nm_packing packing;
    bool causal;
} term_saved;

static nm_block_term_args term_of(const nm_backend *b, const nm_tensor *qkv, const term_saved *s)
{
    nm_mat all = nm_tensor_mat(qkv);
    int32_t h = qkv->cols / 3;
    return (nm_block_term_args){.q = nm_mat_columns(b, all, 0, h),
                                .k = nm_mat_columns(b, all, h, h),
                                .v = nm_mat_columns(b, all, 2 * h, h),
                                .positions = nm_tensor_mat(s->positions),
                                .weight = nm_tensor_mat(s->params.weight),
                                .core = nm_tensor_mat(s->params.core),
                                .content_bias = s->params.content_bias->data,
                                .position_bias = s->params.position_bias->data,
                                .packing = &s->packing,
                                .length = s->positions->rows,
                                .causal = s->causal};
}

static void block_term_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const term_saved *s = node->saved;
    nm_tensor *qkv = node->in[0], *out = node->out;
    bool add, add_positions;
    nm_mat dqkv = nm_tensor_grad(tape, qkv, &add),
           dpositions = nm_tensor_grad(tape, s->positions, &add_positions);
    /* Only this attention reads the projections: their gradients are assigned. */
    NM_ASSERT(!add && !add_positions);
    if (!dqkv.data || !dpositions.data)
        return;
    int32_t h = qkv->cols / 3;
    NM_CALL(b, block_term_grad, .forward = term_of(b, qkv, s),
            .dout = nm_mat_of(out->grad, out->rows, out->cols), .dq = nm_mat_columns(b, dqkv, 0, h),
            .dk = nm_mat_columns(b, dqkv, h, h), .dv = nm_mat_columns(b, dqkv, 2 * h, h),
            .dpositions = dpositions, .dweight = nm_tensor_grad_sum(tape, s->params.weight),
            .dcore = nm_tensor_grad_sum(tape, s->params.core),
            .dcontent_bias = nm_tensor_grad_sum(tape, s->params.content_bias).data,
            .dposition_bias = nm_tensor_grad_sum(tape, s->params.position_bias).data);
}

static const nm_op block_term_op = {
    .name = "block_term", .backward = block_term_backward, .learns = nm_op_learns};

nm_tensor *nm_block_term_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *positions,
                                   const nm_block_term_params *params, const nm_packing *packing, bool causal)
{
    nm_tensor *out = nm_tape_tensor(tape, qkv->rows, params->weight->cols);
    term_saved *s = nm_tape_host(tape, sizeof *s);
    if (nm_tape_exhausted(tape))
        return out;
    NM_ASSERT(qkv->rows == packing->n_tokens && packing->longest <= positions->rows);
    *s = (term_saved){*params, positions, *packing, causal};
    nm_block_term_args term = term_of(tape->backend, qkv, s);
    term.out = nm_tensor_mat(out);
    tape->backend->k.block_term(tape->backend, &term);
    nm_tape_record(tape, &block_term_op, out, s)->in[0] = qkv;
    return out;
}
