/* Windows of images: patches of convolutions, average pooling. Limited by memory bandwidth: every element is
 * moved once per window that contains it. Sums are in the order of the positions in a window, the same at
 * every CPU level. */
#include "backend/cpu/kernel.h"

/* Shape of the windows, and one line of them or of the feature map. */
typedef struct window_line {
    nm_windows w;
    int32_t down, across; /* windows of an image */
    int32_t image, line;  /* line: row of windows, or row of the image */
} window_line;

static window_line line_at(const nm_windows *w, bool of_windows, int32_t i)
{
    window_line at = {*w, nm_windows_along(w, w->height), nm_windows_along(w, w->width), 0, 0};
    int32_t lines = of_windows ? at.down : w->height;
    at.image = i / lines;
    at.line = i % lines;
    return at;
}

static void check(const nm_windows *w, nm_mat map, nm_mat out, int32_t cols)
{
    NM_ASSERT(map.rows == w->images * w->height * w->width && out.rows == nm_windows_count(w) &&
              out.cols == cols);
}

static int32_t map_row(const window_line *at, int32_t y, int32_t x)
{
    return (at->image * at->w.height + y) * at->w.width + x;
}

static void copy_line(const window_line *at, nm_mat map, nm_mat out)
{
    const nm_windows *w = &at->w;
    int32_t first = (at->image * at->down + at->line) * at->across;
    for (int32_t c = 0; c < at->across; c++)
        for (int32_t i = 0; i < w->size; i++)
            nm_copy_window_row(w, map, at->image, at->line * w->stride - w->padding + i,
                               c * w->stride - w->padding, w->size,
                               nm_row(out, first + c) + i * w->size * map.cols);
}

static void patches(nm_backend *b, const nm_patches_args *args)
{
    const nm_windows *w = args->windows;
    const nm_mat x = args->x, out = args->out;
    check(w, x, out, w->size * w->size * x.cols);
    int32_t lines = w->images * nm_windows_along(w, w->height);
    int32_t threads = nm_threads_for(b, (size_t)out.rows * (size_t)out.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < lines; i++) {
        window_line at = line_at(w, true, i);
        copy_line(&at, x, out);
    }
}

/* to = factor from, or += */
NM_INLINE void add_row(const float *from, float factor, bool add, int32_t n, float *to)
{
    for (int32_t j = 0; j < n; j += NM_W) {
        vf value = v_mul(v_set(factor), v_load_upto(from + j, n - j));
        v_store_upto(to + j, n - j, add ? v_add(v_load_upto(to + j, n - j), value) : value);
    }
}

/* The window that has the position `extent` at its index i along an axis; -1: none. */
static int32_t window_of(const nm_windows *w, int32_t position, int32_t i, int32_t count)
{
    int32_t begin = position + w->padding - i;
    return begin >= 0 && begin % w->stride == 0 && begin / w->stride < count ? begin / w->stride : -1;
}

/* The gradient of one row of an image. part: columns of dout per position of a window, 0: the same for
 * all. */
static void sum_line(const window_line *at, nm_mat dout, int32_t part, float factor, bool add, nm_mat dx)
{
    const nm_windows *w = &at->w;
    for (int32_t x = 0; x < w->width; x++) {
        float *to = nm_row(dx, map_row(at, at->line, x));
        bool started = add;
        for (int32_t i = 0; i < w->size; i++) {
            int32_t r = window_of(w, at->line, i, at->down);
            for (int32_t j = 0; r >= 0 && j < w->size; j++) {
                int32_t c = window_of(w, x, j, at->across);
                if (c < 0)
                    continue;
                const float *from = nm_row(dout, (at->image * at->down + r) * at->across + c);
                add_row(from + (i * w->size + j) * part, factor, started, dx.cols, to);
                started = true;
            }
        }
        if (!started)
            memset(to, 0, (size_t)dx.cols * sizeof *to);
    }
}

static void sum_windows(nm_backend *b, const nm_windows *w, nm_mat dout, int32_t part, float factor, bool add,
                        nm_mat dx)
{
    int32_t threads = nm_threads_for(b, (size_t)dout.rows * (size_t)dout.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < w->images * w->height; i++) {
        window_line at = line_at(w, false, i);
        sum_line(&at, dout, part, factor, add, dx);
    }
}

static void patches_grad(nm_backend *b, const nm_patches_grad_args *args)
{
    const nm_windows *w = args->windows;
    check(w, args->dx, args->dout, w->size * w->size * args->dx.cols);
    sum_windows(b, w, args->dout, args->dx.cols, 1, args->add, args->dx);
}

static void mean_line(const window_line *at, nm_mat map, nm_mat out)
{
    const nm_windows *w = &at->w;
    const float factor = 1.0F / (float)(w->size * w->size);
    for (int32_t c = 0; c < at->across; c++) {
        float *to = nm_row(out, (at->image * at->down + at->line) * at->across + c);
        bool started = false;
        for (int32_t k = 0; k < w->size * w->size; k++) {
            int32_t y = at->line * w->stride - w->padding + k / w->size;
            int32_t x = c * w->stride - w->padding + k % w->size;
            if (y < 0 || y >= w->height || x < 0 || x >= w->width)
                continue;
            add_row(nm_row(map, map_row(at, y, x)), factor, started, out.cols, to);
            started = true;
        }
        if (!started)
            memset(to, 0, (size_t)out.cols * sizeof *to);
    }
}

static void window_mean(nm_backend *b, const nm_window_mean_args *args)
{
    const nm_windows *w = args->windows;
    const nm_mat x = args->x, out = args->out;
    check(w, x, out, x.cols);
    int32_t lines = w->images * nm_windows_along(w, w->height);
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < lines; i++) {
        window_line at = line_at(w, true, i);
        mean_line(&at, x, out);
    }
}

static void window_mean_grad(nm_backend *b, const nm_window_mean_grad_args *args)
{
    const nm_windows *w = args->windows;
    check(w, args->dx, args->dout, args->dx.cols);
    sum_windows(b, w, args->dout, 0, 1.0F / (float)(w->size * w->size), args->add, args->dx);
}

void NM_SIMD(nm_cpu_windows)(nm_kernels *k)
{
    k->patches = patches;
    k->patches_grad = patches_grad;
    k->window_mean = window_mean;
    k->window_mean_grad = window_mean_grad;
}
