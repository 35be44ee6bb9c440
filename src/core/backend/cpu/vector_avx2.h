/* The vectors of simd.h on AVX2 with FMA: 8 floats. */
#pragma once

#include <immintrin.h>

#define NM_W 8
#if defined(NM_BF16)
#define NM_TILE_ROWS 3
#else
#define NM_TILE_ROWS 6
#endif
typedef __m256 vf;
typedef __m256d vd;
typedef __m256i vu;

/* clang-format off */
NM_V(__m256i, v_mask, (int32_t n),
     _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0)))
NM_V(vf, v_load, (const float *p), _mm256_loadu_ps(p))
NM_V(vf, v_load_part, (const float *p, int32_t n), _mm256_maskload_ps(p, v_mask(n)))
/* the values of NM_W bf16 numbers */
NM_V(vf, v_load_bf16, (const uint16_t *p),
     _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16)))
/* lanes from n on are set to 0; n <= NM_W */
NM_V(vf, v_first, (vf x, int32_t n), _mm256_and_ps(_mm256_castsi256_ps(v_mask(n)), x))
/* Lane 2i is lane 2i + 1 of x, and lane 2i + 1 is lane 2i. */
NM_V(vf, v_swap_pairs, (vf x), _mm256_permute_ps(x, 0xB1))
NM_V(vf, v_set, (float x), _mm256_set1_ps(x))
NM_V(vf, v_add, (vf a, vf b), _mm256_add_ps(a, b))
NM_V(vf, v_sub, (vf a, vf b), _mm256_sub_ps(a, b))
NM_V(vf, v_mul, (vf a, vf b), _mm256_mul_ps(a, b))
NM_V(vf, v_div, (vf a, vf b), _mm256_div_ps(a, b))
NM_V(vf, v_fma, (vf a, vf b, vf c), _mm256_fmadd_ps(a, b, c))
NM_V(vf, v_sqrt, (vf x), _mm256_sqrt_ps(x))
NM_V(vf, v_max, (vf a, vf b), _mm256_max_ps(a, b)) /* b if either is NaN */
NM_V(vf, v_min, (vf a, vf b), _mm256_min_ps(a, b))
/* x < bound ? 0 : value */
NM_V(vf, v_zero_below, (vf x, vf bound, vf value),
     _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ), value))
/* x > bound ? value : 0 */
NM_V(vf, v_keep_above, (vf x, vf bound, vf value),
     _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_GT_OQ), value))
NM_V(vu, v_bits, (vf x), _mm256_castps_si256(x))
NM_V(vf, v_from_bits, (vu x), _mm256_castsi256_ps(x))
/* any lane with x >= bound */
NM_V(int, v_any_from, (vf x, vf bound), _mm256_movemask_ps(_mm256_cmp_ps(x, bound, _CMP_GE_OQ)) != 0)
NM_V(vd, vd_low, (vf x), _mm256_cvtps_pd(_mm256_castps256_ps128(x)))
NM_V(vd, vd_high, (vf x), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)))
NM_V(vd, vd_load, (const double *p), _mm256_loadu_pd(p))
NM_V(vd, vd_set, (double x), _mm256_set1_pd(x))
NM_V(vd, vd_add, (vd a, vd b), _mm256_add_pd(a, b))
NM_V(vd, vd_fma, (vd a, vd b, vd c), _mm256_fmadd_pd(a, b, c))
NM_V(vd, vd_sub, (vd a, vd b), _mm256_sub_pd(a, b))
NM_V(vd, vd_mul, (vd a, vd b), _mm256_mul_pd(a, b))
NM_V(vd, vd_div, (vd a, vd b), _mm256_div_pd(a, b))
NM_V(vd, vd_sqrt, (vd x), _mm256_sqrt_pd(x))
NM_V(vd, vd_low_signed, (vu x), _mm256_cvtepi32_pd(_mm256_castsi256_si128(x))) /* as signed integers */
NM_V(vd, vd_high_signed, (vu x), _mm256_cvtepi32_pd(_mm256_extracti128_si256(x, 1)))
NM_V(vf, v_narrow, (vd low, vd high),
     _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1))
