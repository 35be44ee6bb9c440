/* The register tile: up to NM_TILE_ROWS rows and NM_TILE_VECTORS vectors of columns of a GEMM, summed over k
 * in ascending order from zero, one multiply-add per panel row (panel.h); with AMX, 2 x 2 tiles of 16 x 16
 * elements. */
#pragma once

#include "backend/cpu/panel.h"

#include <stdbool.h>

#if !defined(NM_TILE_VECTORS)
#define NM_TILE_VECTORS 2
#endif

enum {
    NM_TILE_COLS = 2 * NM_W, /* of a panel; a tile of three vectors reads one and a half */
    NM_LINE = 16,            /* floats of a cache line */
    /* Prefetch distance in rows of b. Tiles of few rows are limited by the loads of b, which may come from
     * memory; for others b is in L2. */
    NM_NEAR_PREFETCH = 16,
    NM_FAR_PREFETCH = 128
};

/* Epilogue of a GEMM: bias of the columns (or NULL), relu. */
typedef struct tile_epilogue {
    const float *bias;
    bool relu;
} tile_epilogue;

/* Number of rows or vectors of the next tile: `most`, but 2 of 4 instead of 3 and 1. */
NM_INLINE int32_t nm_tile_part(int32_t left, int32_t most)
{
    if (NM_TILE_VECTORS > 2 && left == 4 && most == 3)
        return 2;
    return left < most ? left : most;
}

/* Rows of a tile with this number of vectors, whose sums fit the registers. */
NM_INLINE int32_t nm_tile_rows(int32_t vectors)
{
    return NM_TILE_VECTORS == 2 ? NM_TILE_ROWS : vectors > 2 ? 3 : 4;
}

/* Distance of vector i + 1 of panels from vector i. panel: distance of the panels. */
NM_INLINE ptrdiff_t nm_next_vector(int32_t i, ptrdiff_t panel)
{
    return NM_TILE_VECTORS > 2 && i % 2 ? panel - NM_W : NM_W;
}

/* c = epilogue(alpha a b), or epilogue(c + alpha a b) with `add`.
 * Element i of panel row k of a is a[i * a_row + k * a_step]; with AMX, the 16 panel rows of a group are
 * contiguous, those of group g and row i begin at a + i * a_row + g * a_step, and NM_LINE or NM_TILE_ROWS
 * rows are readable. Panel row k of b begins at b + k * b_step, its second vector after b_next, the third
 * after b_panel; whole vectors are readable.
 * rows: 1 .. NM_TILE_ROWS, with three vectors nm_tile_rows; cols: 1 .. NM_TILE_VECTORS * NM_W. */
typedef struct gemm_tile {
    int32_t rows, cols, depth; /* of c; number of panel rows */
    const float *a;
    size_t a_row, a_step; /* constants after inlining, if possible */
    const float *b;
    size_t b_step;
    ptrdiff_t b_next, b_panel;
    bool stream; /* prefetch b, which is read from memory and continues after this panel, and c */
    bool few;    /* c has few rows: prefetch b from memory. Only with NM_TILE_VECTORS 3 */
    bool add;
    float alpha;
    tile_epilogue epilogue;
    float *c;
    size_t ldc;
} gemm_tile;

/* c = alpha sum, or c += alpha sum, followed by the epilogue. `add`, `bias` and `relu` are constants after
 * inlining: branches for each vector make a tile of depth 256 3 % slower. */
