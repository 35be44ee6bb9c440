/* Launches of block-term attention, conditional random fields, windows of images, and int8 linear layers. */
#include "backend/device/launch.h"
#include "backend/patchwise.h"

#include "base/int8.h"

static nm_mat scratch_mat(dptr *at, int32_t rows, int32_t cols)
{
    const nm_mat m = nm_mat_of((void *)(uintptr_t)*at, rows, cols);
    *at += (dptr)((size_t)rows * (size_t)cols * sizeof(float));
    return m;
}

static struct dterm term_of(nm_backend *b, const nm_block_term_args *args)
{
    const int32_t h = args->q.cols, length = args->length;
    NM_ASSERT(args->k.cols == h && args->v.cols == h && args->core.cols == h);
    NM_ASSERT(args->positions.rows == length && args->positions.cols == h);
    NM_ASSERT((int64_t)args->weight.rows == (int64_t)length * length && args->packing->longest <= length);
    NM_ASSERT(args->causal || args->q.rows == args->packing->n_seqs * length);
    return (struct dterm){MAT(q),
                          MAT(k),
                          MAT(v),
                          MAT(positions),
                          MAT(core),
                          .offsets = nm_device_offsets(b, args->packing, 0),
                          ADDRESS(content_bias),
                          ADDRESS(position_bias),
                          .length = length,
                          .causal = args->causal};
}

void nm_launch_block_term(nm_backend *b, const nm_block_term_args *args)
{
    const int32_t tokens = args->q.rows, pairs = args->weight.rows;
    dptr at = nm_device_scratch(b, NM_DEVICE_WORK, (size_t)tokens * (size_t)pairs * sizeof(float) + 1);
    const nm_mat t = scratch_mat(&at, tokens, pairs);
    LAUNCH(b, term_weights, nm_device_elements(t), 1, .x = term_of(b, args), .t = nm_device_mat(t));
    NM_CALL(b, gemm, .alpha = 1, .a = t, .b = args->weight, .c = args->out);
}

/* The gradient of the mean core, which all cores share. */
static void add_to_cores(nm_backend *b, nm_mat sums, nm_mat dcore)
{
    const dptr mean = nm_device_scratch(b, NM_DEVICE_TOTALS, (size_t)dcore.cols * sizeof(float));
    const nm_mat row = nm_mat_of((void *)(uintptr_t)mean, 1, dcore.cols);
    NM_CALL(b, zero, .bytes = (size_t)dcore.cols * sizeof(float), .data = row.data);
    nm_device_add_columns(b, sums, row.data);
    for (int32_t r = 0; r < dcore.rows; r++)
        NM_CALL(b, add, .alpha = 1.0 / dcore.rows, .x = row,
                .y = {(float *)dcore.data + (size_t)r * (size_t)dcore.stride, 1, dcore.cols, dcore.stride});
}

static nm_mat columns(nm_mat m, int32_t first, int32_t cols)
{
    return (nm_mat){(float *)m.data + first, m.rows, cols, m.stride};
}

