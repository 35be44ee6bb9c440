/* GEMM of small matrices within one thread, by the register tile. */
#ifndef NM_SMALL_GEMM_H
#define NM_SMALL_GEMM_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/tile.h"

enum {
    STRIP = NM_TILE_ROWS < 8 ? NM_TILE_ROWS
                             : 7 /* rows of a tile if the rows of a are not adjacent: one pointer each */
};

/* Left operand, in panel rows (panel.h); see gemm_tile. */
typedef struct operand {
    const float *data;
    size_t row, step; /* strides of rows and columns; one of them is 1 */
} operand;

/* Right operand: panel j (NM_TILE_COLS columns) begins at data + j * panel, its panel row k `step` later each. */
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

static __attribute__((noinline)) void tile_rows(const gemm_tile *part)
{
    gemm_tile t = *part;
    t.a_step = 1;
    t.stream = false;
    t.epilogue = (tile_epilogue){0};
    nm_tile(t);
}

static __attribute__((noinline)) void tile_columns(const gemm_tile *part)
{
    gemm_tile t = *part;
    t.a_row = 1;
    t.stream = false;
    t.epilogue = (tile_epilogue){0};
    nm_tile(t);
}

static void multiply(const small_gemm *g)
{
    gemm_tile t = {.depth = nm_panel_rows(g->depth),
                   .a_row = g->a.row,
                   .a_step = g->a.step,
                   .b = g->b.data,
                   .b_step = g->b.step,
                   .add = g->add,
                   .alpha = g->alpha,
                   .ldc = g->ldc};
    for (int32_t j = 0; j < g->cols; j += NM_TILE_COLS, t.b += g->b.panel) {
        t.cols = nm_min_i32(g->cols - j, NM_TILE_COLS);
        for (int32_t i = 0; i < g->rows; i += t.rows) {
            t.rows = nm_min_i32(g->rows - i, g->a.step == 1 ? STRIP : NM_TILE_ROWS);
            t.a = g->a.data + (size_t)i * g->a.row;
            t.c = g->c + (size_t)i * g->ldc + j;
            if (g->a.step == 1)
                tile_rows(&t);
            else
                tile_columns(&t);
        }
    }
}

#endif
