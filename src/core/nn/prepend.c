/* A token before each sequence, all sequences being of equal length:
 *     y        = [token; x_1; token; x_2; ..]
 *     dx      += the rows of dy of x
 *     dtoken  += sum of the rows of dy of the token */
#include "nn/tape.h"

typedef struct prepended {
    int32_t n_seqs;
    const int32_t *zeros; /* device, [n_seqs]: the row of `token` */
} prepended;

/* The rows of the token, one per sequence, and those of x, one sequence in each row of the matrix. */
static void split(const nm_backend *b, void *y, const nm_tensor *shape, int32_t n_seqs, nm_mat *token,
                  nm_mat *x)
{
    nm_mat sequences = nm_mat_of(y, n_seqs, shape->rows / n_seqs * shape->cols);
    *token = nm_mat_columns(b, sequences, 0, shape->cols);
    *x = nm_mat_columns(b, sequences, shape->cols, sequences.cols - shape->cols);
}

static void prepended_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const prepended *saved = node->saved;
    const nm_dropout no_drop = {0};
    nm_mat dtoken_rows, dx_rows, dx = nm_tensor_grad_sum(tape, node->in[0]);
    split(b, node->out->grad, node->out, saved->n_seqs, &dtoken_rows, &dx_rows);
    if (!dx.data)
        return;
    NM_CALL(b, add, .alpha = 1, .x = dx_rows, .y = nm_mat_of(dx.data, saved->n_seqs, dx_rows.cols));
    nm_mat dtoken = nm_learned_grad_sum(tape, node->in[1]);
    if (dtoken.data)
        NM_CALL(b, embed_grad, .ids = saved->zeros, .scale = 1, .dout = dtoken_rows, .drop = &no_drop,
                .dtable = dtoken);
}

static const nm_op prepended_op = {.name = "prepended", .backward = prepended_backward};

nm_tensor *nm_prepended(nm_tape *tape, nm_tensor *x, nm_tensor *token, int32_t n_seqs)
{
    nm_backend *b = tape->backend;
    nm_tensor *y = nm_tape_tensor(tape, x->rows + n_seqs, x->cols);
    prepended *saved = nm_tape_host(tape, sizeof *saved);
    const int32_t *host = nm_tape_host(tape, (size_t)n_seqs * sizeof *host);
    const int32_t *zeros = host ? nm_tape_upload(tape, host, (size_t)n_seqs * sizeof *host) : NULL;
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->rows % n_seqs == 0 && token->cols == x->cols);
    *saved = (prepended){n_seqs, zeros};
    y->unread = true;
    const nm_dropout no_drop = {0};
    nm_mat token_rows, x_rows;
    split(b, y->data, y, n_seqs, &token_rows, &x_rows);
    NM_CALL(b, embed, .ids = zeros, .scale = 1, .table = nm_tensor_mat(token), .drop = &no_drop,
            .out = token_rows);
    NM_CALL(b, scale, .alpha = 1, .x = nm_mat_of(x->data, n_seqs, x_rows.cols), .y = x_rows);
    nm_node *node = nm_tape_record(tape, &prepended_op, y, saved);
    node->in[0] = x;
    node->in[1] = token;
    return y;
}