NM_V(vu, vu_set, (uint32_t x), _mm256_set1_epi32((int)x))
NM_V(vu, vu_lanes, (void), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0))
NM_V(vu, vu_add, (vu a, vu b), _mm256_add_epi32(a, b))
NM_V(vu, vu_max, (vu a, vu b), _mm256_max_epu32(a, b))
NM_V(vu, vu_xor, (vu a, vu b), _mm256_xor_si256(a, b))
NM_V(vu, vu_and, (vu a, vu b), _mm256_and_si256(a, b))
NM_V(vu, vu_shift_left, (vu a, int bits), _mm256_slli_epi32(a, bits))
NM_V(vu, vu_shift_right, (vu a, int bits), _mm256_srli_epi32(a, bits))
/* x < bound ? 0 : value, as unsigned words */
NM_V(vf, vu_zero_below, (vu x, vu bound, vf value),
     _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(x, bound), x)), value))
/* clang-format on */

NM_INLINE void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

NM_INLINE void v_stream(float *p, vf x)
{
    _mm256_stream_ps(p, x);
}

NM_INLINE void v_stream_end(void) /* fence after streaming stores, before other threads read */
{
    _mm_sfence();
}

NM_INLINE void v_store_part(float *p, int32_t n, vf x)
{
    _mm256_maskstore_ps(p, v_mask(n), x);
}

NM_INLINE vf v_load_bf16_part(const uint16_t *p, int32_t n)
{
    uint16_t numbers[NM_W] = {0};
    memcpy(numbers, p, (size_t)n * sizeof *p);
    return v_load_bf16(numbers);
}

NM_INLINE float v_largest(vf x)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}

NM_INLINE void vd_store(double *p, vd x)
{
    _mm256_storeu_pd(p, x);
}

NM_INLINE double vd_sum(vd x)
{
    __m128d a = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(a) + _mm_cvtsd_f64(_mm_unpackhi_pd(a, a));
}

/* Lane i is the sum of the lanes of x[i], added in the order of vd_sum. */
NM_INLINE vd vd_sums(const vd x[4])
{
    vd halves[2];
    for (int i = 0; i < 2; i++) /* the lanes l and l + 2 of the even, then of the odd vectors */
        halves[i] = vd_add(_mm256_permute2f128_pd(x[i], x[i + 2], 0x20),
                           _mm256_permute2f128_pd(x[i], x[i + 2], 0x31));
    return vd_add(_mm256_unpacklo_pd(halves[0], halves[1]), _mm256_unpackhi_pd(halves[0], halves[1]));
}

/* 64-bit product of every lane and one word: high and low words. */
NM_INLINE void vu_multiply(vu a, uint32_t word, vu *high, vu *low)
{
    __m256i even = _mm256_mul_epu32(a, vu_set(word));
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), vu_set(word));
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

/* to[i] = sum of NM_LANES partial sums; see v_sums in vector_base.h for the order */
NM_INLINE void v_sums(vf x[4][2], float to[4])
{
    vf quarters[2];
    for (int i = 0; i < 2; i++) {
        vf ab = _mm256_add_ps(_mm256_unpacklo_ps(x[0][i], x[1][i]), _mm256_unpackhi_ps(x[0][i], x[1][i]));
        vf cd = _mm256_add_ps(_mm256_unpacklo_ps(x[2][i], x[3][i]), _mm256_unpackhi_ps(x[2][i], x[3][i]));
        quarters[i] = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
    }
    vf halves = _mm256_add_ps(quarters[0], quarters[1]);
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

NM_INLINE void v_transpose(vf r[NM_W])
{
    vf t[8];
    for (int i = 0; i < 8; i += 4) {
        vf a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        vf c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xEE);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}
