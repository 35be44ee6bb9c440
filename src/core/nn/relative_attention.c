/* Multi-head attention with relative positions as in TENER's code (Yan et al. 2019), over packed sequences,
 * without a scale; the formula is in src/core/backend/ref_relative.inc. The input is one fused projection
 * [q | k | v]. */
#include "nn/tape.h"

typedef struct relative_saved {
    nm_relative_attention_args call;
    nm_packing packing;
} relative_saved;

static void relative_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const relative_saved *s = node->saved;
    nm_tensor *qkv = node->in[0], *out = node->out;
    int32_t width = out->cols;
    bool add;
    nm_mat d = nm_tensor_grad(tape, qkv, &add);
    NM_ASSERT(!add); /* only this attention reads the projection: its gradient is assigned */
    if (!d.data)
        return;
    NM_CALL(b, relative_attention_grad, .forward = s->call,
            .dout = nm_mat_of(out->grad, out->rows, out->cols), .dq = nm_mat_columns(b, d, 0, width),
            .dk = nm_mat_columns(b, d, width, width), .dv = nm_mat_columns(b, d, 2 * width, width),
            .d_key_bias = nm_tensor_grad_sum(tape, node->in[1]).data,
            .d_distance_bias = nm_tensor_grad_sum(tape, node->in[2]).data);
}

static const nm_op relative_op = {.name = "relative_attention", .backward = relative_backward};

nm_tensor *nm_relative_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *key_bias, nm_tensor *distance_bias,
                                 const nm_relative_table *table, const nm_packing *packing, int32_t heads,
                                 double drop_rate)
{
    int32_t width = qkv->cols / 3;
    nm_tensor *out = nm_tape_tensor(tape, qkv->rows, width);
    relative_saved *s = nm_tape_host(tape, sizeof *s);
    size_t lse_bytes = (size_t)qkv->rows * (size_t)heads * nm_dtype_bytes(tape->backend->dtype);
    void *lse = tape->training ? nm_tape_alloc(tape, lse_bytes) : NULL;
    nm_dropout drop = nm_tape_dropout(tape, drop_rate);
    if (nm_tape_exhausted(tape))
        return out;
    nm_backend *b = tape->backend;
    nm_mat all = nm_tensor_mat(qkv);
    s->packing = *packing;
    s->call = (nm_relative_attention_args){.q = nm_mat_columns(b, all, 0, width),
                                           .k = nm_mat_columns(b, all, width, width),
                                           .v = nm_mat_columns(b, all, 2 * width, width),
                                           .q_packing = &s->packing,
                                           .k_packing = &s->packing,
                                           .heads = heads,
                                           .key_bias = key_bias->data,
                                           .distance_bias = distance_bias->data,
                                           .positions = table->rows,
                                           .zero_row = table->zero_row,
                                           .drop = drop,
                                           .out = nm_tensor_mat(out),
                                           .lse = lse};
    b->k.relative_attention(b, &s->call);
    nm_node *node = nm_tape_record(tape, &relative_op, out, s);
    node->in[0] = qkv;
    node->in[1] = key_bias;
    node->in[2] = distance_bias;
    return out;
}
