/* The register tile: up to NM_TILE_ROWS x NM_TILE_COLS elements of a GEMM, summed over k in ascending
 * order from zero, one multiply-add per panel row (panel.h). */
#ifndef NM_TILE_H
#define NM_TILE_H

#include "backend/cpu/panel.h"

#include <stdbool.h>

enum {
    NM_TILE_COLS = 2 * NM_W,
    NM_LINE = 16,          /* floats of a cache line */
    NM_TILE_PREFETCH = 128 /* prefetch distance in rows of b */
};

/* Epilogue of a GEMM: bias of the columns (or NULL), relu. */
typedef struct tile_epilogue {
    const float *bias;
    bool relu;
} tile_epilogue;

/* c = epilogue(alpha a b), or epilogue(c + alpha a b) with `add`.
 * Element i of panel row k of a is a[i * a_row + k * a_step]; panel row k of b begins at b + k * b_step and
 * is readable up to whole vectors. rows: 1 .. NM_TILE_ROWS, cols: 1 .. NM_TILE_COLS. */
typedef struct gemm_tile {
    int32_t rows, cols, depth; /* of c; number of panel rows */
    const float *a;
    size_t a_row, a_step; /* constants after inlining, if possible */
    const float *b;
    size_t b_step;
    bool stream; /* prefetch b, which is read from memory and continues after this panel */
    bool add;
    float alpha;
    tile_epilogue epilogue;
    float *c;
    size_t ldc;
} gemm_tile;

/* c = alpha sum, or c += alpha sum, followed by the epilogue. `add`, `bias` and `relu` are constants after inlining: branches for
 * each vector make a tile of depth 256 3 % slower. */
NM_INLINE void store_tile(const gemm_tile t, const int rows, const int vectors, vf sum[][2], const bool add,
                          const float *bias, const bool relu)
{
    vf factor = v_set(t.alpha);
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) {
        const int32_t n = t.cols - j * NM_W;
        vf more = bias ? nm_flush(v_load_upto(bias + j * NM_W, n)) : v_set(0);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            float *to = t.c + (size_t)i * t.ldc + j * NM_W;
#if defined(NM_BF16) /* without FMA, so that the result does not depend on the CPU level */
            vf z = nm_flush(v_mul(factor, sum[i][j]));
            if (add)
                z = nm_flush(v_add(nm_flush(v_load_upto(to, n)), z));
#else
            vf z = add ? v_fma(factor, sum[i][j], v_load_upto(to, n)) : v_mul(factor, sum[i][j]);
#endif
            if (bias)
                z = nm_flush(v_add(z, more));
            if (relu)
                z = v_max(v_set(0), z);
            v_store_upto(to, n, z);
        }
    }
}

/* The tile with a constant number of rows and of vectors of its columns. */
NM_INLINE void tile_fixed(const gemm_tile t, const int rows, const int vectors)
{
    const float *a = t.a, *b = t.b;
    vf sum[NM_TILE_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = v_set(0);
    for (int32_t k = 0; k < t.depth; k++) {
        vf right[2] = {v_load(b), vectors > 1 ? v_load(b + NM_W) : v_set(0)};
        if (t.stream && rows < NM_TILE_ROWS) /* tiles of few rows are limited by the loads of b */
            for (int j = 0; j < vectors * NM_W; j += NM_LINE)
                __builtin_prefetch(b + NM_TILE_PREFETCH * t.b_step + j);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vf left = v_set(a[(size_t)i * t.a_row]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                sum[i][j] = nm_multiply_add(left, right[j], sum[i][j]);
        }
        a += t.a_step;
        b += t.b_step;
    }
    const float *bias = t.epilogue.bias;
    if (bias && t.epilogue.relu)
        store_tile(t, rows, vectors, sum, t.add, bias, true);
    else if (bias)
        store_tile(t, rows, vectors, sum, t.add, bias, false);
    else if (t.epilogue.relu)
        store_tile(t, rows, vectors, sum, t.add, NULL, true);
    else if (t.add)
        store_tile(t, rows, vectors, sum, true, NULL, false);
    else
        store_tile(t, rows, vectors, sum, false, NULL, false);
}

#define NM_TILE_CASE(n)                                                                                      \
    case n:                                                                                                  \
        if (n > NM_TILE_ROWS)                                                                                \
            return;                                                                                          \
        if (t.cols > NM_W)                                                                                   \
            tile_fixed(t, n > NM_TILE_ROWS ? 1 : n, 2);                                                      \
        else                                                                                                 \
            tile_fixed(t, n > NM_TILE_ROWS ? 1 : n, 1);                                                      \
        return;

NM_INLINE void nm_tile(const gemm_tile t)
{
    switch (t.rows) {
        NM_TILE_CASE(1)
        NM_TILE_CASE(2)
        NM_TILE_CASE(3)
        NM_TILE_CASE(4)
        NM_TILE_CASE(5)
        NM_TILE_CASE(6)
        NM_TILE_CASE(7)
        NM_TILE_CASE(8)
        NM_TILE_CASE(9)
        NM_TILE_CASE(10)
        NM_TILE_CASE(11)
        NM_TILE_CASE(12)
        NM_TILE_CASE(13)
        NM_TILE_CASE(14)
    }
}

#endif
