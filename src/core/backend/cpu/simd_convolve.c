/* Convolutions whose windows overlap, without patches: the products read copies of the images with a border
 * of zeros, in which a row of a window is contiguous. A band of rows is copied once, not every window.
 *
 * An element of y or dx is a sum over (row of the window, position, channel) in ascending order, in chunks of
 * NM_GEMM_DEPTH products; one of dw is a sum over windows, in chunks of WEIGHT_DEPTH windows of an image.
 * Results do not depend on threads or bands.
 * dx is the convolution of dy with the weight turned by 180 degrees. Other convolutions go patch by patch. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/tile.h"
#include "backend/patchwise.h"

#include <omp.h>

enum {
    BAND_FLOATS = 1 << 15,  /* of a band: with a chunk of a panel it fits L2 */
    IMAGE_FLOATS = 1 << 20, /* of the images that are copied together for dw */
    WEIGHT_DEPTH = 128,     /* windows of a chunk of dw: with their rows of images they fit L1 */
    LEAST_WINDOWS = 64,     /* of an image: with fewer, adding its part to dw takes too long */
    PADDING = 2 * NM_W,     /* tiles load whole vectors */
    THREAD_WORK = 32768     /* multiply-adds per thread for which threads are started */
};

typedef struct convolution {
    nm_windows w;
    int32_t channels, down, across; /* of the input; windows along the axes of an image */
    int32_t line, row;              /* floats of a row of a window, and of a padded row of an image */
} convolution;

static convolution convolution_of(const nm_windows *w, int32_t channels)
{
    convolution c = {*w, channels, nm_windows_along(w, w->height), nm_windows_along(w, w->width), 0, 0};
    c.line = w->size * channels;
    c.row = ((c.across - 1) * w->stride + w->size) * channels;
    return c;
}

static bool overlap(const nm_windows *w)
{
    return w->stride < w->size && w->padding < w->size;
}

/* Rows of the image that `lines` rows of windows cover. */
static int32_t rows_of_lines(const convolution *c, int32_t lines)
{
    return (lines - 1) * c->w.stride + c->w.size;
}

static int32_t threads_for(const nm_backend *b, nm_mat y, int32_t depth)
{
    double work = (double)y.rows * y.cols * depth;
    return work < (double)THREAD_WORK * b->threads ? 1 : b->threads;
}

/* Row y of an image with its border, zeros outside. */
static void copy_row(const convolution *c, nm_mat x, int32_t image, int32_t y, float *to)
{
    const int32_t left = c->w.padding * c->channels, n = nm_min_i32(c->row - left, c->w.width * c->channels);
    if (y < 0 || y >= c->w.height || n <= 0) {
        memset(to, 0, (size_t)c->row * sizeof *to);
        return;
    }
    memset(to, 0, (size_t)left * sizeof *to);
    const int32_t first = (image * c->w.height + y) * c->w.width;
    for (int32_t at = 0, part = x.stride == x.cols ? n : c->channels; at < n; at += part)
        memcpy(to + left + at, nm_row(x, first + at / c->channels), (size_t)part * sizeof *to);
    memset(to + left + n, 0, (size_t)(c->row - left - n) * sizeof *to);
}

static void copy_band(const convolution *c, nm_mat x, int32_t image, int32_t line, int32_t lines, float *to)
{
    for (int32_t i = 0; i < rows_of_lines(c, lines); i++, to += c->row)
        copy_row(c, x, image, line * c->w.stride - c->w.padding + i, to);
}

/* Sums of products k, which are stored in lines: product k = i * line + j is at a + i * a_line + j * a_step,
 * and the same of b. */
typedef struct lines_of_products {
    int32_t line;
    size_t a_line, b_line;
} lines_of_products;

