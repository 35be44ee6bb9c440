/* Multi-head scaled dot-product attention over packed sequences (Vaswani et al. 2017, eq. 1): per head of
 * width c
 *     A   = softmax(scale Q K^T)        usually scale = 1/sqrt(c)
 *     out = drop(A) V
 * Backward recomputes A from the log-sum-exp of each row of scores (lse); no [tokens, tokens] matrix is
 * stored. */
#include "nn/tape.h"

typedef struct attention_saved {
    nm_attention_shape shape;
    nm_packing q_packing, k_packing;
    nm_dropout drop;
    void *lse; /* device [heads, query tokens] */
} attention_saved;

static void attention_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const attention_saved *s = node->saved;
    nm_tensor *q = node->in[0], *kv = node->in[1], *out = node->out;
    bool add_q, add_kv = false;
    nm_mat dq = nm_tensor_grad(tape, q, &add_q);
    nm_mat dkv = q == kv ? dq : nm_tensor_grad(tape, kv, &add_kv);
    /* Only this attention reads the projections: their gradients are assigned. */
    NM_ASSERT(!add_q && !add_kv);
    if (!dq.data || !dkv.data)
        return;
    const nm_attention_shape *a = &s->shape;
    nm_mat from = nm_tensor_mat(kv);
    NM_CALL(b, attention_grad,
            .forward = {.q = nm_mat_columns(b, nm_tensor_mat(q), 0, a->key_width),
                        .k = nm_mat_columns(b, from, a->k_first, a->key_width),
                        .v = nm_mat_columns(b, from, a->v_first, a->value_width),
                        .q_packing = &s->q_packing,
                        .k_packing = &s->k_packing,
                        .heads = a->heads,
                        .causal = a->causal,
                        .window = a->window,
                        .scale = a->scale,
                        .drop = &s->drop,
                        .out = nm_tensor_mat(out),
                        .lse = s->lse},
            .dout = nm_mat_of(out->grad, out->rows, out->cols), .dq = nm_mat_columns(b, dq, 0, a->key_width),
            .dk = nm_mat_columns(b, dkv, a->k_first, a->key_width),
            .dv = nm_mat_columns(b, dkv, a->v_first, a->value_width));
}

static const nm_op attention_op = {.name = "attention", .backward = attention_backward};

nm_tensor *nm_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                        const nm_packing *q_packing, const nm_packing *k_packing, double drop_rate)
{
    nm_tensor *out = nm_tape_tensor(tape, q->rows, shape->value_width);
    attention_saved *s = nm_tape_host(tape, sizeof *s);
    size_t lse_bytes = (size_t)q->rows * (size_t)shape->heads * nm_dtype_bytes(tape->backend->dtype);
    void *lse = tape->training ? nm_tape_alloc(tape, lse_bytes) : NULL;
    nm_dropout drop = nm_tape_dropout(tape, drop_rate);
    if (nm_tape_exhausted(tape))
        return out;
    NM_ASSERT(shape->key_width % shape->heads == 0 && shape->value_width % shape->heads == 0);
    NM_ASSERT(q->rows == q_packing->n_tokens && kv->rows == k_packing->n_tokens);
    *s = (attention_saved){*shape, *q_packing, *k_packing, drop, lse};
    nm_backend *b = tape->backend;
    const nm_attention_args args = {
        .q = nm_mat_columns(b, nm_tensor_mat(q), 0, shape->key_width),
        .k = nm_mat_columns(b, nm_tensor_mat(kv), shape->k_first, shape->key_width),
        .v = nm_mat_columns(b, nm_tensor_mat(kv), shape->v_first, shape->value_width),
        .q_packing = q_packing,
        .k_packing = k_packing,
        .heads = shape->heads,
        .causal = shape->causal,
        .window = shape->window,
        .scale = shape->scale,
        .drop = &s->drop,
        .out = nm_tensor_mat(out),
        .lse = lse};
    b->k.attention(b, &args);
    if (tape->listen_attention && shape->site && !tape->recomputed)
        tape->listen_attention(tape->listener, &(nm_attention_call){b, shape->site, &args});
    nm_node *node = nm_tape_record(tape, &attention_op, out, s);
    node->in[0] = q;
    node->in[1] = kv;
    return out;
}
