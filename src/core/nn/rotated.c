/* Rotary position embeddings (Su et al. 2021, "RoFormer", equation 34), see nm_rotate_args. R_p is the
 * rotation of the pairs of columns of each head by the angles of position p:
 *     y_i   = R_p x_i              p = positions[i]
 *     dx_i += R_p^T dy_i           the rotation by the negative angles */
#include "nn/tape.h"

static void rotated_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    nm_tensor *x = node->in[0], *y = node->out;
    nm_rotate_args inverse = *(const nm_rotate_args *)node->saved;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, x, &add);
    if (!dx.data)
        return;
    inverse.inverse = true;
    inverse.x = nm_mat_of(y->grad, y->rows, y->cols);
    /* No other node reads dy, so that a sum needs no memory for the rotated dy. */
    inverse.y = add ? inverse.x : dx;
    b->k.rotate(b, &inverse);
    if (add)
        NM_CALL(b, add, .alpha = 1, .x = inverse.y, .y = dx);
}

static const nm_op rotated_op = {.name = "rotated", .backward = rotated_backward};

nm_tensor *nm_rotated(nm_tape *tape, nm_tensor *x, const nm_mat *table, const int32_t *positions,
                      int32_t heads, bool interleaved)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    nm_rotate_args *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    *saved = (nm_rotate_args){.x = nm_tensor_mat(x),
                              .table = *table,
                              .positions = positions,
                              .heads = heads,
                              .interleaved = interleaved,
                              .y = nm_tensor_mat(y)};
    y->unread = true;
    tape->backend->k.rotate(tape->backend, saved);
    nm_tape_record(tape, &rotated_op, y, saved)->in[0] = x;
    return y;
}