/* The tile with products k0 .. k0 + depth - 1. */
NM_INLINE void sum_of_lines(gemm_tile t, const lines_of_products *at, int32_t k0, int32_t depth,
                            const int rows, const int vectors)
{
    const float *a = t.a, *b = t.b;
    vf sum[NM_TILE_ROWS][NM_TILE_VECTORS];
    set_to_zero(rows, vectors, sum);
    for (int32_t k = k0; k < k0 + depth; k += t.depth) {
        const size_t i = (size_t)(k / at->line), j = (size_t)(k % at->line);
        t.depth = nm_min_i32(at->line - (int32_t)j, k0 + depth - k);
        t.a = a + i * at->a_line + j * t.a_step;
        t.b = b + i * at->b_line + j * t.b_step;
        sum_tile(&t, rows, vectors, sum);
    }
    store_with_epilogue(t, rows, vectors, sum);
}

#define CASE(n)                                                                                              \
    case n:                                                                                                  \
        if (n > NM_TILE_ROWS)                                                                                \
            return;                                                                                          \
        if (t.cols > NM_W)                                                                                   \
            sum_of_lines(t, at, k0, depth, n > NM_TILE_ROWS ? 1 : n, 2);                                     \
        else                                                                                                 \
            sum_of_lines(t, at, k0, depth, n > NM_TILE_ROWS ? 1 : n, 1);                                     \
        return;

NM_INLINE void tile_of_lines(const gemm_tile t, const lines_of_products *at, int32_t k0, int32_t depth)
{
    switch (t.rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
        CASE(14)
    }
}

/* Windows t.rows of a line: a is the image, b a panel of the weight. */
static __attribute__((noinline)) void window_tile(gemm_tile t, const lines_of_products *at, int32_t k0,
                                                  int32_t depth)
{
    t.a_step = 1;
    t.b_step = NM_TILE_COLS;
    t.b_next = NM_W;
    tile_of_lines(t, at, k0, depth);
}

/* t.rows outputs and some columns of dw: a is dy, b the image. */
static __attribute__((noinline)) void weight_tile(gemm_tile t, const lines_of_products *at, int32_t k0,
                                                  int32_t depth)
{
    t.a_row = 1;
    t.b_next = NM_W;
    tile_of_lines(t, at, k0, depth);
}

/* Nearly equal parts of n of at most `most`. */
static int32_t equal_part(int32_t n, int32_t most)
{
    return nm_ceil_div(n, nm_ceil_div(n, most));
}

/* y of the windows of `lines` rows from `line` on. panels: the weight, [panels][products][NM_TILE_COLS]. */
static void run_band(const convolution *c, const float *band, const float *panels, const float *bias,
                     bool add, int32_t lines, float *y, size_t ldy, int32_t outputs)
{
    const int32_t products = c->line * c->w.size, tiles = nm_ceil_div(c->across, NM_TILE_ROWS);
    const lines_of_products at = {c->line, (size_t)c->row, (size_t)c->line * NM_TILE_COLS};
    for (int32_t k0 = 0, depth; k0 < products; k0 += depth) {
        depth = nm_min_i32(products - k0, NM_GEMM_DEPTH);
        const bool last = k0 + depth == products;
        for (int32_t col = 0; col < outputs; col += NM_TILE_COLS)
            for (int32_t i = 0; i < lines * tiles; i++) {
                const int32_t line = i / tiles, first = c->across * (i % tiles) / tiles;
                const size_t from = (size_t)(line * c->w.stride) * (size_t)c->row +
                                    (size_t)(first * c->w.stride) * (size_t)c->channels;
                window_tile((gemm_tile){.rows = c->across * (i % tiles + 1) / tiles - first,
                                        .cols = nm_min_i32(outputs - col, NM_TILE_COLS),
                                        .a = band + from,
                                        .a_row = (size_t)(c->w.stride * c->channels),
                                        .b = panels + (size_t)col * (size_t)products,
                                        .add = add || k0 > 0,
                                        .alpha = 1,
                                        .epilogue = {last && bias ? bias + col : NULL, false},
                                        .c = y + (size_t)(line * c->across + first) * ldy + (size_t)col,
                                        .ldc = ldy},
                            &at, k0, depth);
            }
    }
}

