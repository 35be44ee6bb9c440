/* Embedding lookup with positional embeddings; gradients are added in the order of i:
 *     y_i       = drop(scale E[id_i] + P[pos_i])
 *     dE[id_i] += scale drop(dy_i) */
#include "nn/tape.h"

typedef struct embed_saved {
    const int32_t *ids; /* device */
    double scale;
    nm_dropout drop;
} embed_saved;

static void embed_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const embed_saved *saved = node->saved;
    nm_tensor *y = node->out;
    nm_mat dtable = nm_learned_grad_sum(tape, node->in[0]);
    if (dtable.data)
        NM_CALL(b, embed_grad, .ids = saved->ids, .scale = saved->scale,
                .dout = nm_mat_of(y->grad, y->rows, y->cols), .drop = &saved->drop, .dtable = dtable);
}

static const nm_op embed_op = {.name = "embed", .backward = embed_backward};

nm_tensor *nm_embed(nm_tape *tape, nm_tensor *table, const int32_t *ids, const int32_t *pos, int32_t n,
                    double scale, const nm_mat *positions, double drop_rate)
{
    nm_tensor *y = nm_tape_tensor(tape, n, table->cols);
    embed_saved *saved = nm_tape_host(tape, sizeof *saved);
    const int32_t *device_ids = nm_tape_upload(tape, ids, (size_t)n * sizeof *ids);
    const int32_t *device_pos = positions ? nm_tape_upload(tape, pos, (size_t)n * sizeof *pos) : NULL;
    nm_dropout drop = nm_tape_dropout(tape, drop_rate);
    if (nm_tape_exhausted(tape))
        return y;
    *saved = (embed_saved){device_ids, scale, drop};
    nm_backend *b = tape->backend;
    NM_CALL(b, embed, .ids = device_ids, .pos = device_pos, .scale = scale, .table = nm_tensor_mat(table),
            .positions = positions ? *positions : (nm_mat){0}, .drop = &saved->drop, .out = nm_tensor_mat(y));
    nm_tape_record(tape, &embed_op, y, saved)->in[0] = table;
    return y;
}
