/* GEMM of small matrices within one thread, by the register tile. */
#ifndef NM_SMALL_GEMM_H
#define NM_SMALL_GEMM_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/tile.h"

enum {
    STRIP = NM_TILE_ROWS < 8 ? NM_TILE_ROWS
                             : 7 /* rows of a tile if the rows of a are not adjacent: one pointer each */
};

/* Left operand, in panel rows (panel.h); see nm_tile. */
typedef struct operand {
    const float *data;
    size_t row, step; /* strides of rows and columns; one of them is 1 */
} operand;

static __attribute__((noinline)) void tile_rows(int32_t rows, int32_t cols, int32_t depth, const float *a,
                                                size_t a_row, const float *b, size_t b_step, float alpha,
                                                bool add, float *c, size_t ldc)
{
    nm_tile(rows, cols, depth, a, a_row, 1, b, b_step, false, alpha, add, (tile_epilogue){0}, c, ldc);
}

static __attribute__((noinline)) void tile_columns(int32_t rows, int32_t cols, int32_t depth, const float *a,
                                                   size_t a_step, const float *b, size_t b_step, float alpha,
                                                   bool add, float *c, size_t ldc)
{
    nm_tile(rows, cols, depth, a, 1, a_step, b, b_step, false, alpha, add, (tile_epilogue){0}, c, ldc);
}

/* c[m x n] = or += alpha a b; panel j of b (NM_TILE_COLS columns) begins at b + j * b_panel */
static void multiply(int32_t m, int32_t n, int32_t depth, operand a, const float *b, size_t b_panel,
                     size_t b_step, float alpha, bool add, float *c, size_t ldc)
{
    const int32_t panel_rows = nm_panel_rows(depth);
    for (int32_t j = 0; j < n; j += NM_TILE_COLS, b += b_panel) {
        int32_t cols = nm_min_i32(n - j, NM_TILE_COLS);
        for (int32_t i = 0, rows; i < m; i += rows) {
            rows = nm_min_i32(m - i, a.step == 1 ? STRIP : NM_TILE_ROWS);
            float *to = c + (size_t)i * ldc + j;
            if (a.step == 1)
                tile_rows(rows, cols, panel_rows, a.data + (size_t)i * a.row, a.row, b, b_step, alpha, add,
                          to, ldc);
            else
                tile_columns(rows, cols, panel_rows, a.data + i, a.step, b, b_step, alpha, add, to, ldc);
        }
    }
}

#endif