/* y = the products of the windows of x and the panels, or +=. */
static void run_convolution(nm_backend *b, const convolution *c, nm_mat x, const float *panels,
                            const float *bias, bool add, nm_mat y)
{
    const int32_t fit = (BAND_FLOATS / c->row - c->w.size) / c->w.stride + 1;
    const int32_t lines = equal_part(c->down, fit < 1 ? 1 : fit), bands = nm_ceil_div(c->down, lines);
    const size_t floats = (size_t)rows_of_lines(c, lines) * (size_t)c->row + PADDING;
    const int32_t threads = threads_for(b, y, c->line * c->w.size);
    float *locals = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < c->w.images * bands; i++) {
        float *band = locals + (size_t)omp_get_thread_num() * floats;
        const int32_t image = i / bands, line = i % bands * lines, n = nm_min_i32(lines, c->down - line);
        copy_band(c, x, image, line, n, band);
        run_band(c, band, panels, bias, add, n, nm_row(y, (image * c->down + line) * c->across),
                 (size_t)y.stride, y.cols);
    }
}

static bool is_int8(const nm_backend *b, nm_mat weight)
{
    int32_t first = 0;
    const nm_packed_weight *entry = nm_backend_find_packed(b, weight, &first);
    return entry && entry->int8;
}

static float *panels_for(nm_backend *b, int32_t products, int32_t outputs)
{
    size_t floats = (size_t)products * (size_t)nm_round_up(outputs, NM_TILE_COLS) + PADDING;
    return nm_backend_scratch(b, NM_CPU_PACKED, floats * sizeof(float));
}

static void convolve(nm_backend *b, const nm_convolve_args *args)
{
    const nm_mat weight = args->weight;
    if (!overlap(args->windows) || is_int8(b, weight)) {
        nm_patchwise_convolve(b, args);
        return;
    }
    const convolution c = convolution_of(args->windows, args->x.cols);
    NM_ASSERT(weight.cols == c.line * c.w.size && args->y.rows == nm_windows_count(args->windows));
    float *panels = panels_for(b, weight.cols, weight.rows);
    const nm_gemm all = {.tb = true,
                         .cols = weight.rows,
                         .depth = weight.cols,
                         .b = weight.data,
                         .ldb = (size_t)weight.stride};
    NM_SIMD(nm_gemm_pack)(b, &all, panels);
    run_convolution(b, &c, args->x, panels, args->bias, false, args->y);
}

/* Panels of the weight turned by 180 degrees, with outputs and channels exchanged: product (i, j, output) of
 * channel n is the weight of the output at (size - 1 - i, size - 1 - j, n). */
static void pack_turned(const nm_windows *w, nm_mat weight, int32_t channels, float *to)
{
    const int32_t places = w->size * w->size, products = places * weight.rows;
    for (int32_t col = 0; col < channels; col += NM_TILE_COLS)
        for (int32_t k = 0; k < products; k++, to += NM_TILE_COLS) {
            const int32_t place = places - 1 - k / weight.rows, n = nm_min_i32(channels - col, NM_TILE_COLS);
            memcpy(to, nm_row(weight, k % weight.rows) + place * channels + col, (size_t)n * sizeof *to);
            memset(to + n, 0, (size_t)(NM_TILE_COLS - n) * sizeof *to);
        }
}

static void convolve_grad_input(nm_backend *b, const nm_convolve_grad_input_args *args)
{
    const nm_windows *w = args->windows;
    if (!overlap(w) || w->stride > 1) {
        nm_patchwise_grad_input(b, args);
        return;
    }
    const nm_windows turned = {.images = w->images,
                               .height = nm_windows_along(w, w->height),
                               .width = nm_windows_along(w, w->width),
                               .size = w->size,
                               .stride = 1,
                               .padding = w->size - 1 - w->padding};
    const convolution c = convolution_of(&turned, args->dy.cols);
    NM_ASSERT(c.down == w->height && c.across == w->width);
    float *panels = panels_for(b, c.line * w->size, args->dx.cols);
    pack_turned(w, args->weight, args->dx.cols, panels);
    run_convolution(b, &c, args->dy, panels, NULL, args->add, args->dx);
}

/* Part `unit` of dw: `height` outputs, and two vectors of columns of a row of a window. */
typedef struct weight_units {
    int32_t height, outputs, columns, rows; /* numbers of them */
} weight_units;

