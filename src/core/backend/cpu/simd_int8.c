/* Int8 linear layers as defined in norma/backend.h. Sums are exact, and each following operation is rounded
 * to float, so that every CPU level is bitwise identical to the reference kernel. */
#include "backend/cpu/dot_int8.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/shares.h"

#include <omp.h>

enum {
    BLOCK_ROWS = DOT_MATRIX > 1 ? 64 : 48, /* rows of x in one block */
    PANEL_FLOATS = NM_INT8_PANEL / NM_W,   /* vectors of the results of a panel */
    SERIAL_WORK = 1 << 18                  /* multiplications below which one thread is used */
};

typedef struct int8_gemm {
    nm_mat x, y;
    const nm_int8 *weight;
    const float *bias;
    nm_act act;
    dot_input *inputs; /* [rows, stride]: quantized rows of x */
    size_t stride;     /* multiple of DOT_COLS */
    float *scales;     /* [rows]: of the rows of x */
} int8_gemm;

static float largest_of(const float *row, int32_t n)
{
    vu most = vu_set(0);
    uint32_t lanes[NM_W], bits = 0;
    for (int32_t i = 0; i < n; i += NM_W)
        most = vu_max(most, vu_and(v_bits(v_load_upto(row + i, n - i)), vu_set(0x7FFFFFFF)));
    memcpy(lanes, &most, sizeof lanes);
    for (int i = 0; i < NM_W; i++)
        bits = lanes[i] > bits ? lanes[i] : bits;
    return nm_int8_largest(bits);
}

/* Adding 1.5 * 2^23 rounds to an integer, which the low bits of the sum contain. */
static void quantize_row(const int8_gemm *p, int32_t r)
{
    const float *row = nm_row(p->x, r);
    dot_input *to = p->inputs + (size_t)r * p->stride;
    int32_t n = p->x.cols;
    float largest = largest_of(row, n);
    vf factor = v_set(largest > 0 ? NM_INT8_MAX / largest : 0), shifter = v_set(12582912.0f);
    bool quantized = largest > 0;
    for (int32_t i = 0; i < (int32_t)p->stride; i += NM_W) {
        vf x = quantized && i < n ? v_load_upto(row + i, n - i) : v_set(0);
        dot_store_input(to + i, v_bits(v_add(v_mul(x, factor), shifter)));
    }
    p->scales[r] = largest / NM_INT8_MAX;
}

/* Applies scales, bias and activation to the sums z of a row of x with NM_INT8_PANEL rows of the weight, and
 * writes them to y from column `first` on, which may be negative; columns outside y are not written. scales:
 * those of the rows of the weight. */
static void write_panel(const int8_gemm *p, int32_t row, int32_t first, const float *scales, vf *z)
{
    float *y = nm_row(p->y, row), bias[NM_INT8_PANEL] = {0}, part[NM_INT8_PANEL];
    int32_t from = first < 0 ? -first : 0, end = nm_min_i32(NM_INT8_PANEL, p->y.cols - first);
    bool all = from == 0 && end == NM_INT8_PANEL;
    if (p->bias && !all)
        memcpy(bias + from, p->bias + first + from, (size_t)(end - from) * sizeof *bias);
    const float *shift = all && p->bias ? p->bias + first : bias;
    float *to = all ? y + first : part;
    for (int i = 0; i < PANEL_FLOATS; i++) {
        vf v = v_mul(v_mul(z[i], v_load(scales + i * NM_W)), v_set(p->scales[row]));
        if (p->bias)
            v = v_add(v, v_load(shift + i * NM_W));
        if (p->act == NM_ACT_RELU)
            v = v_max(v_set(0), v);
        v_store(to + i * NM_W, v);
    }
    if (!all)
        memcpy(y + first + from, part + from, (size_t)(end - from) * sizeof *part);
}

/* A part of y: rows of x times panels of the weight. */
typedef struct tile {
    int32_t row, rows, panel, panels;
} tile;

#if defined(NM_LEVEL_amx)