void nm_launch_block_term_grad(nm_backend *b, const nm_block_term_grad_args *args)
{
    const nm_block_term_args *forward = &args->forward;
    const int32_t tokens = forward->q.rows, pairs = forward->weight.rows, h = forward->q.cols;
    const struct dterm x = term_of(b, forward);
    const size_t width = 2 * (size_t)pairs + (size_t)forward->length * (size_t)h + 4 * (size_t)h;
    dptr at = nm_device_scratch(b, NM_DEVICE_WORK, (size_t)tokens * width * sizeof(float) + 1);
    const nm_mat t = scratch_mat(&at, tokens, pairs), dt = scratch_mat(&at, tokens, pairs);
    const nm_mat dc = scratch_mat(&at, tokens, forward->length * h), dp = scratch_mat(&at, tokens, h);
    const nm_mat sums = scratch_mat(&at, tokens, 3 * h);
    LAUNCH(b, term_weights, nm_device_elements(t), 1, .x = x, .t = nm_device_mat(t));
    NM_CALL(b, gemm, .ta = true, .alpha = 1, .beta = 1, .a = t, .b = args->dout, .c = args->dweight);
    NM_CALL(b, gemm, .tb = true, .alpha = 1, .a = args->dout, .b = forward->weight, .c = dt);
    LAUNCH(b, term_key_grad, nm_device_elements(dc), 1, .x = x, .dt = nm_device_mat(dt),
           .dc = nm_device_mat(dc));
    LAUNCH(b, term_grad, nm_device_elements(args->dq), 1, .x = x, .dt = nm_device_mat(dt),
           .dc = nm_device_mat(dc), MAT(dq), MAT(dk), MAT(dv), .dp = nm_device_mat(dp),
           .sums = nm_device_mat(sums));
    LAUNCH(b, term_positions_grad, nm_device_elements(args->dpositions), 1, .dp = nm_device_mat(dp),
           MAT(dpositions), .offsets = x.offsets, .segments = forward->packing->n_seqs);
    nm_device_add_columns(b, columns(sums, 0, h), args->dcontent_bias);
    nm_device_add_columns(b, columns(sums, h, h), args->dposition_bias);
    add_to_cores(b, columns(sums, 2 * h, h), args->dcore);
}

void nm_launch_crf(nm_backend *b, const nm_crf_args *args)
{
    const nm_packing *packing = args->packing;
    const int32_t tokens = args->emissions.rows, tags = args->emissions.cols;
    NM_ASSERT(tokens == packing->n_tokens && tags > 0);
    const size_t cells = (size_t)tokens * (size_t)tags;
    const dptr loss = nm_device_scratch(b, NM_DEVICE_WORK,
                                        (size_t)packing->n_seqs * sizeof(double) +
                                            (2 * cells + (size_t)tokens) * sizeof(float) + 1);
    const dptr alpha = loss + (dptr)((size_t)packing->n_seqs * sizeof(double)),
               beta = alpha + (dptr)(cells * sizeof(float)), norm = beta + (dptr)(cells * sizeof(float));
    const dptr offsets = nm_device_offsets(b, packing, 0), gold = nm_device_address(args->gold);
    LAUNCH(b, crf_sums, packing->n_seqs, 1, MAT(emissions), ADDRESS(transitions), ADDRESS(start),
           ADDRESS(end), .offsets = offsets, .gold = gold, .alpha = alpha, .beta = beta, .loss = loss);
    for (int i = 0; i < 2; i++)
        LAUNCH(b, double_total, 1, 1, .x = loss, .out = nm_device_address(args->sums + i),
               .n = packing->n_seqs, .factor = 1);
    if (!args->d_emissions)
        return;
    LAUNCH(b, crf_tags_grad, nm_device_blocks(tokens, 128), 1, MAT(emissions), .alpha = alpha, .beta = beta,
           .gold = gold, ADDRESS(d_emissions), .norm = norm, .grad_scale = (float)args->grad_scale);
    LAUNCH(b, crf_counts_grad, nm_device_blocks((int64_t)tags * (tags + 2), 128), 1, MAT(emissions),
           ADDRESS(transitions), .alpha = alpha, .beta = beta, .norm = norm, .offsets = offsets, .gold = gold,
           ADDRESS(d_emissions), ADDRESS(d_transitions), ADDRESS(d_start), ADDRESS(d_end),
           .grad_scale = (float)args->grad_scale, .sequences = packing->n_seqs);
}

static struct dwindows windows_of(const nm_windows *w, nm_mat map, nm_mat out, int32_t cols)
{
    NM_ASSERT(map.rows == w->images * w->height * w->width && out.rows == nm_windows_count(w) &&
              out.cols == cols);
    return (struct dwindows){.height = w->height,
                             .width = w->width,
                             .size = w->size,
                             .stride = w->stride,
                             .padding = w->padding,
                             .down = nm_windows_along(w, w->height),
                             .across = nm_windows_along(w, w->width)};
}

