/* Exact int8 dot products on every CPU level: four columns of an input row times the same four of the
 * NM_INT8_PANEL rows of a panel (base/int8.h).
 *
 * VNNI multiplies unsigned by signed bytes, so inputs are stored with an offset of 128, and 128 times the sum
 * of the row of the weight is subtracted at the end. The non-saturating instruction is used. Without VNNI,
 * bytes are first widened to 16 bits, because the byte multiplication of AVX2 saturates its 16-bit sums. NEON
 * and the dot-product extension of Arm multiply signed bytes. AMX multiplies signed bytes: 64 columns of 16
 * input rows times the same columns of a panel.
 *
 * DOT_ROWS, DOT_PANELS: rows of x and panels of the largest tile; DOT_MATRIX rows and DOT_COLS columns of x
 * are read together. */
#pragma once

#include <stdbool.h>

#include "backend/cpu/simd.h"
#include "base/int8.h"

#if defined(NM_LEVEL_amx)

#include "backend/cpu/amx.h"

typedef __m512i dot_vector; /* sums of all rows of a panel */
typedef int8_t dot_input;
enum { DOT_VECTORS = 1, DOT_MATRIX = 16, DOT_ROWS = 2 * DOT_MATRIX, DOT_PANELS = 2, DOT_COLS = 64 };

NM_INLINE void dot_begin(void)
{
    nm_amx_begin();
}

NM_INLINE void dot_end(void)
{
    nm_amx_end();
}

/* Adds the products of DOT_COLS columns. Tiles 0 to 3: sums, 4 and 5: x, 6 and 7: panels. */
NM_INLINE void dot_add_matrices(const dot_input *x, size_t stride, bool two_rows, const int8_t *panel,
                                size_t panel_bytes, bool two_panels)
{
    _tile_loadd(4, x, stride);
    _tile_loadd(6, panel, DOT_COLS);
    _tile_dpbssd(0, 4, 6);
    if (two_panels) {
        _tile_loadd(7, panel + panel_bytes, DOT_COLS);
        _tile_dpbssd(1, 4, 7);
    }
    if (two_rows) {
        _tile_loadd(5, x + DOT_MATRIX * stride, stride);
        _tile_dpbssd(2, 5, 6);
    }
    if (two_rows && two_panels)
        _tile_dpbssd(3, 5, 7);
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    (void)offset_sums;
    out[0] = _mm512_cvtepi32_ps(sums[0]);
}

NM_INLINE void dot_store_input(dot_input *to, vu quantized) /* the low byte of each lane */
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(quantized));
}

#elif defined(NM_LEVEL_vnni)

typedef __m512i dot_vector; /* sums of all rows of a panel */
typedef uint8_t dot_input;
enum { DOT_VECTORS = 1, DOT_ROWS = 6, DOT_PANELS = 4 };

NM_INLINE dot_vector dot_zero(void)
{
    return _mm512_setzero_si512();
}

NM_INLINE dot_vector dot_add(dot_vector sum, const int8_t *panel, int part, const dot_input *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), _mm512_loadu_si512(panel + 64 * part));
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    out[0] = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[0], _mm512_loadu_si512(offset_sums)));
}

NM_INLINE void dot_store_input(dot_input *to, vu quantized) /* the low byte of each lane */
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(vu_add(quantized, vu_set(NM_INT8_OFFSET))));
}

#elif defined(NM_LEVEL_dotprod)

typedef int32x4_t dot_vector; /* sums of 4 rows */
typedef int8_t dot_input;
enum { DOT_VECTORS = 4, DOT_ROWS = 5, DOT_PANELS = 1, DOT_FOURS = 4, DOT_STEPS = 4 };

NM_INLINE dot_vector dot_add(dot_vector sum, const int8_t *panel, int part, const dot_input *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return vdotq_s32(sum, vld1q_s8(panel + 16 * part), vreinterpretq_s8_s32(vdupq_n_s32(four)));
}

/* Adds the products of four number `step` of a vector of 16 columns: an instruction can use one lane. */
NM_INLINE dot_vector dot_add_step(dot_vector sum, const int8_t *panel, int part, const dot_input *x,
                                  const int step)
{
    int8x16_t w = vld1q_s8(panel + 64 * step + 16 * part), all = vld1q_s8(x);
    switch (step) {
    case 0:
        return vdotq_laneq_s32(sum, w, all, 0);
    case 1:
        return vdotq_laneq_s32(sum, w, all, 1);
    case 2:
        return vdotq_laneq_s32(sum, w, all, 2);
    default:
        return vdotq_laneq_s32(sum, w, all, 3);
    }
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    (void)offset_sums;
    for (int i = 0; i < 4; i++)
        out[i] = vcvtq_f32_s32(sums[i]);
}

#elif defined(NM_LEVEL_neon)

typedef int32x4_t dot_vector; /* sums of the even and odd pairs of 2 rows */
typedef int8_t dot_input;
enum { DOT_VECTORS = 8, DOT_ROWS = 2, DOT_PANELS = 1, DOT_FOURS = 2, DOT_STEPS = 1 };

