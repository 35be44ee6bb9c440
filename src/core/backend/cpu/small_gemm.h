/* Single-threaded GEMM of small matrices with the register tile. */
#pragma once

#include "backend/cpu/kernel.h"
#include "backend/cpu/tile.h"

/* Rows of a tile if the rows of a are contiguous, because each row then needs a pointer. */
#if defined(NM_BF16_AMX)
enum { STRIP = NM_TILE_ROWS, A_GROUP = NM_LINE }; /* A_GROUP: a_step of such a tile */
#else
enum { STRIP = NM_TILE_ROWS < 8 ? NM_TILE_ROWS : 7, A_GROUP = 1 };
#endif

/* Left operand, in panel rows (panel.h); see gemm_tile. */
typedef struct operand {
    const float *data;
    size_t row, step; /* strides of rows and columns; one of them is 1 */
} operand;

/* Right operand: panel j, of NM_TILE_COLS columns, begins at data + j * panel; its panel row k is at k *
 * step. */
typedef struct panels {
    const float *data;
    size_t panel, step;
} panels;

/* c[rows x cols] = alpha a b, or c + alpha a b with `add` */
typedef struct small_gemm {
    int32_t rows, cols, depth;
    operand a;
    panels b;
    float alpha;
    bool add;
    float *c;
    size_t ldc;
} small_gemm;

/* Arguments of a tile in small structs, which are passed in registers: a struct in memory is slower for small
 * depths. */
typedef struct tile_size {
    int32_t rows, cols, depth; /* depth: number of panel rows */
    bool add;
} tile_size;

typedef struct tile_operand { /* step: stride of the rows or columns of a, or of the panel rows of b */
    const float *data;
    size_t step;
} tile_operand;

typedef struct tile_distances { /* b_next and b_panel of gemm_tile */
    ptrdiff_t next, panel;
} tile_distances;

typedef struct tile_output {
    float *data;
    size_t step;
} tile_output;

/* a_row, a_step: strides of the rows and columns of a. One of them is the constant 1. */
NM_INLINE void run_tile(tile_size size, const float *a, size_t a_row, size_t a_step, tile_operand b,
                        float alpha, tile_output c, tile_distances vectors)
{
    nm_tile((gemm_tile){.rows = size.rows,
                        .cols = size.cols,
                        .depth = size.depth,
                        .a = a,
                        .a_row = a_row,
                        .a_step = a_step,
                        .b = b.data,
                        .b_step = b.step,
                        .b_next = NM_TILE_VECTORS > 2 ? vectors.next : NM_W,
                        .b_panel = vectors.panel,
                        .add = size.add,
                        .alpha = alpha,
                        .c = c.data,
                        .ldc = c.step});
}

/* The rows of a are contiguous. */
static __attribute__((noinline)) void tile_rows(tile_size size, tile_operand a, tile_operand b, float alpha,
                                                tile_output c, tile_distances vectors)
{
    run_tile(size, a.data, a.step, A_GROUP, b, alpha, c, vectors);
}

/* The columns of a are contiguous. */
static __attribute__((noinline)) void tile_columns(tile_size size, tile_operand a, tile_operand b,
                                                   float alpha, tile_output c, tile_distances vectors)
{
    run_tile(size, a.data, 1, a.step, b, alpha, c, vectors);
}

NM_INLINE void multiply(const small_gemm *g)
{
    const bool by_rows = g->a.step == 1;
    tile_size size = {.depth = nm_panel_rows(g->depth), .add = g->add};
    for (int32_t j = 0, count; j < g->cols; j += count * NM_W) {
        count = nm_tile_part(nm_ceil_div(g->cols - j, NM_W), NM_TILE_VECTORS);
        size.cols = nm_min_i32(g->cols - j, count * NM_W);
        const tile_operand b = {g->b.data + (size_t)(j / NM_TILE_COLS) * g->b.panel + j % NM_TILE_COLS,
                                g->b.step};
        const tile_distances vectors = {nm_next_vector(j / NM_W, (ptrdiff_t)g->b.panel),
                                        (ptrdiff_t)g->b.panel};
        const int32_t most = by_rows ? nm_min_i32(STRIP, nm_tile_rows(count)) : nm_tile_rows(count);
        for (int32_t i = 0; i < g->rows; i += size.rows) {
            size.rows = nm_tile_part(g->rows - i, most);
            tile_output c = {g->c + (size_t)i * g->ldc + j, g->ldc};
            const float *a = g->a.data + (size_t)i * g->a.row;
            if (by_rows)
                tile_rows(size, (tile_operand){a, g->a.row}, b, g->alpha, c, vectors);
            else
                tile_columns(size, (tile_operand){a, g->a.step}, b, g->alpha, c, vectors);
        }
    }
}