void nm_launch_patches(nm_backend *b, const nm_patches_args *args)
{
    const nm_windows *w = args->windows;
    LAUNCH(b, patches, nm_device_elements(args->out), 1, MAT(x), MAT(out),
           .w = windows_of(w, args->x, args->out, w->size * w->size * args->x.cols));
}

void nm_launch_patches_grad(nm_backend *b, const nm_patches_grad_args *args)
{
    const nm_windows *w = args->windows;
    LAUNCH(b, windows_grad, nm_device_elements(args->dx), 1, MAT(dout), MAT(dx),
           .w = windows_of(w, args->dx, args->dout, w->size * w->size * args->dx.cols), .divisor = 1,
           .part = args->dx.cols, .add = args->add);
}

void nm_launch_window_mean(nm_backend *b, const nm_window_mean_args *args)
{
    LAUNCH(b, window_mean, nm_device_elements(args->out), 1, MAT(x), MAT(out),
           .w = windows_of(args->windows, args->x, args->out, args->x.cols));
}

void nm_launch_window_mean_grad(nm_backend *b, const nm_window_mean_grad_args *args)
{
    const nm_windows *w = args->windows;
    LAUNCH(b, windows_grad, nm_device_elements(args->dx), 1, MAT(dout), MAT(dx),
           .w = windows_of(w, args->dx, args->dout, args->dx.cols), .divisor = (float)(w->size * w->size),
           .add = args->add);
}

void nm_launch_round_int8(nm_backend *b, const nm_round_int8_args *args)
{
    LAUNCH(b, round_int8, nm_device_blocks(args->m.rows, ROW_WARPS), 1, MAT(m));
}

void nm_launch_pack_int8(nm_backend *b, const nm_pack_int8_args *args)
{
    const nm_mat weight = args->weight;
    *args->bytes = weight.cols <= NM_INT8_COLS ? nm_int8_bytes(weight.rows, weight.cols) : 0;
    if (!args->packed || !*args->bytes)
        return;
    const int64_t panels = (int64_t)nm_int8_panels(weight.rows);
    LAUNCH(b, pack_int8, panels * NM_INT8_PANEL / ROW_WARPS, 1, .weight = nm_device_mat(weight),
           ADDRESS(packed), .panels = panels);
}

void nm_launch_linear_int8(nm_backend *b, const nm_linear_int8_args *args)
{
    const nm_mat x = args->x, y = args->y;
    const nm_int8 *weight = args->weight;
    NM_ASSERT(x.rows == y.rows && x.cols == weight->cols && weight->first + y.cols <= weight->rows);
    const size_t fours = nm_int8_fours(x.cols), words = (size_t)x.rows * fours;
    const dptr rows = nm_device_scratch(b, NM_DEVICE_WORK, (words + (size_t)x.rows) * sizeof(float) + 1);
    const dptr scales = rows + (dptr)(words * sizeof(float));
    LAUNCH(b, quantize_rows, nm_device_blocks(x.rows, ROW_WARPS), 1, .x = nm_device_mat(x), .out = rows,
           .scales = scales);
    LAUNCH(b, linear_int8, nm_device_elements(y), 1, .y = nm_device_mat(y), .x = rows, .scales = scales,
           .packed = nm_device_address(weight->packed), ADDRESS(bias),
           .panels = (int64_t)nm_int8_panels(weight->rows), .fours = (int)fours, .first = weight->first,
           .relu = args->act == NM_ACT_RELU);
}

/* `linear` reads weights as they are. */
void nm_launch_pack(nm_backend *b, const nm_pack_args *args)
{
    (void)b;
    *args->bytes = 0;
}

void nm_launch_convolve(nm_backend *b, const nm_convolve_args *args)
{
    nm_patchwise_convolve(b, args);
}

void nm_launch_convolve_grad_input(nm_backend *b, const nm_convolve_grad_input_args *args)
{
    nm_patchwise_grad_input(b, args);
}

void nm_launch_convolve_grad_weight(nm_backend *b, const nm_convolve_grad_weight_args *args)
{
    nm_patchwise_grad_weight(b, args);
}
