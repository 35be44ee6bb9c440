/* Convolutions of 3 x 3 positions at stride 1 as products of transformed tiles (Winograd; Lavin and Gray
 * 2016, sections 4.1 and 4.2). With tiles of 4 x 4 inputs d and 2 x 2 outputs, and element-wise products (.):
 *     y  = A^T [sum over channels (G g G^T) . (B^T d B)] A
 *     dg = G^T [sum over tiles (A dy A^T) . (B^T d B)] G
 * So there are 16 matrix products, one for each point of the transformed tiles, which are stored as
 * [points][tiles][channels]: 16 multiply-adds instead of 36. Other convolutions go patch by patch.
 *
 * A sum over channels is in ascending order, in chunks of NM_GEMM_DEPTH; one over tiles in chunks and groups
 * that depend on the shapes only. Results do not depend on threads. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/tile.h"
#include "backend/patchwise.h"

#include <omp.h>

enum {
    POINTS = 16,
    LEAST_CHANNELS = 8,     /* with fewer, the transforms take longer than the products that they save */
    MOST_WEIGHTS = 1 << 14, /* channels * outputs for which dw has sums of several groups */
    CHUNK_FLOATS = 1 << 16, /* transformed tiles of a chunk: they fit L2 */
    CHUNK_TILES = 32,       /* at least */
    GROUP_FLOATS = 1 << 20, /* sums of all groups of tiles, if LEAST_GROUPS allows it */
    LEAST_GROUPS = 4,       /* threads that dw can use, at least */
    MOST_GROUPS = 32,
    THREAD_WORK = 32768 /* multiply-adds per thread for which threads are started */
};

/* Rows of tiles of all images. */
typedef struct tiling {
    nm_windows w;
    int32_t down, across, high, wide; /* windows and tiles along the axes of an image */
    int32_t rows, chunk;              /* number of all, and of a chunk */
} tiling;

static tiling tiling_of(const nm_windows *w, int32_t channels, int32_t outputs)
{
    tiling t = {.w = *w, .down = nm_windows_along(w, w->height), .across = nm_windows_along(w, w->width)};
    t.high = nm_ceil_div(t.down, 2);
    t.wide = nm_ceil_div(t.across, 2);
    t.rows = w->images * t.high;
    const int32_t fit = CHUNK_FLOATS / POINTS / (channels + outputs);
    t.chunk = nm_ceil_div(fit < CHUNK_TILES ? CHUNK_TILES : fit, t.wide);
    return t;
}

static bool fits(const nm_windows *w, int32_t channels, int32_t outputs)
{
    return w->size == 3 && w->stride == 1 && w->padding < 3 && channels >= LEAST_CHANNELS &&
           outputs >= LEAST_CHANNELS;
}

/* Threads for all rows of tiles. */
static int32_t threads_for(const nm_backend *b, const tiling *t, int32_t channels, int32_t outputs)
{
    double work = (double)t->rows * t->wide * POINTS * channels * outputs;
    return work < (double)THREAD_WORK * b->threads ? 1 : b->threads;
}

/* Rows of transformed values have whole vectors. */
static size_t width_of(int32_t cols)
{
    return (size_t)nm_round_up(cols, NM_W);
}

/* Floats from one point to the next: an odd number of cache lines, so that the points of a tile are in
 * different sets of L1. */
static size_t plane_of(int32_t rows, size_t width)
{
    return (((size_t)rows * width + NM_LINE - 1) / NM_LINE | 1) * NM_LINE;
}

/* B^T d, A^T m, A y, G g and G^T v of one column. */
NM_INLINE void input_column(const vf d[4], vf to[4])
{
    to[0] = v_sub(d[0], d[2]);
    to[1] = v_add(d[1], d[2]);
    to[2] = v_sub(d[2], d[1]);
    to[3] = v_sub(d[1], d[3]);
}

NM_INLINE void output_column(const vf m[4], vf to[4])
{
    to[0] = v_add(v_add(m[0], m[1]), m[2]);
    to[1] = v_sub(v_sub(m[1], m[2]), m[3]);
}

