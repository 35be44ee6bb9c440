#include "backend/patchwise.h"

#include "backend/backend_private.h"

enum { CHUNK_ELEMENTS = 1 << 20 }; /* of patches */

static nm_mat rows_from(const nm_backend *b, nm_mat mat, int32_t first, int32_t rows)
{
    if (!mat.data)
        return mat;
    mat.data = (char *)mat.data + (size_t)first * (size_t)mat.stride * nm_dtype_bytes(b->dtype);
    mat.rows = rows;
    return mat;
}

/* Images first .. first + n - 1, with their rows of the input and of the output. */
typedef struct image_chunk {
    nm_windows windows;
    int32_t in_first, in_rows, out_first, out_rows;
} image_chunk;

int32_t nm_patchwise_images(const nm_windows *w, int32_t cols)
{
    int64_t elements = (int64_t)nm_windows_along(w, w->height) * nm_windows_along(w, w->width) * cols;
    int64_t images = elements < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / elements : 1;
    return images < w->images ? (int32_t)images : w->images;
}

static image_chunk chunk_at(const nm_windows *w, int32_t first, int32_t images)
{
    image_chunk chunk = {.windows = *w};
    chunk.windows.images = images < w->images - first ? images : w->images - first;
    int32_t in = w->height * w->width, out = nm_windows_count(w) / w->images;
    chunk.in_first = first * in;
    chunk.in_rows = chunk.windows.images * in;
    chunk.out_first = first * out;
    chunk.out_rows = chunk.windows.images * out;
    return chunk;
}

void nm_patchwise_convolve(nm_backend *b, const nm_convolve_args *args)
{
    const nm_windows *w = args->windows;
    const int32_t images = nm_patchwise_images(w, args->weight.cols);
    for (int32_t i = 0; i < w->images; i += images) {
        const image_chunk chunk = chunk_at(w, i, images);
        const nm_mat part = rows_from(b, args->room, 0, chunk.out_rows);
        NM_CALL(b, patches, .windows = &chunk.windows,
                .x = rows_from(b, args->x, chunk.in_first, chunk.in_rows), .out = part);
        NM_CALL(b, linear, .x = part, .weight = args->weight, .bias = args->bias,
                .y = rows_from(b, args->y, chunk.out_first, chunk.out_rows));
    }
}

void nm_patchwise_grad_input(nm_backend *b, const nm_convolve_grad_input_args *args)
{
    const nm_windows *w = args->windows;
    const int32_t images = nm_patchwise_images(w, args->weight.cols);
    for (int32_t i = 0; i < w->images; i += images) {
        const image_chunk chunk = chunk_at(w, i, images);
        const nm_mat part = rows_from(b, args->room, 0, chunk.out_rows);
        NM_CALL(b, linear_grad_input, .dy = rows_from(b, args->dy, chunk.out_first, chunk.out_rows),
                .weight = args->weight, .dx = part);
        NM_CALL(b, patches_grad, .windows = &chunk.windows, .dout = part, .add = args->add,
                .dx = rows_from(b, args->dx, chunk.in_first, chunk.in_rows));
    }
}

void nm_patchwise_grad_weight(nm_backend *b, const nm_convolve_grad_weight_args *args)
{
    const nm_windows *w = args->windows;
    const int32_t images = nm_patchwise_images(w, args->room.cols);
    for (int32_t i = 0; i < w->images; i += images) {
        const image_chunk chunk = chunk_at(w, i, images);
        const nm_mat part = rows_from(b, args->room, 0, chunk.out_rows);
        NM_CALL(b, patches, .windows = &chunk.windows,
                .x = rows_from(b, args->x, chunk.in_first, chunk.in_rows), .out = part);
        NM_CALL(b, linear_grad_weight, .dy = rows_from(b, args->dy, chunk.out_first, chunk.out_rows),
                .x = part, .dw = args->dw, .db = args->db);
    }
}
