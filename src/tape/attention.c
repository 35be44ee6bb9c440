/* Multi-head scaled dot-product attention over packed sequences (Vaswani et al. 2017, eq. 1): per head
 *     A = softmax(Q K^T / sqrt(c)), out = drop(A) V
 * The weights are recomputed in backward from the soft-max denominators; no [tokens, tokens] matrix is kept.
 */
#include <math.h>

#include "tape/tape.h"

typedef struct attention_saved {
    int32_t width, k_first, v_first, heads;
    bool causal;
    nm_packing q_packing, k_packing;
    nm_dropout drop;
    void *lse;
} attention_saved;

static double score_scale(const attention_saved *saved)
{
    return 1 / sqrt((double)saved->width / saved->heads);
}

static void attention_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const attention_saved *s = node->saved;
    nm_tensor *q = node->in[0], *kv = node->in[1], *out = node->out;
    bool add_q, add_kv = false;
    nm_mat dq = nm_tensor_grad(tape, q, &add_q);
    nm_mat dkv = q == kv ? dq : nm_tensor_grad(tape, kv, &add_kv);
    NM_ASSERT(!add_q && !add_kv); /* projections feed one attention each: their gradients are assigned here */
    if (!dq.data || !dkv.data)
        return;
    b->k.attention_grad(b, nm_mat_columns(b, nm_tensor_mat(q), 0, s->width),
                        nm_mat_columns(b, nm_tensor_mat(kv), s->k_first, s->width),
                        nm_mat_columns(b, nm_tensor_mat(kv), s->v_first, s->width), &s->q_packing,
                        &s->k_packing, s->heads, s->causal, score_scale(s), &s->drop, nm_tensor_mat(out),
                        s->lse, nm_mat_of(out->grad, out->rows, out->cols),
                        nm_mat_columns(b, dq, 0, s->width), nm_mat_columns(b, dkv, s->k_first, s->width),
                        nm_mat_columns(b, dkv, s->v_first, s->width));
}

static const nm_op attention_op = {"attention", attention_backward};

nm_tensor *nm_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, int32_t width, int32_t k_first,
                        int32_t v_first, const nm_packing *q_packing, const nm_packing *k_packing,
                        int32_t heads, bool causal, double drop_rate)
{
    nm_tensor *out = nm_tape_tensor(tape, q->rows, width);
    attention_saved *s = nm_tape_host(tape, sizeof *s);
    size_t lse_bytes = (size_t)q->rows * (size_t)heads * nm_dtype_bytes(tape->backend->dtype);
    void *lse = tape->training ? nm_tape_take(tape, lse_bytes) : NULL;
    nm_dropout drop = nm_tape_dropout(tape, drop_rate);
    if (nm_tape_exhausted(tape))
        return out;
    NM_ASSERT(width % heads == 0 && q->rows == q_packing->n_tokens && kv->rows == k_packing->n_tokens);
    *s = (attention_saved){width, k_first, v_first, heads, causal, *q_packing, *k_packing, drop, lse};
    nm_backend *b = tape->backend;
    b->k.attention(b, nm_mat_columns(b, nm_tensor_mat(q), 0, width),
                   nm_mat_columns(b, nm_tensor_mat(kv), k_first, width),
                   nm_mat_columns(b, nm_tensor_mat(kv), v_first, width), q_packing, k_packing, heads, causal,
                   score_scale(s), &s->drop, nm_tensor_mat(out), lse);
    nm_node *node = nm_tape_record(tape, &attention_op, out, s);
    node->in[0] = q;
    node->in[1] = kv;
    return out;
}
