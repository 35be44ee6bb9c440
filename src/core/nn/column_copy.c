/* A copy of columns:
 *     y                = x[:, first .. first + cols - 1]
 *     dx[:, the same] += dy */
#include "nn/tape.h"

static void column_copy_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const nm_tensor *y = node->out;
    const int32_t *first = node->saved;
    nm_mat dx = nm_tensor_grad_sum(tape, node->in[0]);
    if (dx.data)
        NM_CALL(b, add, .alpha = 1, .x = nm_mat_of(y->grad, y->rows, y->cols),
                .y = nm_mat_columns(b, dx, *first, y->cols));
}

static const nm_op column_copy_op = {.name = "column_copy", .backward = column_copy_backward};

nm_tensor *nm_column_copy(nm_tape *tape, nm_tensor *x, int32_t first, int32_t cols)
{
    nm_backend *b = tape->backend;
    nm_tensor *y = nm_tape_tensor(tape, x->rows, cols);
    int32_t *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    *saved = first;
    y->unread = true;
    NM_CALL(b, scale, .alpha = 1, .x = nm_mat_columns(b, nm_tensor_mat(x), first, cols),
            .y = nm_tensor_mat(y));
    nm_tape_record(tape, &column_copy_op, y, saved)->in[0] = x;
    return y;
}
