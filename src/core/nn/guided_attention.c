/* Guided alignment: the attention weights of one head learn given alignments; the formula is at
 * nm_guided_attention_args in norma/backend.h. The loss is added to the task's loss as a penalty. */
#include "nn/tape.h"

typedef struct guided_saved {
    nm_guided_attention_args args;
    nm_packing q_packing, k_packing;
    int32_t first, k_first; /* first column of the head in q and in kv */
} guided_saved;

static void guided_backward(nm_tape *tape, nm_node *node)
{
    guided_saved *s = node->saved;
    nm_backend *b = tape->backend;
    bool add_q, add_kv;
    if (node->in[0]->fixed && node->in[1]->fixed)
        return;
    nm_mat dq = nm_tensor_grad(tape, node->in[0], &add_q), dkv = nm_tensor_grad(tape, node->in[1], &add_kv);
    NM_ASSERT(add_q && add_kv); /* nm_attention is recorded later, so its backward has assigned both */
    if (!dq.data || !dkv.data)
        return;
    s->args.loss = NULL;
    s->args.dq = nm_mat_columns(b, dq, s->first, s->args.q.cols);
    s->args.dk = nm_mat_columns(b, dkv, s->k_first, s->args.k.cols);
    b->k.guided_attention(b, &s->args);
}

static const nm_op guided_op = {.name = "guided_attention", .backward = guided_backward};

void nm_guided_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                         const nm_packing *q_packing, const nm_packing *k_packing,
                         const nm_alignment_guide *guide)
{
    if (!tape->training)
        return;
    guided_saved *s = nm_tape_host(tape, sizeof *s);
    const size_t n_points = (size_t)guide->offsets[q->rows];
    double *loss = nm_tape_alloc(tape, sizeof *loss);
    const int32_t *offsets = nm_tape_upload(tape, guide->offsets, ((size_t)q->rows + 1) * sizeof *offsets);
    const int32_t *keys = nm_tape_upload(tape, guide->keys, n_points * sizeof *keys);
    if (nm_tape_exhausted(tape))
        return;
    nm_backend *b = tape->backend;
    const int32_t width = shape->key_width / shape->heads, first = guide->head * width;
    *s = (guided_saved){
        .q_packing = *q_packing, .k_packing = *k_packing, .first = first, .k_first = shape->k_first + first};
    s->args = (nm_guided_attention_args){.q = nm_mat_columns(b, nm_tensor_mat(q), first, width),
                                         .k = nm_mat_columns(b, nm_tensor_mat(kv), s->k_first, width),
                                         .q_packing = &s->q_packing,
                                         .k_packing = &s->k_packing,
                                         .scale = shape->scale,
                                         .weight = guide->weight,
                                         .grad_scale = tape->grad_scale,
                                         .offsets = offsets,
                                         .keys = keys,
                                         .loss = loss};
    b->k.guided_attention(b, &s->args);
    nm_tape_record_penalty(tape, loss);
    nm_node *node = nm_tape_record(tape, &guided_op, NULL, s);
    node->in[0] = q;
    node->in[1] = kv;
}
