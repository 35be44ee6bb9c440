/* The vectors of simd.h on AVX-512 (F, BW, DQ, VL): 16 floats. */
#pragma once

#include <immintrin.h>

#define NM_W 16
/* rows of the register tile: 14 x 2 vectors of sums, 2 of b, 1 of a; with bf16 4 x 2 or 3 x 3, because each
 * has three sums, and 7 x 2 for few rows */
#if defined(NM_BF16_AMX)
#define NM_TILE_ROWS 32
#elif defined(NM_BF16)
#define NM_TILE_ROWS    7
#define NM_TILE_VECTORS 3
#else
#define NM_TILE_ROWS 14
#endif
typedef __m512 vf;
typedef __m512d vd;
typedef __m512i vu;

/* clang-format off */
NM_V(__mmask16, v_mask, (int32_t n), (__mmask16)((1u << n) - 1))
NM_V(vf, v_load, (const float *p), _mm512_loadu_ps(p))
NM_V(vf, v_load_part, (const float *p, int32_t n), _mm512_maskz_loadu_ps(v_mask(n), p))
/* lanes from n on are set to 0; n <= NM_W */
NM_V(vf, v_first, (vf x, int32_t n), _mm512_maskz_mov_ps(v_mask(n), x))
/* Lane 2i is lane 2i + 1 of x, and lane 2i + 1 is lane 2i. */
NM_V(vf, v_swap_pairs, (vf x), _mm512_permute_ps(x, 0xB1))
NM_V(vf, v_set, (float x), _mm512_set1_ps(x))
NM_V(vf, v_add, (vf a, vf b), _mm512_add_ps(a, b))
NM_V(vf, v_sub, (vf a, vf b), _mm512_sub_ps(a, b))
NM_V(vf, v_mul, (vf a, vf b), _mm512_mul_ps(a, b))
NM_V(vf, v_div, (vf a, vf b), _mm512_div_ps(a, b))
NM_V(vf, v_fma, (vf a, vf b, vf c), _mm512_fmadd_ps(a, b, c))
NM_V(vf, v_sqrt, (vf x), _mm512_sqrt_ps(x))
NM_V(vf, v_max, (vf a, vf b), _mm512_max_ps(a, b)) /* b if either is NaN */
NM_V(vf, v_min, (vf a, vf b), _mm512_min_ps(a, b))
NM_V(float, v_largest, (vf x), _mm512_reduce_max_ps(x))
/* x < bound ? 0 : value */
NM_V(vf, v_zero_below, (vf x, vf bound, vf value),
     _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), value))
/* x > bound ? value : 0 */
NM_V(vf, v_keep_above, (vf x, vf bound, vf value),
     _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ), value))
NM_V(vu, v_bits, (vf x), _mm512_castps_si512(x))
NM_V(vf, v_from_bits, (vu x), _mm512_castsi512_ps(x))
/* any lane with x >= bound */
NM_V(int, v_any_from, (vf x, vf bound), _mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ) != 0)
NM_V(vd, vd_low, (vf x), _mm512_cvtps_pd(_mm512_castps512_ps256(x)))
NM_V(vd, vd_high, (vf x), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)))
NM_V(vd, vd_load, (const double *p), _mm512_loadu_pd(p))
NM_V(vd, vd_set, (double x), _mm512_set1_pd(x))
NM_V(vd, vd_add, (vd a, vd b), _mm512_add_pd(a, b))
NM_V(vd, vd_fma, (vd a, vd b, vd c), _mm512_fmadd_pd(a, b, c))
NM_V(vd, vd_sub, (vd a, vd b), _mm512_sub_pd(a, b))
NM_V(vd, vd_mul, (vd a, vd b), _mm512_mul_pd(a, b))
NM_V(vd, vd_div, (vd a, vd b), _mm512_div_pd(a, b))
NM_V(vd, vd_sqrt, (vd x), _mm512_sqrt_pd(x))
NM_V(vd, vd_low_signed, (vu x), _mm512_cvtepi32_pd(_mm512_castsi512_si256(x))) /* as signed integers */
NM_V(vd, vd_high_signed, (vu x), _mm512_cvtepi32_pd(_mm512_extracti32x8_epi32(x, 1)))
NM_V(vf, v_narrow, (vd low, vd high),
     _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1))
