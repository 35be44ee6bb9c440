/* Residual connection:
 *     y  = x + drop(f)
 *     df = drop(dy)
 *     dx = dy              if x has no gradient yet, the memory of dy becomes that of dx without a copy */
#include "tape/tape.h"

static void residual_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const nm_dropout *drop = node->saved;
    nm_tensor *x = node->in[0], *f = node->in[1], *y = node->out;
    nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols);
    bool add;
    nm_mat df = nm_tensor_grad(tape, f, &add);
    if (df.data)
        NM_CALL(b, dropout, .x = dy, .drop = drop, .add = add, .y = df);
    if (!x->grad && x->pooled) {
        x->grad = y->grad;
        x->grad_started = true;
        y->grad = NULL;
        return;
    }
    nm_mat dx = nm_tensor_grad_sum(tape, x);
    if (dx.data)
        NM_CALL(b, add, .alpha = 1, .x = dy, .y = dx);
}

static const nm_op residual_op = {"residual", residual_backward};

nm_tensor *nm_residual(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    nm_dropout *drop = nm_tape_host(tape, sizeof *drop);
    nm_dropout next = nm_tape_dropout(tape, drop_rate);
    if (nm_tape_exhausted(tape))
        return y;
    *drop = next;
    NM_CALL(tape->backend, add_dropout, .x = nm_tensor_mat(x), .f = nm_tensor_mat(f), .drop = drop,
            .y = nm_tensor_mat(y));
    nm_node *node = nm_tape_record(tape, &residual_op, y, drop);
    node->in[0] = x;
    node->in[1] = f;
    return y;
}
