/* Panels of GEMM operands: vectors over rows or columns of an operand, for ascending k. A panel row is the
 * operand of one multiply-add of the register tile:
 *     float                      the value of one k
 *     bf16, AMX                  the pair of values k, k + 1 in 32 bits, k in the low half
 *     bf16, vdpbf16ps            two values in 32 bits: the pair k + 2, k in the first row of four values of
 *                                k, the pair
 *                                k + 3, k + 1 in the second. The instruction first adds the product of the
 *                                high halves.
 *     bf16, other CPU levels     the value of one k, rounded to bf16 but stored as float
 * The depth is padded with zeros to a multiple of NM_PANEL_GROUP.
 *
 * Sums of bf16 products have the order of norma/backend.h at every CPU level: rows of even and odd k have
 * separate sums within a block. The emulation is exact: the product of two bf16 numbers is exact in float,
 * and FMA rounds as the bf16 instructions do in a mode in which denormal numbers are zero. */
#pragma once

#include "backend/cpu/simd.h"

#include <stdbool.h>
#include <stddef.h>
#if defined(NM_BF16)
#include "base/bf16.h"
#endif
#if defined(NM_BF16_AMX)
#include "backend/cpu/amx.h"
#endif

/* Number of values of k that are stored together, and number of their rows. */
#if defined(NM_BF16_AMX)
enum { NM_PANEL_GROUP = 32, NM_GROUP_ROWS = 16 };
#elif defined(NM_BF16_DOT)
enum { NM_PANEL_GROUP = 4, NM_GROUP_ROWS = 2 };
#elif defined(NM_BF16)
enum { NM_PANEL_GROUP = 2, NM_GROUP_ROWS = 2 };
#else
enum { NM_PANEL_GROUP = 1, NM_GROUP_ROWS = 1 };
#endif

/* Number of panel rows for `depth` values of k. For multiples of NM_PANEL_GROUP it is additive. */
NM_INLINE int32_t nm_panel_rows(int32_t depth)
{
    return (depth + NM_PANEL_GROUP - 1) / NM_PANEL_GROUP * NM_GROUP_ROWS;
}

/* Mode of the thread for matrix multiplications, between nm_matmul_begin and nm_matmul_end: denormal
 * numbers are flushed to zero, by nm_flush and, if the CPU has such a mode, in all float arithmetic; the
 * tiles of AMX are configured. */

#if defined(NM_BF16) && defined(NM_LEVEL_neon)

/* Arm flushes a result that is denormal before it is rounded, the bf16 instructions one that is denormal
 * after it is rounded to 24 bits. FPSR says that results were flushed: such sums of products must be computed
 * again. */
NM_INLINE uint64_t nm_float_status(void)
{
    uint64_t status;
    __asm__ volatile("mrs %0, fpsr" : "=r"(status)::"memory");
    return status;
}

NM_INLINE bool nm_has_underflow(void)
{
    return nm_float_status() >> 3 & 1;
}

NM_INLINE void nm_clear_underflow(void)
{
    if (nm_has_underflow())
        __asm__ volatile("msr fpsr, %0" ::"r"(nm_float_status() & ~UINT64_C(8)) : "memory");
}

/* x is computed before what follows. */
NM_INLINE void nm_computed(vf *x)
{
    __asm__ volatile("" : "+w"(*x));
}

NM_INLINE void nm_set_float_mode(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}

NM_INLINE uint32_t nm_matmul_begin(void)
{
    const uint64_t flush_to_zero = 1 << 24;
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
    nm_set_float_mode(mode | flush_to_zero);
    return (uint32_t)mode;
}

NM_INLINE void nm_matmul_end(uint32_t mode)
{
    nm_set_float_mode(mode);
}

#elif defined(NM_BF16) && !defined(NM_LEVEL_base)

NM_INLINE uint32_t nm_matmul_begin(void)
{
    const uint32_t flush_to_zero = 0x8000, denormals_are_zero = 0x40;
    uint32_t mode = _mm_getcsr();
    _mm_setcsr(mode | flush_to_zero | denormals_are_zero);
#if defined(NM_BF16_AMX)
    nm_amx_begin();
#endif
    return mode;
}

