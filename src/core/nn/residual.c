/* Residual connection:
 *     y   = x + drop(f)
 *     df += drop(dy)
 *     dx += dy
 * If x has no gradient yet, dx takes over the memory of dy without a copy.
 *
 * nm_residual_normalize (normalize.c) computes y and the norm that reads it in one pass over memory. */
#include "nn/residual.h"

nm_mat nm_residual_grad_of(nm_tape *tape, nm_node *residual, nm_residual_grad *grad)
{
    nm_residual_saved *saved = residual->saved;
    nm_tensor *f = residual->in[1];
    *grad = (nm_residual_grad){.drop = &saved->drop};
    grad->df = nm_tensor_grad(tape, f, &grad->add);
    saved->has_df = true;
    return grad->df;
}

void nm_residual_pass_gradient(nm_tape *tape, nm_tensor *y, nm_tensor *x)
{
    if (!x->grad && x->pooled) {
        x->grad = y->grad;
        x->grad_started = true;
        y->grad = NULL;
        return;
    }
    nm_mat dx = nm_tensor_grad_sum(tape, x);
    if (dx.data)
        NM_CALL(tape->backend, add, .alpha = 1, .x = nm_mat_of(y->grad, y->rows, y->cols), .y = dx);
}

static void residual_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const nm_residual_saved *saved = node->saved;
    nm_tensor *y = node->out;
    nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols);
    nm_residual_grad grad;
    if (!saved->has_df && nm_residual_grad_of(tape, node, &grad).data)
        NM_CALL(b, dropout, .x = dy, .drop = grad.drop, .add = grad.add, .y = grad.df);
    nm_residual_pass_gradient(tape, y, node->in[0]);
}

static const nm_op residual_op = {.name = "residual", .backward = residual_backward};

nm_node *nm_residual_record(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate, nm_tensor **out)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    nm_residual_saved *saved = nm_tape_host(tape, sizeof *saved);
    nm_dropout next = nm_tape_dropout(tape, drop_rate);
    *out = y;
    if (nm_tape_exhausted(tape))
        return NULL;
    saved->drop = next;
    saved->sum = (nm_residual_sum){nm_tensor_mat(x), nm_tensor_mat(f), &saved->drop};
    nm_node *node = nm_tape_record(tape, &residual_op, y, saved);
    node->saved = saved; /* nm_residual_compute needs it at inference, too */
    node->in[0] = x;
    node->in[1] = f;
    return node;
}

void nm_residual_compute(nm_tape *tape, const nm_node *residual, nm_tensor *y)
{
    const nm_residual_saved *saved = residual->saved;
    NM_CALL(tape->backend, add_dropout, .x = saved->sum.stream, .f = saved->sum.f, .drop = &saved->drop,
            .y = nm_tensor_mat(y));
}

nm_tensor *nm_residual(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate)
{
    nm_tensor *y;
    const nm_node *node = nm_residual_record(tape, x, f, drop_rate, &y);
    if (node)
        nm_residual_compute(tape, node, y);
    return y;
}