NM_INLINE void gradient_column(const vf y[4], vf to[4])
{
    to[0] = y[0];
    to[1] = v_add(y[0], y[1]);
    to[2] = v_sub(y[0], y[1]);
    to[3] = v_sub(v_set(0), y[1]);
}

NM_INLINE void weight_column(const vf g[4], vf to[4])
{
    const vf half = v_set(0.5f), ends = v_add(g[0], g[2]);
    to[0] = g[0];
    to[1] = v_mul(half, v_add(ends, g[1]));
    to[2] = v_mul(half, v_sub(ends, g[1]));
    to[3] = g[2];
}

NM_INLINE void weight_gradient_column(const vf v[4], vf to[4])
{
    const vf half = v_set(0.5f), sum = v_mul(half, v_add(v[1], v[2]));
    to[0] = v_add(v[0], sum);
    to[1] = v_mul(half, v_sub(v[1], v[2]));
    to[2] = v_add(sum, v[3]);
}

/* m = T m T^T for the transformation T of a column from n to `to` values. */
#define TRANSFORM(column, n, to, m)                                                                          \
    do {                                                                                                     \
        NM_UNROLLED(j_, n) {                                                                                 \
            const vf from_[4] = {m[0][j_], m[1][j_], m[2][j_], m[3][j_]};                                    \
            vf result_[4];                                                                                   \
            column(from_, result_);                                                                          \
            NM_UNROLLED(i_, to)                                                                              \
                m[i_][j_] = result_[i_];                                                                     \
        }                                                                                                    \
        NM_UNROLLED(i_, to) {                                                                                \
            vf result_[4];                                                                                   \
            column(m[i_], result_);                                                                          \
            NM_UNROLLED(j_, to)                                                                              \
                m[i_][j_] = result_[j_];                                                                     \
        }                                                                                                    \
    } while (0)

NM_INLINE void store_points(float *to, size_t plane, vf m[4][4])
{
    NM_UNROLLED(i, POINTS)
        v_store(to + (size_t)i * plane, m[i / 4][i % 4]);
}

/* `line`: floats of a row of the band d. */
NM_INLINE void input_vector(const float *d, size_t line, int32_t cols, float *to, size_t plane, int32_t n)
{
    vf m[4][4];
    NM_UNROLLED(i, 16)
        m[i / 4][i % 4] = v_load_upto(d + (size_t)(i / 4) * line + (size_t)(i % 4) * (size_t)cols, n);
    TRANSFORM(input_column, 4, 4, m);
    store_points(to, plane, m);
}

NM_INLINE void gradient_vector(const float *dy, size_t line, int32_t cols, float *to, size_t plane, int32_t n)
{
    vf m[4][4] = {{v_set(0)}};
    NM_UNROLLED(i, 4)
        m[i / 2][i % 2] = v_load_upto(dy + (size_t)(i / 2) * line + (size_t)(i % 2) * (size_t)cols, n);
    TRANSFORM(gradient_column, 2, 4, m);
    store_points(to, plane, m);
}

/* Copies the lines of a row of tiles, with their border, to the band. Returns the floats of one. */
static size_t copy_lines(const tiling *t, const nm_windows *w, nm_mat x, int32_t row, int32_t lines,
                         float *band)
{
    const int32_t cols = 2 * t->wide + lines - 2, first = row % t->high * 2 - w->padding;
    const size_t floats = (size_t)cols * (size_t)x.cols;
    for (int32_t i = 0; i < lines; i++)
        nm_copy_window_row(w, x, row / t->high, first + i, -w->padding, cols, band + (size_t)i * floats);
    return floats;
}

/* to[point][tile] = B^T d B of `rows` rows of tiles */
static void transform_inputs(const tiling *t, nm_mat x, int32_t first, int32_t rows, float *band, float *to,
                             size_t plane)
{
#define STEP(at, n) input_vector(d + (at), line, x.cols, to + (at), plane, n)
    for (int32_t row = first; row < first + rows; row++) {
        const size_t line = copy_lines(t, &t->w, x, row, 4, band);
        const float *d = band;
        for (int32_t i = 0; i < t->wide; i++, d += 2 * x.cols, to += width_of(x.cols))
            NM_COLUMNS(x.cols, STEP);
    }
#undef STEP
}

