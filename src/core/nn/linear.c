/* Linear layer with activation and dropout:
 *     y   = drop(act(x W^T + b))
 *     dz  = act'(x W^T + b) drop(dy)
 *     dx  = dz W
 *     dW += dz^T x
 *     db += column sums of dz */
#include "nn/tape.h"

typedef struct linear_saved {
    nm_act act;
    nm_dropout drop;
} linear_saved;

static void linear_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const linear_saved *saved = node->saved;
    nm_tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[2], *y = node->out;
    nm_mat dz = nm_mat_of(y->grad, y->rows, y->cols), input = nm_tensor_mat(x);
    if (saved->act != NM_ACT_NONE || saved->drop.rate > 0)
        NM_CALL(b, act_grad, .act = saved->act, .drop = &saved->drop, .y = nm_tensor_mat(y), .dy = dz,
                .dz = dz);
    nm_mat dw = nm_learned_grad_sum(tape, weight), db = nm_learned_grad_sum(tape, bias);
    if (dw.data || db.data)
        NM_CALL(b, linear_grad_weight, .dy = dz, .x = input, .dw = dw, .db = db.data);
    bool add;
    nm_mat dx = x->fixed ? (nm_mat){0} : nm_tensor_grad(tape, x, &add);
    if (dx.data)
        NM_CALL(b, linear_grad_input, .dy = dz, .weight = nm_tensor_mat(weight), .add = add, .dx = dx);
}

static const nm_op linear_op = {.name = "linear", .backward = linear_backward};

nm_tensor *nm_linear(nm_tape *tape, nm_tensor *x, nm_tensor *weight, nm_tensor *bias, nm_act act,
                     double drop_rate)
{
    NM_ASSERT(nm_tape_exhausted(tape) || x->cols == weight->cols);
    nm_tensor *y = nm_tape_tensor(tape, x->rows, weight->rows);
    linear_saved *saved = nm_tape_host(tape, sizeof *saved);
    nm_dropout drop = nm_tape_dropout(tape, drop_rate);
    if (nm_tape_exhausted(tape))
        return y;
    *saved = (linear_saved){act, drop};
    y->unread = act == NM_ACT_NONE && drop.rate <= 0;
    nm_backend *b = tape->backend;
    NM_CALL(b, linear, .x = nm_tensor_mat(x), .weight = nm_tensor_mat(weight),
            .bias = bias ? bias->data : NULL, .act = act, .drop = &saved->drop, .y = nm_tensor_mat(y));
    nm_node *node = nm_tape_record(tape, &linear_op, y, saved);
    node->in[0] = x;
    node->in[1] = weight;
    node->in[2] = bias;
    return y;
}
