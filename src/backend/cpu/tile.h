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

/* c = sum, or c += sum, followed by the epilogue. The branches are taken once per tile; taken per vector,
 * a tile of depth 256 is 3 % slower. */
NM_INLINE void store_tile(const int rows, const int vectors, int32_t cols, vf sum[][2], float alpha,
                          const bool add, const float *bias, const bool relu, float *c, size_t ldc)
{
    vf factor = v_set(alpha);
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) {
        const int32_t n = cols - j * NM_W;
        vf more = bias ? nm_flush(v_load_upto(bias + j * NM_W, n)) : v_set(0);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            float *to = c + (size_t)i * ldc + j * NM_W;
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

/* c = epilogue(alpha a b), or epilogue(c + alpha a b). Element i of panel row k of a is
 * a[i * a_row + k * a_step]; panel row k of b begins at b + k * b_step and is readable up to whole vectors;
 * depth: number of panel rows; cols columns are written.
 * stream: b is read from memory and continues after this panel: prefetch the next rows. */
NM_INLINE void tile_fixed(const int rows, const int vectors, int32_t cols, int32_t depth, const float *a,
                          size_t a_row, size_t a_step, const float *b, size_t b_step, const bool stream,
                          float alpha, bool add, const tile_epilogue epilogue, float *c, size_t ldc)
{
    vf sum[NM_TILE_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = v_set(0);
    for (int32_t k = 0; k < depth; k++) {
        vf right[2] = {v_load(b), vectors > 1 ? v_load(b + NM_W) : v_set(0)};
        if (stream && rows < NM_TILE_ROWS) /* with few rows the tile is bound by the loads of b */
            for (int j = 0; j < vectors * NM_W; j += NM_LINE)
                __builtin_prefetch(b + NM_TILE_PREFETCH * b_step + j);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vf left = v_set(a[(size_t)i * a_row]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                sum[i][j] = nm_multiply_add(left, right[j], sum[i][j]);
        }
        a += a_step;
        b += b_step;
    }
    if (epilogue.bias && epilogue.relu)
        store_tile(rows, vectors, cols, sum, alpha, add, epilogue.bias, true, c, ldc);
    else if (epilogue.bias)
        store_tile(rows, vectors, cols, sum, alpha, add, epilogue.bias, false, c, ldc);
    else if (epilogue.relu)
        store_tile(rows, vectors, cols, sum, alpha, add, NULL, true, c, ldc);
    else if (add)
        store_tile(rows, vectors, cols, sum, alpha, true, NULL, false, c, ldc);
    else
        store_tile(rows, vectors, cols, sum, alpha, false, NULL, false, c, ldc);
}

#define NM_TILE_CASE(n)                                                                                      \
    case n:                                                                                                  \
        if (n > NM_TILE_ROWS)                                                                                \
            return;                                                                                          \
        if (cols > NM_W)                                                                                     \
            tile_fixed(n > NM_TILE_ROWS ? 1 : n, 2, cols, depth, a, a_row, a_step, b, b_step, stream, alpha, \
                       add, epilogue, c, ldc);                                                               \
        else                                                                                                 \
            tile_fixed(n > NM_TILE_ROWS ? 1 : n, 1, cols, depth, a, a_row, a_step, b, b_step, stream, alpha, \
                       add, epilogue, c, ldc);                                                               \
        return;

/* rows: 1 .. NM_TILE_ROWS, cols: 1 .. NM_TILE_COLS. a_row and a_step should be constants after inlining. */
NM_INLINE void nm_tile(int32_t rows, int32_t cols, int32_t depth, const float *a, size_t a_row, size_t a_step,
                       const float *b, size_t b_step, const bool stream, float alpha, bool add,
                       const tile_epilogue epilogue, float *c, size_t ldc)
{
    switch (rows) {
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
