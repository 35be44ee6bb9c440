/* Grouped-query attention (Ainslie et al. 2023, "GQA"): each key or value head is repeated for the query
 * heads that read it, with j(i) = floor(i key_heads / heads):
 *     y_i   = x_j(i)
 *     dx_j += sum of dy_i over the heads i with j(i) = j, in the order of i */
#include "nn/tape.h"

/* Columns of head i of `heads`. */
static nm_mat head_columns(const nm_backend *b, nm_mat mat, int32_t heads, int32_t i)
{
    int32_t width = mat.cols / heads;
    return nm_mat_columns(b, mat, i * width, width);
}

typedef struct repeated_saved {
    int32_t key_heads, heads;
} repeated_saved;

static void repeated_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const repeated_saved *s = node->saved;
    nm_tensor *x = node->in[0], *y = node->out;
    nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols), dx = nm_tensor_grad_sum(tape, x);
    for (int32_t i = 0; dx.data && i < s->heads; i++)
        NM_CALL(b, add, .alpha = 1, .x = head_columns(b, dy, s->heads, i),
                .y = head_columns(b, dx, s->key_heads, i / (s->heads / s->key_heads)));
}

static const nm_op repeated_op = {.name = "repeated_heads", .backward = repeated_backward};

nm_tensor *nm_repeated_heads(nm_tape *tape, nm_tensor *x, int32_t key_heads, int32_t heads)
{
    NM_ASSERT(key_heads > 0 && heads % key_heads == 0);
    if (key_heads == heads)
        return x;
    nm_backend *b = tape->backend;
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols / key_heads * heads);
    repeated_saved *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->cols % key_heads == 0);
    *saved = (repeated_saved){key_heads, heads};
    y->unread = true;
    for (int32_t i = 0; i < heads; i++)
        NM_CALL(b, scale, .alpha = 1,
                .x = head_columns(b, nm_tensor_mat(x), key_heads, i / (heads / key_heads)),
                .y = head_columns(b, nm_tensor_mat(y), heads, i));
    nm_tape_record(tape, &repeated_op, y, saved)->in[0] = x;
    return y;
}
