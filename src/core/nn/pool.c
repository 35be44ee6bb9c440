/* Pooling of a packed matrix: one vector per sequence s, which has n_s rows.
 *     first   y_s = x_(first row of s)                 dx_(first row of s) += dy_s
 *     mean    y_s = 1/n_s sum over rows i of s x_i     dx_i += dy_s / n_s
 *     sum     y_s = sum over rows i of s w_(id_i) x_i  dx_i += w_(id_i) dy_s
 * There is no padding, so no mask is needed. */
#include "nn/tape.h"

typedef struct pool_saved {
    nm_packing packing;
    const int32_t *first; /* device [n_seqs] */
    void *weights;        /* device [tokens]: weights of the rows; NULL for first */
} pool_saved;

/* Sets *weights [1, n_s] and *rows [n_s, cols] to the weights and the rows of x of sequence s. */
static void sequence_of(nm_tape *tape, const pool_saved *saved, nm_mat x, int32_t s, nm_mat *weights,
                        nm_mat *rows)
{
    size_t element = nm_dtype_bytes(tape->backend->dtype);
    int32_t begin = saved->packing.offsets[s], n = saved->packing.offsets[s + 1] - begin;
    *weights = nm_mat_of((char *)saved->weights + (size_t)begin * element, 1, n);
    *rows = x;
    rows->data = (char *)x.data + (size_t)begin * (size_t)x.stride * element;
    rows->rows = n;
}

static nm_mat row_of(nm_tape *tape, nm_mat y, int32_t s)
{
    y.data = (char *)y.data + (size_t)s * (size_t)y.stride * nm_dtype_bytes(tape->backend->dtype);
    y.rows = 1;
    return y;
}

static void pool_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const pool_saved *saved = node->saved;
    const nm_dropout no_drop = {0};
    nm_mat dy = nm_mat_of(node->out->grad, node->out->rows, node->out->cols);
    nm_mat dx = nm_tensor_grad_sum(tape, node->in[0]), weights, rows;
    if (!dx.data)
        return;
    if (!saved->weights) {
        NM_CALL(b, embed_grad, .ids = saved->first, .scale = 1, .dout = dy, .drop = &no_drop, .dtable = dx);
        return;
    }
    for (int32_t s = 0; s < saved->packing.n_seqs; s++) {
        sequence_of(tape, saved, dx, s, &weights, &rows);
        NM_CALL(b, gemm, .ta = true, .alpha = 1, .a = weights, .b = row_of(tape, dy, s), .beta = 1,
                .c = rows);
    }
}

static const nm_op pool_op = {.name = "pool", .backward = pool_backward};

/* Weights of the mean, device [tokens]; NULL if the tape is exhausted. */
static void *upload_row_weights(nm_tape *tape, const nm_packing *packing)
{
    nm_dtype dtype = tape->backend->dtype;
    size_t bytes = (size_t)packing->n_tokens * nm_dtype_bytes(dtype);
    void *host = nm_tape_host(tape, bytes);
    for (int32_t s = 0; host && s < packing->n_seqs; s++) {
        double weight = 1.0 / (packing->offsets[s + 1] - packing->offsets[s]);
        for (int32_t i = packing->offsets[s]; i < packing->offsets[s + 1]; i++)
            nm_dtype_set(dtype, host, (size_t)i, weight);
    }
    return host ? nm_tape_upload(tape, host, bytes) : NULL;
}

/* Computes and records y_s = sum over rows i of s weights_i x_i. */
static void sum_rows(nm_tape *tape, pool_saved *saved, nm_tensor *x, nm_tensor *y)
{
    nm_backend *b = tape->backend;
    for (int32_t s = 0; s < saved->packing.n_seqs; s++) {
        nm_mat weights, rows;
        sequence_of(tape, saved, nm_tensor_mat(x), s, &weights, &rows);
        NM_CALL(b, gemm, .alpha = 1, .a = weights, .b = rows, .beta = 0,
                .c = row_of(tape, nm_tensor_mat(y), s));
    }
    nm_tape_record(tape, &pool_op, y, saved)->in[0] = x;
}

nm_tensor *nm_pool(nm_tape *tape, nm_tensor *x, const nm_packing *packing, nm_pooling pooling)
{
    nm_tensor *y = nm_tape_tensor(tape, packing->n_seqs, x->cols);
    pool_saved *saved = nm_tape_host(tape, sizeof *saved);
    const int32_t *first =
        nm_tape_upload(tape, packing->offsets, (size_t)packing->n_seqs * sizeof *packing->offsets);
    void *row_weights = pooling == NM_POOL_FIRST ? NULL : upload_row_weights(tape, packing);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->rows == packing->n_tokens);
    *saved = (pool_saved){*packing, first, row_weights};
    if (pooling != NM_POOL_FIRST) {
        sum_rows(tape, saved, x, y);
        return y;
    }
    nm_backend *b = tape->backend;
    NM_CALL(b, gather, .rows = first, .x = nm_tensor_mat(x), .out = nm_tensor_mat(y));
    nm_tape_record(tape, &pool_op, y, saved)->in[0] = x;
    return y;
}

nm_tensor *nm_pool_weighted(nm_tape *tape, nm_tensor *x, const nm_packing *packing, const nm_tensor *weights,
                            const int32_t *ids)
{
    nm_tensor *y = nm_tape_tensor(tape, packing->n_seqs, x->cols);
    pool_saved *saved = nm_tape_host(tape, sizeof *saved);
    const int32_t *device_ids = nm_tape_upload(tape, ids, (size_t)x->rows * sizeof *ids);
    void *row_weights = nm_tape_alloc(tape, (size_t)x->rows * nm_dtype_bytes(tape->backend->dtype));
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->rows == packing->n_tokens && weights->cols == 1);
    const nm_dropout no_drop = {0};
    NM_CALL(tape->backend, embed, .ids = device_ids, .scale = 1, .table = nm_tensor_mat(weights),
            .drop = &no_drop, .out = nm_mat_of(row_weights, x->rows, 1));
    *saved = (pool_saved){*packing, NULL, row_weights};
    sum_rows(tape, saved, x, y);
    return y;
}
