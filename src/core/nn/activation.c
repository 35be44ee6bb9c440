/* Pointwise activation with dropout:
 *     y  = drop(f(x))
 *     dx = f'(x) drop(dy)
 * The linear layer computes relu itself (linear.c). */
#include "nn/tape.h"

static void activation_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *x = node->in[0], *y = node->out;
    const nm_map_op *op = node->saved;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, x, &add);
    if (dx.data)
        NM_CALL(tape->backend, map_grad, .forward = {.op = *op, .x = nm_tensor_mat(x)},
                .dy = nm_mat_of(y->grad, y->rows, y->cols), .add = add, .dx = dx);
}

static const nm_op activation_op = {.name = "activation", .backward = activation_backward};

nm_tensor *nm_activated(nm_tape *tape, nm_tensor *x, nm_map_op op, double drop_rate)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    nm_map_op *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    *saved = op;
    NM_CALL(tape->backend, map, .op = op, .x = nm_tensor_mat(x), .y = nm_tensor_mat(y));
    nm_tape_record(tape, &activation_op, y, saved)->in[0] = x;
    nm_tensor *dropped = nm_dropped(tape, y, drop_rate);
    y->unread = true;
    if (dropped != y)
        nm_tape_discard(tape, y);
    return dropped;
}
