/* Dropout; both directions use the same mask:
 *     y  = drop(x)
 *     dx = drop(dy) */
#include "nn/tape.h"

static void dropout_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *x = node->in[0], *y = node->out;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, x, &add);
    if (dx.data)
        NM_CALL(tape->backend, dropout, .x = nm_mat_of(y->grad, y->rows, y->cols), .drop = node->saved,
                .add = add, .y = dx);
}

static const nm_op dropout_op = {.name = "dropout", .backward = dropout_backward};

nm_tensor *nm_dropped(nm_tape *tape, nm_tensor *x, double rate)
{
    nm_dropout next = nm_tape_dropout(tape, rate);
    if (next.rate <= 0)
        return x;
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    nm_dropout *drop = nm_tape_host(tape, sizeof *drop);
    if (nm_tape_exhausted(tape))
        return y;
    *drop = next;
    NM_CALL(tape->backend, dropout, .x = nm_tensor_mat(x), .drop = drop, .y = nm_tensor_mat(y));
    nm_tape_record(tape, &dropout_op, y, drop)->in[0] = x;
    return y;
}
