/* What the launches of kernels share: addresses, scratch memory, sums of partial sums. */
#include "backend/device/launch.h"

#include "backend/backend_private.h"
#include "backend/device/target.h"
#include "base/random.h"

void nm_device_launch(nm_backend *b, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                      const void *args, size_t args_bytes)
{
    NM_ASSERT(args_bytes == kernel->args_bytes);
    const nm_backend_private *inside = nm_backend_inside(b);
    if (blocks_x <= 0 || blocks_y <= 0)
        return;
    if (inside->target)
        inside->target->launch(inside->device, kernel, blocks_x, blocks_y, args);
    else
        nm_emulator_run(kernel, blocks_x, blocks_y, b->threads, args);
}

dptr nm_device_scratch(nm_backend *b, int slot, size_t bytes)
{
    const nm_backend_private *inside = nm_backend_inside(b);
    if (inside->target && !b->dry_run)
        return inside->target->scratch(inside->device, slot, bytes);
    return nm_device_address(nm_backend_scratch(b, slot, bytes));
}

dptr nm_device_offsets(nm_backend *b, const nm_packing *packing, int number)
{
    if (packing->device_offsets)
        return nm_device_address(packing->device_offsets);
    const size_t bytes = ((size_t)packing->n_seqs + 1) * sizeof(int32_t);
    const dptr copy = nm_device_scratch(b, NM_DEVICE_ROWS, 2 * bytes) + (dptr)((size_t)number * bytes);
    NM_CALL(b, upload, .host = packing->offsets, .bytes = bytes, .device = (void *)(uintptr_t)copy);
    return copy;
}

struct ddrop nm_device_drop(const nm_dropout *drop)
{
    if (!drop || nm_dropout_threshold(drop->rate) == 0)
        return (struct ddrop){0};
    return (struct ddrop){.seed = drop->seed,
                          .site = drop->site,
                          .step = drop->step,
                          .threshold = nm_dropout_threshold(drop->rate),
                          .scale = (float)nm_dropout_scale(drop->rate)};
}

struct dresidual nm_device_sum(const nm_residual_sum *sum)
{
    if (!sum)
        return (struct dresidual){0};
    return (struct dresidual){
        .stream = nm_device_mat(sum->stream), .f = nm_device_mat(sum->f), .drop = nm_device_drop(sum->drop)};
}

struct dresidual nm_device_residual(const nm_residual_grad *residual)
{
    if (!residual)
        return (struct dresidual){0};
    return (struct dresidual){
        .f = nm_device_mat(residual->df), .drop = nm_device_drop(residual->drop), .add = residual->add};
}

static int64_t warps_of(nm_mat rows)
{
    return nm_device_blocks(rows.rows, ROWS_PER_PARTIAL) * ROW_WARPS;
}

dptr nm_device_warp_partials(nm_backend *b, nm_mat rows, int planes)
{
    size_t bytes = (size_t)warps_of(rows) * (size_t)planes * (size_t)rows.cols * sizeof(float);
    dptr partials = nm_device_scratch(b, NM_DEVICE_PARTIALS, bytes);
    NM_CALL(b, zero, .bytes = bytes, .data = (void *)(uintptr_t)partials);
    return partials;
}

/* out [n] (+)= the sums of the n columns of `rows` rows of partial sums */
static void total(nm_backend *b, dptr partial, int64_t rows, int64_t stride, int32_t n, bool add, dptr out)
{
    LAUNCH(b, column_total, nm_device_blocks(n, 128), 1, .partial = partial, .out = out, .factor = 1,
           .stride = stride, .blocks = (int)rows, .cols = n, .add = add);
}

void nm_device_add_plane(nm_backend *b, dptr partials, nm_mat rows, int planes, int plane, int32_t length,
                         void *out)
{
    if (length == 0 || !out)
        return;
    const dptr first = partials + (dptr)plane * (dptr)rows.cols * sizeof(float), to = nm_device_address(out);
    const int64_t stride = (int64_t)planes * rows.cols;
    if (length == rows.cols && length > 1) {
        total(b, first, warps_of(rows), stride, length, true, to);
        return;
    }
    dptr columns = nm_device_scratch(b, NM_DEVICE_TOTALS, (size_t)rows.cols * sizeof(float));
    total(b, first, warps_of(rows), stride, rows.cols, false, columns);
    total(b, columns, rows.cols, 1, 1, true, to);
}

void nm_device_add_columns(nm_backend *b, nm_mat x, void *out)
{
    if (!out)
        return;
    const int64_t blocks = nm_device_blocks(x.rows, ROWS_PER_PARTIAL);
    dptr partial =
        nm_device_scratch(b, NM_DEVICE_PARTIALS, (size_t)blocks * (size_t)x.cols * sizeof(float) + 1);
    LAUNCH(b, column_partials, blocks, nm_device_blocks(x.cols, 32), .x = nm_device_mat(x),
           .partial = partial);
    total(b, partial, blocks, x.cols, x.cols, true, nm_device_address(out));
}