NM_INLINE int8x8_t dot_four(const dot_input *x) /* twice */
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return vreinterpret_s8_s32(vdup_n_s32(four));
}

NM_INLINE dot_vector dot_add(dot_vector sum, const int8_t *panel, int part, const dot_input *x)
{
    return vpadalq_s16(sum, vmull_s8(vld1_s8(panel + 8 * part), dot_four(x)));
}

/* Adds the products of two fours. The sum of two products of integers up to NM_INT8_MAX has 16 bits. */
NM_INLINE dot_vector dot_add_step(dot_vector sum, const int8_t *panel, int part, const dot_input *x,
                                  const int step)
{
    (void)step;
    int16x8_t products = vmull_s8(vld1_s8(panel + 8 * part), dot_four(x));
    return vpadalq_s16(sum, vmlal_s8(products, vld1_s8(panel + 64 + 8 * part), dot_four(x + 4)));
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    (void)offset_sums;
    for (int i = 0; i < 4; i++)
        out[i] = vcvtq_f32_s32(vpaddq_s32(sums[2 * i], sums[2 * i + 1]));
}

#elif defined(NM_LEVEL_avx512)

typedef __m512i dot_vector; /* sums of the even and odd pairs of 8 rows */
typedef int16_t dot_input;
enum { DOT_VECTORS = 2, DOT_ROWS = 6, DOT_PANELS = 2 };

NM_INLINE dot_vector dot_zero(void)
{
    return _mm512_setzero_si512();
}

NM_INLINE dot_vector dot_add(dot_vector sum, const int8_t *panel, int part, const dot_input *x)
{
    int64_t four;
    memcpy(&four, x, sizeof four);
    __m512i w = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(panel + 32 * part)));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, _mm512_set1_epi64(four)));
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    (void)offset_sums;
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    out[0] = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_permutex2var_epi32(sums[0], even, sums[1]),
                                                 _mm512_permutex2var_epi32(sums[0], odd, sums[1])));
}

NM_INLINE void dot_store_input(dot_input *to, vu quantized) /* the low half of each lane */
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16(quantized));
}

#elif defined(NM_LEVEL_avx2)

typedef __m256i dot_vector; /* sums of the even and odd pairs of 4 rows */
typedef int16_t dot_input;
enum { DOT_VECTORS = 4, DOT_ROWS = 2, DOT_PANELS = 1 };

NM_INLINE dot_vector dot_zero(void)
{
    return _mm256_setzero_si256();
}

NM_INLINE dot_vector dot_add(dot_vector sum, const int8_t *panel, int part, const dot_input *x)
{
    int64_t four;
    memcpy(&four, x, sizeof four);
    __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(panel + 16 * part)));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, _mm256_set1_epi64x(four)));
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    (void)offset_sums;
    for (int i = 0; i < 2; i++) { /* rows 0 1 4 5 | 2 3 6 7 */
        __m256i pairs = _mm256_hadd_epi32(sums[2 * i], sums[2 * i + 1]);
        out[i] = _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0)));
    }
}

NM_INLINE void dot_store_input(dot_input *to, vu quantized) /* the low half of each lane */
{
    __m256i words = _mm256_srai_epi32(_mm256_slli_epi32(quantized, 16), 16);
    words = _mm256_permute4x64_epi64(_mm256_packs_epi32(words, words), _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(words));
}

#else

typedef int32_t dot_vector;
typedef int16_t dot_input;
enum { DOT_VECTORS = NM_INT8_PANEL, DOT_ROWS = 1, DOT_PANELS = 1 };

NM_INLINE dot_vector dot_zero(void)
{
    return 0;
}

NM_INLINE dot_vector dot_add(dot_vector sum, const int8_t *panel, int part, const dot_input *x)
{
    for (int c = 0; c < 4; c++)
        sum += panel[4 * part + c] * x[c];
    return sum;
}

NM_INLINE void dot_finish(const dot_vector *sums, const int32_t *offset_sums, vf *out)
{
    (void)offset_sums;
    float values[NM_INT8_PANEL];
    for (int i = 0; i < NM_INT8_PANEL; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): a tile has 1 to DOT_ROWS rows */
        values[i] = (float)sums[i];
    memcpy(out, values, sizeof values);
}

NM_INLINE void dot_store_input(dot_input *to, vu quantized) /* the low half of each lane */
{
    for (int i = 0; i < NM_W; i++)
        to[i] = (int16_t)(uint16_t)quantized[i];
}

#endif

#if defined(NM_LEVEL_neon)

NM_INLINE dot_vector dot_zero(void)
{
    return vdupq_n_s32(0);
}

NM_INLINE void dot_store_input(dot_input *to, vu quantized) /* the low byte of each lane */
{
    uint16x4_t words = vmovn_u32(quantized);
    uint32x2_t bytes = vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words)));
    uint32_t four = vget_lane_u32(bytes, 0);
    memcpy(to, &four, sizeof four);
}

#endif

#if !defined(NM_LEVEL_amx)

enum { DOT_MATRIX = 1, DOT_COLS = 16 };

NM_INLINE void dot_begin(void)
{
}

NM_INLINE void dot_end(void)
{
}

#endif
