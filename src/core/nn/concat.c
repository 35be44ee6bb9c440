/* Concatenation of up to four tensors along features:
 *     y     = [x_0 | x_1 | ...]
 *     dx_k += the columns of dy that x_k has in y */
#include "nn/tape.h"

static void concat_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    nm_tensor *y = node->out;
    nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols);
    int32_t first = 0;
    for (int i = 0; i < 4 && node->in[i]; i++) {
        nm_mat dx = nm_tensor_grad_sum(tape, node->in[i]);
        if (dx.data)
            NM_CALL(b, add, .alpha = 1, .x = nm_mat_columns(b, dy, first, node->in[i]->cols), .y = dx);
        first += node->in[i]->cols;
    }
}

static const nm_op concat_op = {.name = "concat", .backward = concat_backward};

nm_tensor *nm_concat(nm_tape *tape, nm_tensor *const *parts, int n)
{
    int32_t cols = 0, first = 0;
    NM_ASSERT(n >= 1 && n <= 4);
    if (n == 1)
        return parts[0];
    for (int i = 0; i < n; i++)
        cols += parts[i]->cols;
    nm_tensor *y = nm_tape_tensor(tape, parts[0]->rows, cols);
    if (nm_tape_exhausted(tape))
        return y;
    nm_backend *b = tape->backend;
    nm_node *node = nm_tape_record(tape, &concat_op, y, NULL);
    for (int i = 0; i < n; i++) {
        NM_ASSERT(parts[i]->rows == y->rows);
        NM_CALL(b, scale, .alpha = 1, .x = nm_tensor_mat(parts[i]),
                .y = nm_mat_columns(b, nm_tensor_mat(y), first, parts[i]->cols));
        first += parts[i]->cols;
        node->in[i] = parts[i];
    }
    return y;
}