/* to[point][tile] = A dy A^T */
static void transform_gradients(const tiling *t, nm_mat dy, int32_t first, int32_t rows, float *band,
                                float *to, size_t plane)
{
    const nm_windows w = {.height = t->down, .width = t->across};
#define STEP(at, n) gradient_vector(d + (at), line, dy.cols, to + (at), plane, n)
    for (int32_t row = first; row < first + rows; row++) {
        const size_t line = copy_lines(t, &w, dy, row, 2, band);
        const float *d = band;
        for (int32_t i = 0; i < t->wide; i++, d += 2 * dy.cols, to += width_of(dy.cols))
            NM_COLUMNS(dy.cols, STEP);
    }
#undef STEP
}

/* The outputs of a tile, of which `rows` x `cols` are in the image; distances of its rows and columns. */
typedef struct output_tile {
    float *y;
    int32_t rows, cols;
    size_t row, col;
} output_tile;

NM_INLINE void output_vector(const float *from, size_t plane, const output_tile *to, const float *bias,
                             bool add, int32_t at, int32_t n)
{
    vf m[4][4];
    NM_UNROLLED(i, POINTS)
        m[i / 4][i % 4] = v_load(from + (size_t)i * plane + at);
    TRANSFORM(output_column, 4, 2, m);
    const vf more = bias ? v_load_upto(bias + at, n) : v_set(0);
    NM_UNROLLED(i, 4) {
        float *y = to->y + (size_t)(i / 2) * to->row + (size_t)(i % 2) * to->col + at;
        if (i / 2 < to->rows && i % 2 < to->cols)
            v_store_upto(y, n, v_add(add ? v_load_upto(y, n) : more, m[i / 2][i % 2]));
    }
}

/* y = A^T m A + bias of `rows` rows of tiles, or += */
static void transform_outputs(const tiling *t, const float *from, size_t plane, int32_t first, int32_t rows,
                              const float *bias, bool add, nm_mat y)
{
#define STEP(at, n) output_vector(from, plane, &to, bias, add, at, n)
    for (int32_t row = first; row < first + rows; row++)
        for (int32_t i = 0; i < t->wide; i++, from += width_of(y.cols)) {
            const int32_t image = row / t->high, line = row % t->high * 2;
            const output_tile to = {nm_row(y, (image * t->down + line) * t->across + 2 * i), t->down - line,
                                    t->across - 2 * i, (size_t)t->across * (size_t)y.stride,
                                    (size_t)y.stride};
            NM_COLUMNS(y.cols, STEP);
        }
#undef STEP
}

/* to = G g G^T for the panels of a weight, by all threads: from [panels][9][channels][NM_TILE_COLS] to
 * [points][panels][channels][NM_TILE_COLS]. */
static void transform_panels(const float *from, int32_t panels, int32_t channels, float *to, size_t plane)
{
    const size_t size = (size_t)channels * NM_TILE_COLS;
#pragma omp for schedule(static)
    for (size_t at = 0; at < (size_t)panels * size; at += NM_W) {
        const float *first = from + at / size * 9 * size + at % size;
        vf m[4][4] = {{v_set(0)}};
        NM_UNROLLED(i, 9)
            m[i / 3][i % 3] = v_load(first + (size_t)i * size);
        TRANSFORM(weight_column, 3, 4, m);
        store_points(to + at, plane, m);
    }
}

/* The product of any number of rows, in register tiles of nearly equal size. */
NM_INLINE void product_of_rows(gemm_tile t)
{
    const int32_t parts = nm_ceil_div(t.rows, NM_TILE_ROWS), rows = t.rows / parts, more = t.rows % parts;
    t.alpha = 1;
    t.epilogue = (tile_epilogue){NULL, false};
    t.stream = false;
    t.b_next = NM_W;
    for (int32_t i = 0; i < parts; i++) {
        t.rows = rows + (i < more);
        nm_tile(t);
        t.a += (size_t)t.rows * t.a_row;
        t.c += (size_t)t.rows * t.ldc;
    }
}

/* Rows of c: tiles of the image, a panel of the weight. */
static __attribute__((noinline)) void tiles_times_panel(gemm_tile t)
{
    t.a_step = 1;
    t.b_step = NM_TILE_COLS;
    product_of_rows(t);
}

