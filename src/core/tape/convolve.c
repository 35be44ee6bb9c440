/* Operations on images, matrices [image, row, column] x channels (nm_windows).
 *
 * A convolution is a linear layer over patches. The patches of all images would be size^2 times as large as
 * the input; they are gathered for a few images at a time, so that the matrix multiplication reads them from
 * the caches, and again in the backward pass:
 *     P   = patches(x)
 *     y   = P W^T + b
 *     dW += dy^T P
 *     db += column sums of dy
 *     dx  = patches_grad(dy W) */
#include "tape/tape.h"

enum {
    CHUNK_ELEMENTS = 1 << 20
}; /* of patches; by shape only, so that results do not depend on the number of threads */

static nm_mat rows_from(const nm_backend *b, nm_mat mat, int32_t first, int32_t rows)
{
    mat.data = (char *)mat.data + (size_t)first * (size_t)mat.stride * nm_dtype_bytes(b->dtype);
    mat.rows = rows;
    return mat;
}

/* Images first .. first + n - 1, with their rows of the input and of the output. */
typedef struct image_chunk {
    nm_windows windows;
    int32_t in_first, in_rows, out_first, out_rows;
} image_chunk;

static int32_t images_per_chunk(const nm_windows *w, int32_t patch)
{
    int64_t elements = (int64_t)nm_windows_along(w, w->height) * nm_windows_along(w, w->width) * patch;
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

/* The memory for the patches of a chunk. */
static nm_tensor *patch_tensor(nm_tape *tape, const nm_windows *w, int32_t patch)
{
    return nm_tape_tensor(tape, images_per_chunk(w, patch) * (nm_windows_count(w) / w->images), patch);
}

static void convolve_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const nm_windows *w = node->saved;
    nm_tensor *x = node->in[0], *weight = node->in[1], *y = node->out;
    nm_tensor *patches = patch_tensor(tape, w, weight->cols);
    nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols);
    nm_mat dw = nm_learned_grad_sum(tape, weight), db = nm_learned_grad_sum(tape, node->in[2]);
    bool add = false;
    nm_mat dx = x->fixed ? (nm_mat){0} : nm_tensor_grad(tape, x, &add);
    const int32_t images = images_per_chunk(w, weight->cols);
    for (int32_t i = 0; i < w->images && !nm_tape_exhausted(tape); i += images) {
        image_chunk chunk = chunk_at(w, i, images);
        nm_mat part = nm_mat_of(patches->data, chunk.out_rows, patches->cols);
        nm_mat dy_part = rows_from(b, dy, chunk.out_first, chunk.out_rows);
        if (dw.data || db.data) {
            NM_CALL(b, patches, .windows = &chunk.windows,
                    .x = rows_from(b, nm_tensor_mat(x), chunk.in_first, chunk.in_rows), .out = part);
            NM_CALL(b, linear_grad_weight, .dy = dy_part, .x = part, .dw = dw, .db = db.data);
        }
        if (!dx.data)
            continue;
        NM_CALL(b, linear_grad_input, .dy = dy_part, .weight = nm_tensor_mat(weight), .dx = part);
        NM_CALL(b, patches_grad, .windows = &chunk.windows, .dout = part, .add = add,
                .dx = rows_from(b, dx, chunk.in_first, chunk.in_rows));
    }
    nm_tape_free_data(tape, patches);
}

static const nm_op convolve_op = {.name = "convolve", .backward = convolve_backward};

static nm_windows *save_windows(nm_tape *tape, const nm_windows *windows)
{
    nm_windows *saved = nm_tape_host(tape, sizeof *saved);
    if (saved)
        *saved = *windows;
    return saved;
}

nm_tensor *nm_convolve(nm_tape *tape, nm_tensor *x, const nm_windows *w, nm_tensor *weight, nm_tensor *bias)
{
    nm_backend *b = tape->backend;
    nm_tensor *y = nm_tape_tensor(tape, nm_windows_count(w), weight->rows);
    nm_tensor *patches = patch_tensor(tape, w, weight->cols);
    nm_windows *saved = save_windows(tape, w);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->cols * w->size * w->size == weight->cols);
    y->unread = true;
    const int32_t images = images_per_chunk(w, weight->cols);
    for (int32_t i = 0; i < w->images; i += images) {
        image_chunk chunk = chunk_at(w, i, images);
        nm_mat part = nm_mat_of(patches->data, chunk.out_rows, patches->cols);
        NM_CALL(b, patches, .windows = &chunk.windows,
                .x = rows_from(b, nm_tensor_mat(x), chunk.in_first, chunk.in_rows), .out = part);
        NM_CALL(b, linear, .x = part, .weight = nm_tensor_mat(weight), .bias = bias ? bias->data : NULL,
                .y = rows_from(b, nm_tensor_mat(y), chunk.out_first, chunk.out_rows));
    }
    nm_tape_free_data(tape, patches);
    nm_node *node = nm_tape_record(tape, &convolve_op, y, saved);
    node->in[0] = x;
    node->in[1] = weight;
    node->in[2] = bias;
    return y;
}

typedef struct subsampled {
    nm_windows windows;
    int32_t first, channels;
} subsampled;

static void subsampled_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const subsampled *saved = node->saved;
    nm_mat dy = nm_mat_of(node->out->grad, node->out->rows, node->out->cols);
    bool add;
    nm_mat dx = nm_tensor_grad(tape, node->in[0], &add);
    if (dx.data)
        NM_CALL(b, patches_grad, .windows = &saved->windows,
                .dout = nm_mat_columns(b, dy, saved->first, saved->channels), .add = add, .dx = dx);
}

static const nm_op subsampled_op = {.name = "subsampled", .backward = subsampled_backward};

nm_tensor *nm_subsampled(nm_tape *tape, nm_tensor *x, const nm_windows *w, int32_t first, int32_t cols)
{
    nm_backend *b = tape->backend;
    nm_tensor *y = nm_tape_tensor(tape, nm_windows_count(w), cols);
    subsampled *saved = nm_tape_host(tape, sizeof *saved);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(w->size == 1);
    *saved = (subsampled){*w, first, x->cols};
    y->unread = true;
    nm_backend_zero(b, y->data, (size_t)y->rows * (size_t)cols * nm_dtype_bytes(b->dtype));
    NM_CALL(b, patches, .windows = w, .x = nm_tensor_mat(x),
            .out = nm_mat_columns(b, nm_tensor_mat(y), first, x->cols));
    nm_tape_record(tape, &subsampled_op, y, saved)->in[0] = x;
    return y;
}

static void window_mean_backward(nm_tape *tape, nm_node *node)
{
    bool add;
    nm_mat dx = nm_tensor_grad(tape, node->in[0], &add);
    if (dx.data)
        NM_CALL(tape->backend, window_mean_grad, .windows = node->saved,
                .dout = nm_mat_of(node->out->grad, node->out->rows, node->out->cols), .add = add, .dx = dx);
}

static const nm_op window_mean_op = {.name = "window_mean", .backward = window_mean_backward};

nm_tensor *nm_window_mean(nm_tape *tape, nm_tensor *x, const nm_windows *w)
{
    nm_tensor *y = nm_tape_tensor(tape, nm_windows_count(w), x->cols);
    nm_windows *saved = save_windows(tape, w);
    if (nm_tape_exhausted(tape))
        return y;
    y->unread = true;
    NM_CALL(tape->backend, window_mean, .windows = w, .x = nm_tensor_mat(x), .out = nm_tensor_mat(y));
    nm_tape_record(tape, &window_mean_op, y, saved)->in[0] = x;
    return y;
}
