/* FixNorm (Nguyen and Chiang 2018; Nguyen and Salazar 2019, section 2.3): L2-normalized embeddings, for each
 * row v of W
 *     y_v = W_v / max(|W_v|, 1e-12)
 * The parameter W is not constrained; the division is part of the graph. */
#include "nn/tape.h"

static const nm_token_norm l2_norm = {.kind = NM_TOKEN_L2, .groups = 1, .eps = 1e-12};

static void l2_normalize_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    nm_tensor *table = node->in[0], *normalized = node->out;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, table, &add);
    if (dx.data)
        NM_CALL(b, token_norm_grad, .spec = &l2_norm,
                .dy = nm_mat_of(normalized->grad, normalized->rows, normalized->cols),
                .x = nm_tensor_mat(table), .scale = node->saved, .add = add, .dx = dx);
}

static const nm_op l2_normalize_op = {.name = "l2_normalize", .backward = l2_normalize_backward};

nm_tensor *nm_l2_normalize(nm_tape *tape, nm_tensor *table)
{
    nm_tensor *normalized = nm_tape_tensor(tape, table->rows, table->cols);
    void *scale = nm_tape_alloc(tape, (size_t)table->rows * nm_dtype_bytes(tape->backend->dtype));
    if (nm_tape_exhausted(tape))
        return normalized;
    NM_CALL(tape->backend, token_norm, .spec = &l2_norm, .x = nm_tensor_mat(table),
            .y = nm_tensor_mat(normalized), .scale = scale);
    nm_tape_record(tape, &l2_normalize_op, normalized, scale)->in[0] = table;
    return normalized;
}
