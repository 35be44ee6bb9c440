/* GEMM of the CPU backend after Goto and van de Geijn (2008) and BLIS (Van Zee and van de Geijn 2015): packed
 * panels of both operands, a register tile, cache blocking.
 *
 * An element of the result is the sum over k in ascending order, in chunks that depend on the depth only, not
 * on the numbers of rows, columns and threads or on the position of the element. Therefore decoding at batch
 * size 1 is bitwise identical to decoding in a larger batch. Results of all levels except base are bitwise
 * identical, too, because they use FMA. */
#pragma once

#include "backend/cpu/simd.h"
#include "norma/backend.h"

/* c = alpha op(a) op(b), or c += alpha op(a) op(b) with `add`; then optionally bias and relu.
 * Element (i, k) of a is a[i * lda + k], or a[k * lda + i] if ta.
 * Element (k, j) of b is b[k * ldb + j], or b[j * ldb + k] if tb. */
typedef struct nm_gemm {
    bool ta, tb, add;
    float alpha;
    int32_t rows, cols, depth;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
    const float *bias; /* or NULL */
    bool relu;
    const float *packed; /* b packed by nm_gemm_pack, or NULL */
    /* Called for each complete block of c, while it is in the cache; or NULL. */
    void (*finish)(const struct nm_gemm *gemm, int32_t row, int32_t col, int32_t rows, int32_t cols);
    const void *context;
} nm_gemm;

enum {
    NM_GEMM_COLS = 1024, /* columns of the largest block passed to `finish` */
    /* KC, of a chunk of a sum, even: a micro-panel of a fits L1 and a panel of b fits L2 */
    NM_GEMM_DEPTH = 512
};

void NM_SIMD(nm_gemm_run)(nm_backend *backend, const nm_gemm *gemm);

/* Packs b into panels of [panel rows, columns of a tile] (panel.h), padded with zero columns: the panel of
 * column j, the first of a tile, begins at j * nm_panel_rows(depth). Returns the size in bytes; to NULL: only
 * that. */
size_t NM_SIMD(nm_gemm_pack)(nm_backend *backend, const nm_gemm *gemm, float *to);

/* to[j] += sum over the rows of x, accumulated in double */
void NM_SIMD(nm_add_column_sums)(nm_backend *b, nm_mat x, float *to);