NM_INLINE void store_tile(const gemm_tile t, const int rows, const int vectors, vf sum[][NM_TILE_VECTORS],
                          const bool add, const float *bias, const bool relu)
{
    vf factor = v_set(t.alpha);
    NM_UNROLLED(j, vectors) {
        const int32_t n = t.cols - j * NM_W;
        vf more = bias ? nm_flush(v_load_upto(bias + j * NM_W, n)) : v_set(0);
        NM_UNROLLED(i, rows) {
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

/* c = epilogue(alpha sum), or epilogue(c + alpha sum). */
NM_INLINE void store_with_epilogue(const gemm_tile t, const int rows, const int vectors,
                                   vf sum[][NM_TILE_VECTORS])
{
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

/* Fetches the lines of c while the sums are computed. */
NM_INLINE void prefetch_result(const gemm_tile *t)
{
    for (int32_t i = 0; t->stream && i < t->rows; i++)
        for (int32_t j = 0; j < t->cols; j += NM_LINE)
            __builtin_prefetch(t->c + (size_t)i * t->ldc + j, 1);
}

#if defined(NM_BF16_AMX)

/* Stores the sums [rows][NM_TILE_COLS] to c. */
NM_INLINE void store_amx_rows(gemm_tile t, const int vectors, const float *sums)
{
    for (int32_t i = 0; i < t.rows; i++, t.c += t.ldc, sums += NM_TILE_COLS) {
        vf sum[1][NM_TILE_VECTORS] = {{v_load(sums), vectors > 1 ? v_load(sums + NM_W) : v_set(0)}};
        store_with_epilogue(t, 1, vectors, sum);
    }
}

NM_INLINE void store_amx_tiles(const bool two_rows, const bool two_cols, float *to, size_t stride)
{
    const size_t bytes = stride * sizeof(float);
    _tile_stored(0, to, bytes);
    if (two_cols)
        _tile_stored(1, to + NM_W, bytes);
    if (two_rows)
        _tile_stored(2, to + NM_LINE * stride, bytes);
    if (two_rows && two_cols)
        _tile_stored(3, to + NM_LINE * stride + NM_W, bytes);
}

/* Whether c is the sums of whole tiles. */
NM_INLINE bool is_plain(const gemm_tile *t, const bool two_rows, const bool two_cols)
{
    return t->rows == (two_rows ? 2 * NM_LINE : NM_LINE) && t->cols == (two_cols ? 2 * NM_W : NM_W) &&
           t->alpha == 1 && !t->add && !t->epilogue.bias && !t->epilogue.relu;
}

/* Tiles 0 to 3: sums, 4 and 5: a, 6 and 7: b. */
NM_INLINE void amx_tile(const gemm_tile t, const bool two_rows, const bool two_cols)
{
    NM_ALIGNED float sums[NM_TILE_ROWS * NM_TILE_COLS];
    const size_t a_bytes = t.a_row * sizeof(float), b_bytes = t.b_step * sizeof(float);
    prefetch_result(&t);
    _tile_zero(0);
    if (two_cols)
        _tile_zero(1);
    if (two_rows)
        _tile_zero(2);
    if (two_rows && two_cols)
        _tile_zero(3);
    const float *a = t.a, *b = t.b;
    for (int32_t k = 0; k < t.depth; k += NM_GROUP_ROWS, a += t.a_step, b += NM_GROUP_ROWS * t.b_step) {
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (two_cols) {
            _tile_loadd(7, b + NM_W, b_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, a + NM_LINE * t.a_row, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && two_cols)
            _tile_dpbf16ps(3, 5, 7);
    }
    if (is_plain(&t, two_rows, two_cols)) {
        store_amx_tiles(two_rows, two_cols, t.c, t.ldc);
        return;
    }
    store_amx_tiles(two_rows, two_cols, sums, NM_TILE_COLS);
    if (t.cols > NM_W)
        store_amx_rows(t, 2, sums);
    else
        store_amx_rows(t, 1, sums);
}

NM_INLINE void nm_tile(const gemm_tile t)
{
    if (t.rows > NM_LINE && t.cols > NM_W)
        amx_tile(t, true, true);
    else if (t.rows > NM_LINE)
        amx_tile(t, true, false);
    else if (t.cols > NM_W)
        amx_tile(t, false, true);
    else
        amx_tile(t, false, false);
}

#else

NM_INLINE void set_to_zero(const int rows, const int vectors, vf sum[][NM_TILE_VECTORS])
{
    NM_UNROLLED(i, rows)
        NM_UNROLLED(j, vectors)
            sum[i][j] = v_set(0);
}

#if defined(NM_LEVEL_neon)

/* Multiply-adds can use one lane of a vector, so a is loaded in vectors: of rows, or of panel rows k to k +
 * NM_W - 1. */
NM_INLINE bool has_vectors_of_k(const gemm_tile *t)
{
    return __builtin_constant_p(t->a_step) && t->a_step == 1;
}

/* The value of row i of panel row a, the one of this number, if not negative, of NM_W that are loaded
 * together. */
NM_INLINE vf left_factor(const gemm_tile *t, const int rows, const int i, const float *a, const int number)
{
    if (number >= 0)
        return v_set(v_load(a + (size_t)i * t->a_row - number)[number]);
    const int lane = i % NM_W;
    if (__builtin_constant_p(t->a_row) && t->a_row == 1)
        return v_set(v_load_upto(a + (i - lane), rows - (i - lane))[lane]);
    return v_set(a[(size_t)i * t->a_row]);
}

#else

NM_INLINE vf left_factor(const gemm_tile *t, const int rows, const int i, const float *a, const int number)
{
    (void)rows;
    (void)number;
    return v_set(a[(size_t)i * t->a_row]);
}

#endif

#if NM_TILE_VECTORS > 2
/* With many rows, a volatile load: GCC would load b again for each row of a. */
NM_INLINE vf load_right(const gemm_tile *t, const float *b)
{
    typedef float floats __attribute__((vector_size(sizeof(vf)), aligned(sizeof(float)), may_alias));
    return t->few ? v_load(b) : (vf)(*(const volatile floats *)b);
}
#else
NM_INLINE vf load_right(const gemm_tile *t, const float *b)
{
    (void)t;
    return v_load(b);
}
#endif

/* Adds the products of panel rows a and b; number: see left_factor. */
NM_INLINE void add_panel_row(const gemm_tile *t, const int rows, const int vectors, const float *a,
                             const float *b, const int number, vf sum[][NM_TILE_VECTORS])
{
    const ptrdiff_t at[] = {0, t->b_next, t->b_panel};
    const bool far = NM_TILE_VECTORS > 2 ? t->few : rows < NM_TILE_ROWS;
    const size_t ahead = (far ? NM_FAR_PREFETCH : NM_NEAR_PREFETCH) * t->b_step;
    vf right[NM_TILE_VECTORS];
    NM_UNROLLED(j, vectors) {
        right[j] = load_right(t, b + at[j]);
        for (int i = 0; t->stream && i < NM_W; i += NM_LINE)
            __builtin_prefetch(b + at[j] + ahead + i);
    }
    NM_UNROLLED(i, rows) {
        vf left = left_factor(t, rows, i, a, number);
        NM_UNROLLED(j, vectors)
            sum[i][j] = nm_multiply_add(left, right[j], sum[i][j]);
    }
}

#if defined(NM_BF16)

enum { NM_BLOCK_ROWS = NM_BF16_BLOCK / NM_PANEL_GROUP * NM_GROUP_ROWS }; /* panel rows of a block */

/* Adds the sums of a block. The padding of a block to NM_BF16_BLOCK products, of which only a part is present
 * in a panel, turns negative zeros into positive ones. */
NM_INLINE void add_block(const int rows, const int vectors, const bool padded, vf sum[][NM_TILE_VECTORS],
                         vf even[][NM_TILE_VECTORS], vf odd[][NM_TILE_VECTORS])
{
    const vf zero = v_set(0);
    NM_UNROLLED(i, rows)
        NM_UNROLLED(j, vectors) {
            vf e = padded ? v_add(even[i][j], zero) : even[i][j],
               o = padded ? v_add(odd[i][j], zero) : odd[i][j];
            sum[i][j] = nm_flush(v_add(sum[i][j], nm_flush(v_add(e, o))));
        }
}

#if defined(NM_LEVEL_neon)

/* The sums in the arithmetic of base/bf16.h. */
static __attribute__((noinline)) void sum_exactly(const gemm_tile *t, int vectors, vf sum[][NM_TILE_VECTORS])
{
    for (int32_t at = 0; at < t->rows * vectors * NM_W; at++) {
        const int32_t i = at / (vectors * NM_W), j = at % (vectors * NM_W);
        float total = 0;
        for (int32_t first = 0; first < t->depth; first += NM_BLOCK_ROWS) {
            const int32_t end = t->depth - first < NM_BLOCK_ROWS ? t->depth : first + NM_BLOCK_ROWS;
            float parts[2] = {0, 0};
            for (int32_t k = first; k < end; k++)
                parts[k % 2] = nm_bf16_multiply_add(t->a[(size_t)i * t->a_row + (size_t)k * t->a_step],
                                                    t->b[(size_t)k * t->b_step + (size_t)j], parts[k % 2]);
            if (end - first < NM_BLOCK_ROWS)
                parts[0] += 0, parts[1] += 0;
            total = nm_bf16_flush(total + nm_bf16_flush(parts[0] + parts[1]));
        }
        sum[i][j / NM_W][j % NM_W] = total;
    }
}

/* Computes the sums again if results were flushed, see panel.h. */
NM_INLINE void correct_flushed(const gemm_tile *t, const int rows, const int vectors,
                               vf sum[][NM_TILE_VECTORS])
{
    NM_UNROLLED(i, rows)
        NM_UNROLLED(j, vectors)
            nm_computed(&sum[i][j]);
    if (nm_has_underflow()) {
        const gemm_tile copy = *t;
        vf exact[NM_TILE_ROWS][NM_TILE_VECTORS];
        nm_matmul_end(0);
        sum_exactly(&copy, vectors, exact);
        nm_matmul_begin();
        NM_UNROLLED(i, rows)
            NM_UNROLLED(j, vectors)
                sum[i][j] = exact[i][j];
    }
}

#endif

NM_INLINE void sum_tile(const gemm_tile *t, const int rows, const int vectors, vf sum[][NM_TILE_VECTORS])
{
#if defined(NM_LEVEL_neon)
    nm_clear_underflow();
#endif
    const float *a = t->a, *b = t->b;
    for (int32_t left = t->depth; left > 0; left -= NM_BLOCK_ROWS) {
        const int32_t n = left < NM_BLOCK_ROWS ? left : NM_BLOCK_ROWS;
        vf even[NM_TILE_ROWS][NM_TILE_VECTORS], odd[NM_TILE_ROWS][NM_TILE_VECTORS];
        set_to_zero(rows, vectors, even);
        set_to_zero(rows, vectors, odd);
        int32_t k = 0;
#if defined(NM_LEVEL_neon)
        for (; has_vectors_of_k(t) && k + NM_W <= n; k += NM_W)
            NM_UNROLLED(i, NM_W) {
                add_panel_row(t, rows, vectors, a, b, i, i % 2 ? odd : even);
                a += t->a_step, b += t->b_step;
            }
#endif
        for (; k < n; k += 2, a += 2 * t->a_step, b += 2 * t->b_step) {
            add_panel_row(t, rows, vectors, a, b, -1, even);
            add_panel_row(t, rows, vectors, a + t->a_step, b + t->b_step, -1, odd);
        }
        if (n < NM_BLOCK_ROWS)
            add_block(rows, vectors, true, sum, even, odd);
        else
            add_block(rows, vectors, false, sum, even, odd);
    }
#if defined(NM_LEVEL_neon)
    correct_flushed(t, rows, vectors, sum);
#endif
}

#else

NM_INLINE void sum_tile(const gemm_tile *t, const int rows, const int vectors, vf sum[][NM_TILE_VECTORS])
{
    const float *a = t->a, *b = t->b;
    int32_t k = 0;
#if defined(NM_LEVEL_neon)
    for (; has_vectors_of_k(t) && k + NM_W <= t->depth; k += NM_W)
        NM_UNROLLED(i, NM_W) {
            add_panel_row(t, rows, vectors, a, b, i, sum);
            a += t->a_step, b += t->b_step;
        }
#endif
    for (; k < t->depth; k++, a += t->a_step, b += t->b_step)
        add_panel_row(t, rows, vectors, a, b, -1, sum);
}

#endif

/* The tile with a constant number of rows and of vectors of its columns. */
NM_INLINE void tile_fixed(const gemm_tile t, const int rows, const int vectors)
{
    vf sum[NM_TILE_ROWS][NM_TILE_VECTORS];
    prefetch_result(&t);
    set_to_zero(rows, vectors, sum);
    sum_tile(&t, rows, vectors, sum);
    store_with_epilogue(t, rows, vectors, sum);
}

#define NM_TILE_CASE(n)                                                                                      \
    case n:                                                                                                  \
        if (n > NM_TILE_ROWS || (n > nm_tile_rows(2) && NM_TILE_VECTORS > 2 && !t.few))                      \
            return;                                                                                          \
        if (NM_TILE_VECTORS > 2 && !t.few && t.cols > 2 * NM_W)                                              \
            tile_fixed(t, n > nm_tile_rows(NM_TILE_VECTORS) ? 1 : n, NM_TILE_VECTORS);                       \
        else if (t.cols > NM_W)                                                                              \
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
