/* Launches of embeddings, gathered rows, rotary positions and max pooling. */
#include "backend/device/launch.h"

void nm_launch_embed(nm_backend *b, const nm_embed_args *args)
{
    NM_ASSERT(args->table.cols == args->out.cols &&
              (!args->positions.data || args->positions.cols == args->out.cols));
    LAUNCH(b, embed, nm_device_elements(args->out), 1, MAT(table), MAT(positions), MAT(out), ADDRESS(ids),
           ADDRESS(pos), .drop = nm_device_drop(args->drop), .scale = (float)args->scale);
}

void nm_launch_embed_grad(nm_backend *b, const nm_embed_grad_args *args)
{
    NM_ASSERT(args->dtable.cols == args->dout.cols);
    LAUNCH(b, embed_grad, args->dout.rows, 1, MAT(dout), MAT(dtable), ADDRESS(ids),
           .drop = nm_device_drop(args->drop), .scale = (float)args->scale);
}

void nm_launch_gather(nm_backend *b, const nm_gather_args *args)
{
    NM_ASSERT(args->x.cols == args->out.cols);
    LAUNCH(b, gather, nm_device_elements(args->out), 1, MAT(x), MAT(out), ADDRESS(rows));
}

void nm_launch_rotate(nm_backend *b, const nm_rotate_args *args)
{
    const nm_mat x = args->x, table = args->table;
    NM_ASSERT(x.rows == args->y.rows && x.cols == args->y.cols && args->heads > 0 &&
              x.cols == args->heads * table.cols && table.cols % 2 == 0);
    nm_mat pairs = x;
    pairs.cols = x.cols / 2;
    LAUNCH(b, rotate, nm_device_elements(pairs), 1, .x = nm_device_mat(x), .table = nm_device_mat(table),
           MAT(y), ADDRESS(positions), .interleaved = args->interleaved, .inverse = args->inverse);
}

void nm_launch_pool_max(nm_backend *b, const nm_pool_max_args *args)
{
    const nm_packing *packing = args->packing;
    NM_ASSERT(args->x.rows == packing->n_tokens && args->out.rows == packing->n_seqs &&
              args->x.cols == args->out.cols);
    LAUNCH(b, pool_max, nm_device_elements(args->out), 1, MAT(x), MAT(out),
           .offsets = nm_device_address(packing->device_offsets), ADDRESS(where));
}

void nm_launch_pool_max_grad(nm_backend *b, const nm_pool_max_grad_args *args)
{
    const nm_mat dx = args->dx;
    LAUNCH(b, scale, nm_device_elements(dx), 1, .x = nm_device_mat(dx), .y = nm_device_mat(dx), .alpha = 0);
    LAUNCH(b, pool_max_grad, nm_device_elements(args->dout), 1, MAT(dout), .dx = nm_device_mat(dx),
           ADDRESS(where));
}