/* Rows of c: outputs. a: gradients of tiles, b: tiles of the image. */
static __attribute__((noinline)) void gradients_times_tiles(gemm_tile t)
{
    t.a_row = 1;
    product_of_rows(t);
}

/* products = tiles * panels of one point: [n, channels] and [panels][channels][NM_TILE_COLS] */
static void multiply_point(const float *tiles, const float *panels, int32_t n, int32_t channels,
                           int32_t outputs, float *products)
{
    for (int32_t k0 = 0; k0 < channels; k0 += NM_GEMM_DEPTH)
        for (int32_t col = 0; col < outputs; col += NM_TILE_COLS)
            tiles_times_panel(
                (gemm_tile){.rows = n,
                            .cols = nm_min_i32((int32_t)width_of(outputs) - col, NM_TILE_COLS),
                            .depth = nm_min_i32(channels - k0, NM_GEMM_DEPTH),
                            .a = tiles + k0,
                            .a_row = width_of(channels),
                            .b = panels + (size_t)col * (size_t)channels + (size_t)k0 * NM_TILE_COLS,
                            .add = k0 > 0,
                            .c = products + col,
                            .ldc = width_of(outputs)});
}

/* sums = gradients^T tiles of one point, or +=: [outputs, channels] from [n, outputs] and [n, channels] */
static void multiply_weight_point(const float *gradients, const float *tiles, int32_t n, int32_t channels,
                                  int32_t outputs, bool add, float *sums)
{
    for (int32_t col = 0; col < channels; col += NM_TILE_COLS)
        gradients_times_tiles((gemm_tile){.rows = outputs,
                                          .cols = nm_min_i32((int32_t)width_of(channels) - col, NM_TILE_COLS),
                                          .depth = n,
                                          .a = gradients,
                                          .a_step = width_of(outputs),
                                          .b = tiles + col,
                                          .b_step = width_of(channels),
                                          .add = add,
                                          .c = sums + col,
                                          .ldc = width_of(channels)});
}

/* Memory of a thread: transformed inputs and outputs of a chunk, lines of an image. */
typedef struct memory {
    size_t plane, out_plane, floats;
} memory;

static memory memory_of(const tiling *t, int32_t channels, int32_t outputs)
{
    memory m = {plane_of(t->chunk * t->wide, width_of(channels)),
                plane_of(t->chunk * t->wide, width_of(outputs)), 0};
    const size_t lines = 4 * (2 * (size_t)t->wide + 2) * (size_t)(channels > outputs ? channels : outputs);
    m.floats = POINTS * (m.plane + m.out_plane) + lines;
    return m;
}

/* Fetches part `point` of POINTS of the positions of rows of tiles first .. first + rows - 1, of maps of this
 * height and width, while the products of the points keep the arithmetic units busy. */
NM_INLINE void prefetch_maps(const tiling *t, nm_mat map, int32_t height, int32_t width, int32_t first,
                             int32_t rows, int32_t point)
{
    const int32_t end = nm_min_i32(first + rows, t->rows), lines = width * map.stride;
    if (first >= end)
        return;
    const float *from =
        nm_row(map, 0) + (size_t)(first / t->high * height + first % t->high * 2) * (size_t)lines;
    const int64_t floats = (int64_t)(end - first) * 2 * lines;
    for (int64_t at = floats * point / POINTS; at < floats * (point + 1) / POINTS; at += NM_LINE)
        __builtin_prefetch(from + at);
}