NM_V(vu, vu_set, (uint32_t x), _mm512_set1_epi32((int)x))
NM_V(vu, vu_lanes, (void), _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0))
NM_V(vu, vu_add, (vu a, vu b), _mm512_add_epi32(a, b))
NM_V(vu, vu_max, (vu a, vu b), _mm512_max_epu32(a, b))
NM_V(vu, vu_xor, (vu a, vu b), _mm512_xor_si512(a, b))
NM_V(vu, vu_and, (vu a, vu b), _mm512_and_si512(a, b))
NM_V(vu, vu_shift_left, (vu a, int bits), _mm512_slli_epi32(a, (unsigned)bits))
NM_V(vu, vu_shift_right, (vu a, int bits), _mm512_srli_epi32(a, (unsigned)bits))
/* x < bound ? 0 : value, as unsigned words */
NM_V(vf, vu_zero_below, (vu x, vu bound, vf value),
     _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(x, bound), value))
/* clang-format on */

NM_INLINE void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

NM_INLINE void v_stream(float *p, vf x) /* non-temporal store; p is aligned to a vector */
{
    _mm512_stream_ps(p, x);
}

NM_INLINE void v_stream_end(void) /* fence after streaming stores, before other threads read */
{
    _mm_sfence();
}

NM_INLINE void v_store_part(float *p, int32_t n, vf x)
{
    _mm512_mask_storeu_ps(p, v_mask(n), x);
}

NM_INLINE vf v_load_bf16(const uint16_t *p) /* the values of NM_W bf16 numbers */
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

NM_INLINE vf v_load_bf16_part(const uint16_t *p, int32_t n)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v_mask(n), p)), 16));
}

NM_INLINE void vd_store(double *p, vd x)
{
    _mm512_storeu_pd(p, x);
}

NM_INLINE double vd_sum(vd x)
{
    __m256d half = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    __m128d a = _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
    return _mm_cvtsd_f64(a) + _mm_cvtsd_f64(_mm_unpackhi_pd(a, a));
}

/* Lane i is the sum of the lanes of x[i], added in the order of vd_sum. */
NM_INLINE vd vd_sums(const vd x[8])
{
    vd pairs[4], quarters[2];
    for (int i = 0; i < 4; i++) { /* the lanes l and l + 4 of two vectors */
        const vd a = x[i / 2 * 4 + i % 2], c = x[i / 2 * 4 + i % 2 + 2];
        pairs[i] = vd_add(_mm512_shuffle_f64x2(a, c, 0x44), _mm512_shuffle_f64x2(a, c, 0xee));
    }
    for (int i = 0; i < 2; i++) /* l and l + 2 of the even, then of the odd vectors */
        quarters[i] = vd_add(_mm512_shuffle_f64x2(pairs[i], pairs[i + 2], 0x88),
                             _mm512_shuffle_f64x2(pairs[i], pairs[i + 2], 0xdd));
    return vd_add(_mm512_unpacklo_pd(quarters[0], quarters[1]), _mm512_unpackhi_pd(quarters[0], quarters[1]));
}

/* 64-bit product of every lane and one word: high and low words. */
NM_INLINE void vu_multiply(vu a, uint32_t word, vu *high, vu *low)
{
    __m512i even = _mm512_mul_epu32(a, vu_set(word));
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), vu_set(word));
    *high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
    *low = _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
}

/* to[i] = sum of NM_LANES partial sums; see v_sums in vector_base.h for the order */
NM_INLINE void v_sums(vf x[4][1], float to[4])
{
    vf ab = _mm512_add_ps(_mm512_unpacklo_ps(x[0][0], x[1][0]), _mm512_unpackhi_ps(x[0][0], x[1][0]));
    vf cd = _mm512_add_ps(_mm512_unpacklo_ps(x[2][0], x[3][0]), _mm512_unpackhi_ps(x[2][0], x[3][0]));
    vf quarters = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
    __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

NM_INLINE void v_transpose(vf r[NM_W])
{
    vf t[16];
    for (int i = 0; i < 16; i += 4) {
        vf a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        vf c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xEE);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        vf a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xDD);
        vf c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88),
           d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xDD);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xDD);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
    }
}
