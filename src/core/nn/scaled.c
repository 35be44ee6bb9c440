/* Multiplication by a constant:
 *     y   = factor x
 *     dx += factor dy */
#include "nn/tape.h"

static void scaled_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    nm_tensor *x = node->in[0], *y = node->out;
    const double *factor = node->saved;
    nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols);
    bool add;
    nm_mat dx = nm_tensor_grad(tape, x, &add);
    if (!dx.data)
        return;
    if (add)
        NM_CALL(b, add, .alpha = *factor, .x = dy, .y = dx);
    else
        NM_CALL(b, scale, .alpha = *factor, .x = dy, .y = dx);
}

static const nm_op scaled_op = {.name = "scaled", .backward = scaled_backward};

nm_tensor *nm_scaled(nm_tape *tape, nm_tensor *x, double factor)
{
    if (factor == 1)
        return x;
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    double *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    *saved = factor;
    y->unread = true;
    NM_CALL(tape->backend, scale, .alpha = factor, .x = nm_tensor_mat(x), .y = nm_tensor_mat(y));
    nm_tape_record(tape, &scaled_op, y, saved)->in[0] = x;
    return y;
}