NM_INLINE void nm_matmul_end(uint32_t mode)
{
#if defined(NM_BF16_AMX)
    nm_amx_end();
#endif
    _mm_setcsr(mode);
}

#else

NM_INLINE uint32_t nm_matmul_begin(void)
{
    return 0;
}

NM_INLINE void nm_matmul_end(uint32_t mode)
{
    (void)mode;
}

#endif

NM_INLINE vf nm_flush(vf x)
{
#if defined(NM_BF16) && defined(NM_LEVEL_base)
    vu sign = vu_and(v_bits(x), vu_set(0x80000000)), size = vu_xor(v_bits(x), sign);
    return v_from_bits(vu_xor(sign, v_bits(vu_zero_below(size, vu_set(0x00800000), v_from_bits(size)))));
#else
    return x;
#endif
}

NM_INLINE vf nm_multiply_add(vf a, vf b, vf sum)
{
#if defined(NM_BF16_DOT)
    return _mm512_dpbf16_ps(sum, (__m512bh)v_bits(a), (__m512bh)v_bits(b));
#elif defined(NM_BF16) && defined(NM_LEVEL_base)
    const vf zero = v_set(0);
    vf product = a * b, size = v_max(product, zero - product);
    vi inexact = ((size < v_set(FLT_MIN)) | (size > v_set(FLT_MAX))) & (a != zero) & (b != zero);
    vf out = nm_flush(sum + product);
    if (inexact[0] | inexact[1] | inexact[2] | inexact[3])
        for (int i = 0; i < NM_W; i++)
            out[i] = nm_bf16_multiply_add(a[i], b[i], sum[i]);
    return out;
#else
    return v_fma(a, b, sum);
#endif
}

#if defined(NM_BF16_DOT)

/* [a0 b0 a1 b1 ..] as bf16 */
NM_INLINE vf nm_bf16_pairs(vf a, vf b)
{
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                                23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return v_from_bits(_mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(b, a)));
}

#elif defined(NM_BF16)

/* Rounded to bf16: to nearest even; denormal numbers become zero, a NaN the quiet NaN. */
NM_INLINE vf nm_round_to_bf16(vf x)
{
    vu sign = vu_and(v_bits(x), vu_set(0x80000000)), size = vu_xor(v_bits(x), sign);
    vu nan = v_bits(vu_zero_below(size, vu_set(0x7F800001), v_from_bits(vu_set(0xFFFFFFFF))));
    vu half = vu_add(vu_set(0x7FFF), vu_and(vu_shift_right(size, 16), vu_set(1)));
    vu rounded = vu_and(vu_add(size, half), vu_set(0xFFFF0000));
    rounded = v_bits(vu_zero_below(size, vu_set(0x00800000), v_from_bits(rounded)));
    rounded = vu_xor(rounded, vu_and(nan, vu_xor(rounded, vu_set(0x7FC00000))));
    return v_from_bits(vu_xor(sign, rounded));
}

#endif

/* n columns of row i of an operand that has this many rows; zeros after the last one. */
NM_INLINE vf nm_load_row(const float *from, size_t stride, int32_t rows, int32_t i, int32_t n)
{
    return i < rows ? v_load_upto(from + (size_t)i * stride, n) : v_set(0);
}

/* Packs a vector of n columns of one group of rows of an operand. rows: number of remaining rows, at least
 * 1. */