/* y = the convolution of x + bias, or +=. panels: the weight, [panels][9 * channels][NM_TILE_COLS]. */
static void run_convolution(nm_backend *b, const nm_windows *w, nm_mat x, const float *panels,
                            const float *bias, bool add, nm_mat y)
{
    const tiling t = tiling_of(w, x.cols, y.cols);
    const memory m = memory_of(&t, x.cols, y.cols);
    const int32_t n_panels = nm_ceil_div(y.cols, NM_TILE_COLS), threads = threads_for(b, &t, x.cols, y.cols);
    const size_t panel_plane = plane_of(n_panels * x.cols, NM_TILE_COLS);
    float *transformed = nm_backend_scratch(b, NM_CPU_PANELS, POINTS * panel_plane * sizeof(float)),
          *all = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * m.floats * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
        float *inputs = all + (size_t)omp_get_thread_num() * m.floats, *products = inputs + POINTS * m.plane;
        transform_panels(panels, n_panels, x.cols, transformed, panel_plane);
#pragma omp for schedule(static)
        for (int32_t first = 0; first < t.rows; first += t.chunk) {
            const int32_t rows = nm_min_i32(t.chunk, t.rows - first);
            transform_inputs(&t, x, first, rows, products + POINTS * m.out_plane, inputs, m.plane);
            for (int32_t point = 0; point < POINTS; point++) {
                prefetch_maps(&t, y, t.down, t.across, first, rows, point);
                prefetch_maps(&t, x, w->height, w->width, first + rows, t.chunk, point);
                multiply_point(inputs + (size_t)point * m.plane, transformed + (size_t)point * panel_plane,
                               rows * t.wide, x.cols, y.cols, products + (size_t)point * m.out_plane);
            }
            transform_outputs(&t, products, m.out_plane, first, rows, bias, add, y);
        }
    }
}

/* The sums of the points over rows of tiles first .. end - 1; `inputs`: memory of the thread. */
static void sum_group(const tiling *t, nm_mat x, nm_mat dy, int32_t first, int32_t end, const memory *m,
                      float *inputs, float *sums, size_t sum_plane)
{
    float *gradients = inputs + POINTS * m->plane, *lines = gradients + POINTS * m->out_plane;
    for (int32_t at = first; at < end; at += t->chunk) {
        const int32_t rows = nm_min_i32(t->chunk, end - at);
        transform_inputs(t, x, at, rows, lines, inputs, m->plane);
        transform_gradients(t, dy, at, rows, lines, gradients, m->out_plane);
        for (int32_t point = 0; point < POINTS; point++) {
            prefetch_maps(t, x, t->w.height, t->w.width, at + rows, rows, point);
            prefetch_maps(t, dy, t->down, t->across, at + rows, rows, point);
            multiply_weight_point(gradients + (size_t)point * m->out_plane, inputs + (size_t)point * m->plane,
                                  rows * t->wide, x.cols, dy.cols, at > first,
                                  sums + (size_t)point * sum_plane);
        }
    }
}

/* dw += G^T sums G of one output. sums: of its channels, [groups][points]. */
NM_INLINE void weight_vector(const float *sums, int32_t groups, size_t plane, int32_t channels, float *dw,
                             int32_t at, int32_t n)
{
    vf m[4][4] = {{v_set(0)}};
    for (int32_t group = 0; group < groups; group++, sums += POINTS * plane)
        NM_UNROLLED(i, POINTS)
            m[i / 4][i % 4] = v_add(m[i / 4][i % 4], v_load(sums + (size_t)i * plane + at));
    TRANSFORM(weight_gradient_column, 4, 3, m);
    NM_UNROLLED(i, 9) {
        float *to = dw + (size_t)i * (size_t)channels + at;
        v_store_upto(to, n, v_add(v_load_upto(to, n), m[i / 3][i % 3]));
    }
}

static void add_weight_gradient(const float *sums, int32_t groups, size_t plane, int32_t channels, float *dw)
{
#define STEP(at, n) weight_vector(sums, groups, plane, channels, dw, at, n)
    NM_COLUMNS(channels, STEP);
#undef STEP
}

static void run_weight_gradient(nm_backend *b, const nm_windows *w, nm_mat x, nm_mat dy, nm_mat dw)
{
    const tiling t = tiling_of(w, x.cols, dy.cols);
    const memory m = memory_of(&t, x.cols, dy.cols);
    const size_t plane = plane_of(dy.cols, width_of(x.cols));
    const int32_t fit = GROUP_FLOATS / POINTS / (x.cols * dy.cols),
                  most = fit < LEAST_GROUPS ? LEAST_GROUPS : nm_min_i32(fit, MOST_GROUPS),
                  groups = nm_min_i32(most, nm_ceil_div(t.rows, t.chunk)),
                  threads = threads_for(b, &t, x.cols, dy.cols);
    float *sums = nm_backend_scratch(b, NM_CPU_PARTIALS, (size_t)groups * POINTS * plane * sizeof(float)),
          *all = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * m.floats * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int32_t i = 0; i < groups; i++)
            sum_group(&t, x, dy, (int32_t)((int64_t)t.rows * i / groups),
                      (int32_t)((int64_t)t.rows * (i + 1) / groups), &m,
                      all + (size_t)omp_get_thread_num() * m.floats, sums + (size_t)i * POINTS * plane,
                      plane);
