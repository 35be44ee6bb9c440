/* Operations on images, matrices [image, row, column] x channels (nm_windows). */
#include "nn/tape.h"

/* Memory for the patches of a convolution: nm_convolve_args.room. */
static nm_tensor *room_of(nm_tape *tape, const nm_windows *w, int32_t cols)
{
    return nm_tape_tensor(tape, nm_patchwise_images(w, cols) * (nm_windows_count(w) / w->images), cols);
}

static void convolve_backward(nm_tape *tape, nm_node *node)
{
    nm_backend *b = tape->backend;
    const nm_windows *w = node->saved;
    nm_tensor *x = node->in[0], *weight = node->in[1], *y = node->out;
    nm_tensor *room = room_of(tape, w, weight->cols);
    const nm_mat dy = nm_mat_of(y->grad, y->rows, y->cols);
    const nm_mat dw = nm_learned_grad_sum(tape, weight), db = nm_learned_grad_sum(tape, node->in[2]);
    bool add = false;
    const nm_mat dx = x->fixed ? (nm_mat){0} : nm_tensor_grad(tape, x, &add);
    if (nm_tape_exhausted(tape))
        return;
    if (dw.data || db.data)
        NM_CALL(b, convolve_grad_weight, .windows = w, .dy = dy, .x = nm_tensor_mat(x),
                .room = nm_tensor_mat(room), .dw = dw, .db = db.data);
    if (dx.data)
        NM_CALL(b, convolve_grad_input, .windows = w, .dy = dy, .weight = nm_tensor_mat(weight),
                .room = nm_tensor_mat(room), .add = add, .dx = dx);
    nm_tape_free_data(tape, room);
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
    nm_tensor *y = nm_tape_tensor(tape, nm_windows_count(w), weight->rows);
    nm_tensor *room = room_of(tape, w, weight->cols);
    nm_windows *saved = save_windows(tape, w);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(x->cols * w->size * w->size == weight->cols);
    y->unread = true;
    NM_CALL(tape->backend, convolve, .windows = w, .x = nm_tensor_mat(x), .weight = nm_tensor_mat(weight),
            .bias = bias ? bias->data : NULL, .room = nm_tensor_mat(room), .y = nm_tensor_mat(y));
    nm_tape_free_data(tape, room);
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