NM_INLINE void nm_pack_group(const float *from, size_t stride, int32_t rows, int32_t n, float *to,
                             size_t step)
{
#define ROW(i) nm_load_row(from, stride, rows, i, n)
#if defined(NM_BF16_AMX)
    for (int32_t i = 0; i < NM_GROUP_ROWS; i++)
        v_store(to + (size_t)i * step, nm_bf16_pairs(ROW(2 * i), ROW(2 * i + 1)));
#elif defined(NM_BF16_DOT)
    v_store(to, nm_bf16_pairs(ROW(2), ROW(0)));
    v_store(to + step, nm_bf16_pairs(ROW(3), ROW(1)));
#elif defined(NM_BF16)
    v_store(to, nm_round_to_bf16(ROW(0)));
    v_store(to + step, nm_round_to_bf16(ROW(1)));
#else
    v_store(to, ROW(0));
    (void)step;
#endif
#undef ROW
}

enum { NM_VECTOR_DEPTH = NM_W * NM_PANEL_GROUP / NM_GROUP_ROWS }; /* values of k in a vector */

/* A vector of n <= NM_VECTOR_DEPTH consecutive values of k, in the order of panel rows; the others are 0. */
NM_INLINE vf nm_load_depth(const float *from, int32_t n)
{
#if defined(NM_BF16_DOT)
    vf low = v_load_upto(from, n), high = n > NM_W ? v_load_upto(from + NM_W, n - NM_W) : v_set(0);
    __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
#if !defined(NM_BF16_AMX) /* k + 2, k, k + 3, k + 1 */
    const __m512i order = _mm512_set4_epi32(0x0B0A0F0E, 0x09080D0C, 0x03020706, 0x01000504);
    rounded = _mm512_shuffle_epi8(rounded, order);
#endif
    return v_from_bits(rounded);
#elif defined(NM_BF16)
    return nm_round_to_bf16(v_load_upto(from, n));
#else
    return v_load_upto(from, n);
#endif
}

#if defined(NM_BF16_AMX)

/* Packs n columns of a group of rows of an operand as left operand: row j has the values of column j. */
NM_INLINE void nm_pack_columns(const float *from, size_t stride, int32_t rows, int32_t n, float *to,
                               size_t step)
{
    vf v[NM_W];
    if (rows >= NM_PANEL_GROUP && n >= NM_W)
        for (int i = 0; i < NM_GROUP_ROWS; i++, from += 2 * stride)
            v[i] = nm_bf16_pairs(v_load(from), v_load(from + stride));
    else
        for (int i = 0; i < NM_GROUP_ROWS; i++)
            v[i] = nm_bf16_pairs(nm_load_row(from, stride, rows, 2 * i, n),
                                 nm_load_row(from, stride, rows, 2 * i + 1, n));
    v_transpose(v);
    for (int i = 0; i < NM_W; i++)
        v_store(to + (size_t)i * step, v[i]);
}

#endif

#if defined(NM_BF16)

/* Packs n values of k of one row; `to` may be `from`. Writes whole vectors. */
NM_INLINE void nm_pack_row(const float *from, int32_t n, float *to)
{
    for (int32_t k = 0; k < n; k += NM_VECTOR_DEPTH) {
        vf packed = nm_load_depth(from + k, n - k < NM_VECTOR_DEPTH ? n - k : NM_VECTOR_DEPTH);
        v_store(to + nm_panel_rows(k), packed);
    }
}

#endif

/* Packs an operand whose rows are along k: lane r of the panel row of k is from[r * stride + k], zero for
 * r >= rows. Panel rows are `step` floats apart. Writes whole vectors: with a step below NM_W each vector
 * overwrites the end of the previous one. */
NM_INLINE void nm_pack_transposed(const float *from, size_t stride, int32_t rows, int32_t depth, float *to,
                                  size_t step)
{
    for (int32_t k = 0; k < depth; k += NM_VECTOR_DEPTH) {
        int32_t n = depth - k < NM_VECTOR_DEPTH ? depth - k : NM_VECTOR_DEPTH, first = nm_panel_rows(k);
        vf v[NM_W];
        for (int r = 0; r < NM_W; r++)
            v[r] = r < rows ? nm_load_depth(from + (size_t)r * stride + k, n) : v_set(0);
        v_transpose(v);
        for (int32_t j = 0; j < nm_panel_rows(n); j++)
            v_store(to + (size_t)(first + j) * step, v[j]);
    }
}
