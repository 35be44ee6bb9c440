/* Matrix products of the CPU backend, after Goto and van de Geijn (2008) and BLIS (Van Zee and van de Geijn
 * 2015): packed panels of the right operand, a register tile, everything else cut into blocks.
 *
 * An element of the result is always sum over k in ascending order, in chunks of NM_GEMM_DEPTH that depend on
 * k alone, whatever the number of rows, columns and threads and wherever the element stands: a sentence
 * decoded alone gives the same bits as in a batch. avx2 and avx512 agree as well, because both round once per
 * multiply-add. */
#ifndef NM_GEMM_H
#define NM_GEMM_H

#include "backend/cpu/simd.h"
#include "norma/backend.h"

/* c = alpha op(a) op(b), or c += alpha op(a) op(b); then the bias of its columns and relu, where wanted. Element (i, k)
 * of a is a[i * lda + k], or a[k * lda + i] when ta; (k, j) of b is b[k * ldb + j], or b[j * ldb + k] when tb. */
typedef struct nm_gemm {
    bool ta, tb, add;
    float alpha;
    int32_t rows, cols, depth;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
    const float *bias; /* or NULL */
    bool relu;
    const float *packed; /* b as nm_gemm_pack writes it, or NULL */
    /* Called when the block of c from (row, col) is complete, while it is in the cache; or NULL. */
    void (*finish)(const struct nm_gemm *gemm, int32_t row, int32_t col, int32_t rows, int32_t cols);
    const void *context;
} nm_gemm;

enum { NM_GEMM_COLS = 1024 }; /* columns of the largest block that `finish` gets */

void NM_SIMD(nm_gemm_run)(nm_backend *backend, const nm_gemm *gemm);

/* Writes all of b as panels of [depth][columns of a tile], missing columns as zeros: column j begins, where a tile does, at
 * j * depth. NULL: returns the bytes only. */
size_t NM_SIMD(nm_gemm_pack)(nm_backend *backend, const nm_gemm *gemm, float *to);

/* to[j] += sum over rows of x, in double */
void NM_SIMD(nm_add_column_sums)(nm_backend *b, nm_mat x, float *to);

#endif
