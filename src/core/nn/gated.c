/* Gated linear unit with dropout (Shazeer 2020, "GLU Variants Improve Transformer"), x = [g | l]:
 *     y  = drop(f(g) l)
 *     dg = drop(dy) l f'(g)
 *     dl = drop(dy) f(g) */
#include "nn/tape.h"

/* The arguments without y. */
static nm_gate_args gate_args(const nm_tape *tape, const nm_tensor *x, nm_map_op op)
{
    const nm_backend *b = tape->backend;
    int32_t width = x->cols / 2;
    return (nm_gate_args){.op = op,
                          .gate = nm_mat_columns(b, nm_tensor_mat(x), 0, width),
                          .x = nm_mat_columns(b, nm_tensor_mat(x), width, width)};
}

static void gated_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    nm_tensor *x = node->in[0], *y = node->out;
    const nm_map_op *op = node->saved;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, x, &add);
    /* Only this operation reads the projection: its gradient is assigned. */
    NM_ASSERT(!add);
    if (dx.data)
        NM_CALL(b, gate_grad, .forward = gate_args(tape, x, *op), .dy = nm_mat_of(y->grad, y->rows, y->cols),
                .dgate = nm_mat_columns(b, dx, 0, y->cols), .dx = nm_mat_columns(b, dx, y->cols, y->cols));
}

static const nm_op gated_op = {.name = "gated", .backward = gated_backward};

nm_tensor *nm_gated(nm_tape *tape, nm_tensor *x, nm_map_op op, double drop_rate)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols / 2);
    nm_map_op *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->cols % 2 == 0);
    *saved = op;
    nm_gate_args gate = gate_args(tape, x, op);
    gate.y = nm_tensor_mat(y);
    tape->backend->k.gate(tape->backend, &gate);
    nm_tape_record(tape, &gated_op, y, saved)->in[0] = x;
    nm_tensor *dropped = nm_dropped(tape, y, drop_rate);
    y->unread = true;
    if (dropped != y)
        nm_tape_discard(tape, y);
    return dropped;
}