NM_INLINE void sum_matrices(const int8_gemm *p, const bool two_rows, const bool two_panels, const tile *at,
                            dot_vector *sums)
{
    enum { MATRIX = DOT_COLS * NM_INT8_PANEL }; /* bytes of a panel that are multiplied at a time */
    const nm_int8 *w = p->weight;
    size_t bytes = nm_int8_panel_bytes(w->cols), stride = p->stride, full = (size_t)(w->cols / DOT_COLS);
    const dot_input *x = p->inputs + (size_t)at->row * stride;
    const int8_t *panel = nm_int8_panel(w->packed, w->rows, w->cols, (size_t)at->panel);
    int8_t last[2][MATRIX]; /* the remaining columns, and zeros */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < full; k++, x += DOT_COLS, panel += MATRIX)
        dot_add_matrices(x, stride, two_rows, panel, bytes, two_panels);
    if (bytes > full * MATRIX) {
        memset(last, 0, sizeof last);
        memcpy(last[0], panel, bytes - full * MATRIX);
        if (two_panels)
            memcpy(last[1], panel + bytes, bytes - full * MATRIX);
        dot_add_matrices(x, stride, two_rows, last[0], MATRIX, two_panels);
    }
    const size_t panels = two_panels ? 2 : 1, row = panels * sizeof *sums;
    _tile_stored(0, sums, row);
    if (two_panels)
        _tile_stored(1, sums + 1, row);
    if (two_rows)
        _tile_stored(2, sums + DOT_MATRIX * panels, row);
    if (two_rows && two_panels)
        _tile_stored(3, sums + DOT_MATRIX * panels + 1, row);
}

/* sums: [rows][panels] */
static void sum_tile(const int8_gemm *p, const tile *at, dot_vector *sums)
{
    if (at->rows > DOT_MATRIX && at->panels > 1)
        sum_matrices(p, true, true, at, sums);
    else if (at->rows > DOT_MATRIX)
        sum_matrices(p, true, false, at, sums);
    else if (at->panels > 1)
        sum_matrices(p, false, true, at, sums);
    else
        sum_matrices(p, false, false, at, sums);
}

#else

NM_INLINE void sum_fixed(const int8_gemm *p, const int rows, const int panels, const tile *at,
                         dot_vector *sums)
{
    const nm_int8 *w = p->weight;
    size_t fours = nm_int8_fours(w->cols), bytes = nm_int8_panel_bytes(w->cols), stride = p->stride;
    const dot_input *x = p->inputs + (size_t)at->row * stride;
    const int8_t *panel = nm_int8_panel(w->packed, w->rows, w->cols, (size_t)at->panel);
    dot_vector sum[DOT_ROWS][DOT_PANELS][DOT_VECTORS];
    NM_UNROLLED(r, rows)
        NM_UNROLLED(c, panels)
            NM_UNROLLED(v, DOT_VECTORS)
                sum[r][c][v] = dot_zero();
    size_t k = 0;
#if defined(NM_LEVEL_neon)
    for (; k + DOT_FOURS <= fours; k += DOT_FOURS, panel += DOT_FOURS * 4 * NM_INT8_PANEL, x += DOT_FOURS * 4)
        NM_UNROLLED(i, DOT_STEPS)
            NM_UNROLLED(v, DOT_VECTORS)
                NM_UNROLLED(r, rows)
                    sum[r][0][v] = dot_add_step(sum[r][0][v], panel, v, x + (size_t)r * stride, i);
#endif
    for (; k < fours; k++, panel += 4 * NM_INT8_PANEL, x += 4) {
        NM_UNROLLED(r, rows)
            NM_UNROLLED(c, panels)
                NM_UNROLLED(v, DOT_VECTORS)
                    sum[r][c][v] =
                        dot_add(sum[r][c][v], panel + (size_t)c * bytes, v, x + (size_t)r * stride);
    }
    NM_UNROLLED(r, rows)
        NM_UNROLLED(c, panels)
            NM_UNROLLED(v, DOT_VECTORS)
                sums[(r * panels + c) * DOT_VECTORS + v] = sum[r][c][v];
}

#define TILE_CASE(n)                                                                                         \
    case n:                                                                                                  \
        if (n <= DOT_ROWS && at->panels == DOT_PANELS)                                                       \
            sum_fixed(p, n <= DOT_ROWS ? n : 1, DOT_PANELS, at, sums);                                       \
        else if (n <= DOT_ROWS)                                                                              \
            sum_fixed(p, n <= DOT_ROWS ? n : 1, 1, at, sums);                                                \
        break;

/* sums: [rows][panels][DOT_VECTORS] */
static void sum_tile(const int8_gemm *p, const tile *at, dot_vector *sums)
{
    switch (at->rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
    }
}

#endif