#pragma omp for schedule(static)
        for (int32_t k = 0; k < dy.cols; k++)
            add_weight_gradient(sums + (size_t)k * width_of(x.cols), groups, plane, x.cols, nm_row(dw, k));
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
    size_t floats = (size_t)products * (size_t)nm_round_up(outputs, NM_TILE_COLS);
    return nm_backend_scratch(b, NM_CPU_PACKED, floats * sizeof(float));
}

static void convolve(nm_backend *b, const nm_convolve_args *args)
{
    const nm_mat weight = args->weight;
    if (!fits(args->windows, args->x.cols, weight.rows) || is_int8(b, weight)) {
        nm_patchwise_convolve(b, args);
        return;
    }
    NM_ASSERT(weight.cols == 9 * args->x.cols && args->y.rows == nm_windows_count(args->windows));
    float *panels = panels_for(b, weight.cols, weight.rows);
    const nm_gemm all = {.tb = true,
                         .cols = weight.rows,
                         .depth = weight.cols,
                         .b = weight.data,
                         .ldb = (size_t)weight.stride};
    NM_SIMD(nm_gemm_pack)(b, &all, panels);
    run_convolution(b, args->windows, args->x, panels, args->bias, false, args->y);
}

/* Panels of the weight turned by 180 degrees, with outputs and channels exchanged: product (i, j, output) of
 * channel n is the weight of the output at (2 - i, 2 - j, n). */
static void pack_turned(nm_mat weight, int32_t channels, float *to)
{
    const int32_t places = 9, products = places * weight.rows;
    for (int32_t col = 0; col < channels; col += NM_TILE_COLS)
        for (int32_t k = 0; k < products; k++, to += NM_TILE_COLS) {
            const int32_t place = places - 1 - k / weight.rows, n = nm_min_i32(channels - col, NM_TILE_COLS);
            memcpy(to, nm_row(weight, k % weight.rows) + place * channels + col, (size_t)n * sizeof *to);
            memset(to + n, 0, (size_t)(NM_TILE_COLS - n) * sizeof *to);
        }
}

/* dx is the convolution of dy with the weight turned by 180 degrees. */
static void convolve_grad_input(nm_backend *b, const nm_convolve_grad_input_args *args)
{
    const nm_windows *w = args->windows;
    if (!fits(w, args->dx.cols, args->dy.cols)) {
        nm_patchwise_grad_input(b, args);
        return;
    }
    const nm_windows turned = {.images = w->images,
                               .height = nm_windows_along(w, w->height),
                               .width = nm_windows_along(w, w->width),
                               .size = w->size,
                               .stride = 1,
                               .padding = w->size - 1 - w->padding};
    float *panels = panels_for(b, 9 * args->dy.cols, args->dx.cols);
    pack_turned(args->weight, args->dx.cols, panels);
    run_convolution(b, &turned, args->dy, panels, NULL, args->add, args->dx);
}

static void convolve_grad_weight(nm_backend *b, const nm_convolve_grad_weight_args *args)
{
    const nm_windows *w = args->windows;
    const int32_t channels = args->x.cols, outputs = args->dy.cols;
    if (!args->dw.data || !fits(w, channels, outputs) || channels > MOST_WEIGHTS / outputs) {
        nm_patchwise_grad_weight(b, args);
        return;
    }
    run_weight_gradient(b, w, args->x, args->dy, args->dw);
    if (args->db)
        NM_SIMD(nm_add_column_sums)(b, args->dy, args->db);
}

void NM_SIMD(nm_cpu_convolve)(nm_kernels *k)
{
    k->convolve = convolve;
    k->convolve_grad_input = convolve_grad_input;
    k->convolve_grad_weight = convolve_grad_weight;
}
