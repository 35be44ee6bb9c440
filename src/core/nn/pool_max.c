/* Max pooling over the rows of each sequence s, for each column:
 *     out_s = max over rows i of s of x_i
 *     dx_i  = dout_s if row i is the maximum, otherwise 0 */
#include "nn/tape.h"

static void pool_max_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *out = node->out;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, node->in[0], &add);
    NM_ASSERT(!add);
    if (dx.data)
        NM_CALL(tape->backend, pool_max_grad, .dout = nm_mat_of(out->grad, out->rows, out->cols),
                .where = node->saved, .dx = dx);
}

static const nm_op pool_max_op = {.name = "pool_max", .backward = pool_max_backward};

nm_tensor *nm_pool_max(nm_tape *tape, nm_tensor *x, const nm_packing *packing)
{
    nm_tensor *out = nm_tape_tensor(tape, packing->n_seqs, x->cols);
    int32_t *where = nm_tape_alloc(tape, (size_t)packing->n_seqs * (size_t)x->cols * sizeof *where);
    if (nm_tape_exhausted(tape))
        return out;
    NM_CALL(tape->backend, pool_max, .x = nm_tensor_mat(x), .packing = packing, .out = nm_tensor_mat(out),
            .where = where);
    nm_tape_record(tape, &pool_max_op, out, where)->in[0] = x;
    return out;
}