static void write_tile(const int8_gemm *p, const tile *at, const dot_vector *sums)
{
    const nm_int8 *w = p->weight;
    for (int32_t r = 0; r < at->rows; r++)
        for (int32_t c = 0; c < at->panels; c++, sums += DOT_VECTORS) {
            int32_t first = (at->panel + c) * NM_INT8_PANEL;
            vf z[PANEL_FLOATS];
            dot_finish(sums, nm_int8_sums(w->packed, w->rows) + first, z);
            write_panel(p, at->row + r, first - w->first, nm_int8_scales(w->packed) + first, z);
        }
}

/* panels: 1 or DOT_PANELS */
static void run_tile(const int8_gemm *p, tile at)
{
    dot_vector sums[DOT_ROWS * DOT_PANELS * DOT_VECTORS];
    sum_tile(p, &at, sums);
    write_tile(p, &at, sums);
}

/* First row of tile i of a block. */
static int32_t tile_row(int32_t rows, int32_t i, int32_t tiles)
{
#if defined(NM_LEVEL_amx) /* the time of a tile depends on its number of matrices */
    (void)tiles;
    return nm_min_i32(rows, i * DOT_ROWS);
#else /* tiles of nearly equal height */
    return rows * i / tiles;
#endif
}

/* Tiles of x, for each group of panels. */
static void run_block(const int8_gemm *p, int32_t row, int32_t rows, int32_t panel, int32_t panels)
{
    int32_t tiles = nm_ceil_div(rows, DOT_ROWS), step;
    for (int32_t g = 0; g < panels; g += step) {
        step = panels - g < DOT_PANELS ? 1 : DOT_PANELS;
        for (int32_t t = 0; t < tiles; t++) {
            int32_t from = tile_row(rows, t, tiles), to = tile_row(rows, t + 1, tiles);
            run_tile(p, (tile){row + from, to - from, panel + g, step});
        }
    }
}

/* Number of panels of a block, such that every thread gets several blocks. Results do not depend on it. */
static int32_t block_panels(int32_t row_blocks, int32_t panels, int32_t threads)
{
    int32_t blocks = nm_ceil_div(4 * threads, row_blocks);
    return nm_round_up(nm_ceil_div(panels, blocks), DOT_PANELS);
}

static void run_gemm(nm_backend *b, const int8_gemm *p, int32_t threads)
{
    int32_t first = p->weight->first / NM_INT8_PANEL;
    int32_t panels = nm_ceil_div(p->weight->first + p->y.cols, NM_INT8_PANEL) - first;
    int32_t row_blocks = nm_ceil_div(p->x.rows, BLOCK_ROWS),
            width = block_panels(row_blocks, panels, threads);
    int32_t col_blocks = nm_ceil_div(panels, width);
    const nm_shares shares = nm_shares_of_blocks(b, threads, row_blocks * col_blocks);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int32_t r = 0; r < p->x.rows; r++)
            quantize_row(p, r);
        dot_begin();
        for (int32_t i; (i = nm_shares_take(&shares, omp_get_thread_num())) >= 0;) {
            int32_t row = i / col_blocks * BLOCK_ROWS, panel = i % col_blocks * width;
            run_block(p, row, nm_min_i32(p->x.rows - row, BLOCK_ROWS), first + panel,
                      nm_min_i32(panels - panel, width));
        }
        dot_end();
    }
}

static void linear_int8(nm_backend *b, const nm_linear_int8_args *args)
{
    const nm_mat x = args->x, y = args->y;
    const nm_int8 *weight = args->weight;
    NM_ASSERT(x.rows == y.rows && x.cols == weight->cols && weight->first + y.cols <= weight->rows);
    if (y.rows == 0 || y.cols == 0)
        return;
    size_t stride = (size_t)nm_round_up(x.cols, DOT_COLS), rows = (size_t)nm_round_up(x.rows, DOT_MATRIX);
    char *workspace =
        nm_backend_scratch(b, NM_CPU_PANELS, rows * (stride * sizeof(dot_input) + sizeof(float)));
    double work = (double)x.rows * (double)x.cols * (double)y.cols;
    int8_gemm p = {.x = x,
                   .y = y,
                   .weight = weight,
                   .bias = args->bias,
                   .act = args->act,
                   .inputs = (dot_input *)(void *)workspace,
                   .stride = stride,
                   .scales = (float *)(void *)(workspace + rows * stride * sizeof(dot_input))};
    run_gemm(b, &p, work < SERIAL_WORK ? 1 : b->threads);
}

void NM_SIMD(nm_cpu_int8)(nm_kernels *k)
{
    k->linear_int8 = linear_int8;
}