static weight_units units_of(const convolution *c, int32_t outputs)
{
    const int32_t height = equal_part(outputs, NM_TILE_ROWS);
    return (weight_units){height, nm_ceil_div(outputs, height), nm_ceil_div(c->line, NM_TILE_COLS),
                          c->w.size};
}

/* dw += the products of windows k0 .. k0 + depth - 1 of an image. */
static void add_unit(const convolution *c, const weight_units *units, int32_t unit, const float *image,
                     const float *dy, size_t ldy, int32_t k0, int32_t depth, nm_mat dw)
{
    const int32_t first = unit / units->columns % units->outputs * units->height,
                  line = unit / units->columns / units->outputs, col = unit % units->columns * NM_TILE_COLS;
    const lines_of_products at = {c->across, (size_t)c->across * ldy, (size_t)(c->w.stride * c->row)};
    weight_tile((gemm_tile){.rows = nm_min_i32(units->height, dw.rows - first),
                            .cols = nm_min_i32(c->line - col, NM_TILE_COLS),
                            .a = dy + first,
                            .a_step = ldy,
                            .b = image + (size_t)line * (size_t)c->row + col,
                            .b_step = (size_t)(c->w.stride * c->channels),
                            .add = true,
                            .alpha = 1,
                            .c = nm_row(dw, first) + line * c->line + col,
                            .ldc = (size_t)dw.stride},
                &at, k0, depth);
}

/* Images first .. first + n - 1. Every thread adds its units of dw; `images`: memory for n padded images. */
static void add_images(const convolution *c, const nm_convolve_grad_weight_args *args, int32_t first,
                       int32_t n, float *images)
{
    const weight_units units = units_of(c, args->dw.rows);
    const int32_t rows = rows_of_lines(c, c->down), windows = c->down * c->across,
                  n_units = units.outputs * units.columns * units.rows, threads = omp_get_num_threads(),
                  thread = omp_get_thread_num();
    const size_t floats = (size_t)rows * (size_t)c->row;
#pragma omp for schedule(static)
    for (int32_t i = 0; i < n; i++)
        copy_band(c, args->x, first + i, 0, c->down, images + (size_t)i * floats);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k0 = 0; k0 < windows; k0 += WEIGHT_DEPTH)
            for (int64_t unit = (int64_t)n_units * thread / threads;
                 unit < (int64_t)n_units * (thread + 1) / threads; unit++)
                add_unit(c, &units, (int32_t)unit, images + (size_t)i * floats,
                         nm_row(args->dy, (first + i) * windows), (size_t)args->dy.stride, k0,
                         nm_min_i32(windows - k0, WEIGHT_DEPTH), args->dw);
#pragma omp barrier
}

static void convolve_grad_weight(nm_backend *b, const nm_convolve_grad_weight_args *args)
{
    const nm_windows *w = args->windows;
    const convolution c = convolution_of(w, args->x.cols);
    if (!args->dw.data || !overlap(w) || c.down * c.across < LEAST_WINDOWS) {
        nm_patchwise_grad_weight(b, args);
        return;
    }
    const size_t floats = (size_t)rows_of_lines(&c, c.down) * (size_t)c.row;
    const int32_t fit = (int32_t)((size_t)IMAGE_FLOATS / floats),
                  n = nm_min_i32(fit < 1 ? 1 : fit, w->images);
    float *images = nm_backend_scratch(b, NM_CPU_PANELS, ((size_t)n * floats + PADDING) * sizeof(float));
    const int32_t threads = threads_for(b, args->dy, args->dw.cols);
#pragma omp parallel num_threads(threads)
    for (int32_t i = 0; i < w->images; i += n)
        add_images(&c, args, i, nm_min_i32(n, w->images - i), images);
    if (args->db)
        NM_SIMD(nm_add_column_sums)(b, args->dy, args->db);
}

void NM_SIMD(nm_cpu_convolve)(nm_kernels *k)
{
    k->convolve = convolve;
    k->convolve_grad_input = convolve_grad_input;
    k->convolve_grad_weight = convolve_grad_weight;
}
