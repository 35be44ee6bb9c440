/* The vectors of simd.h on 64-bit Arm with NEON: 4 floats. */
#pragma once

#include <arm_neon.h>

#define NM_W 4
/* rows of the register tile: 12 x 2 vectors of sums, 2 of b, 3 of a; with bf16, sums of even and of odd k */
#if defined(NM_BF16)
#define NM_TILE_ROWS 6
#else
#define NM_TILE_ROWS 12
#endif
typedef float32x4_t vf;
typedef float64x2_t vd;
typedef uint32x4_t vu;

/* clang-format off */
NM_V(vf, v_load, (const float *p), vld1q_f32(p))
/* the values of NM_W bf16 numbers */
NM_V(vf, v_load_bf16, (const uint16_t *p), vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)))
NM_V(vu, v_bits, (vf x), vreinterpretq_u32_f32(x))
NM_V(vf, v_from_bits, (vu x), vreinterpretq_f32_u32(x))
NM_V(vu, v_mask, (int32_t n), vcgtq_s32(vdupq_n_s32(n), (int32x4_t){0, 1, 2, 3}))
/* lanes from n on are set to 0; n <= NM_W */
NM_V(vf, v_first, (vf x, int32_t n), v_from_bits(vandq_u32(v_mask(n), v_bits(x))))
/* Lane 2i is lane 2i + 1 of x, and lane 2i + 1 is lane 2i. */
NM_V(vf, v_swap_pairs, (vf x), vrev64q_f32(x))
NM_V(vf, v_set, (float x), vdupq_n_f32(x))
NM_V(vf, v_add, (vf a, vf b), vaddq_f32(a, b))
NM_V(vf, v_sub, (vf a, vf b), vsubq_f32(a, b))
NM_V(vf, v_mul, (vf a, vf b), vmulq_f32(a, b))
NM_V(vf, v_div, (vf a, vf b), vdivq_f32(a, b))
NM_V(vf, v_fma, (vf a, vf b, vf c), vfmaq_f32(c, a, b))
NM_V(vf, v_sqrt, (vf x), vsqrtq_f32(x))
NM_V(vf, v_max, (vf a, vf b), vbslq_f32(vcgtq_f32(a, b), a, b)) /* b if either is NaN */
NM_V(vf, v_min, (vf a, vf b), vbslq_f32(vcltq_f32(a, b), a, b))
NM_V(float, v_largest, (vf x), vmaxvq_f32(x))
/* x < bound ? 0 : value */
NM_V(vf, v_zero_below, (vf x, vf bound, vf value),
     v_from_bits(vbicq_u32(v_bits(value), vcltq_f32(x, bound))))
/* x > bound ? value : 0 */
NM_V(vf, v_keep_above, (vf x, vf bound, vf value),
     v_from_bits(vandq_u32(v_bits(value), vcgtq_f32(x, bound))))
NM_V(int, v_any_from, (vf x, vf bound), vmaxvq_u32(vcgeq_f32(x, bound)) != 0) /* any lane with x >= bound */
NM_V(vd, vd_low, (vf x), vcvt_f64_f32(vget_low_f32(x)))
NM_V(vd, vd_high, (vf x), vcvt_high_f64_f32(x))
NM_V(vd, vd_load, (const double *p), vld1q_f64(p))
NM_V(vd, vd_set, (double x), vdupq_n_f64(x))
NM_V(vd, vd_add, (vd a, vd b), vaddq_f64(a, b))
NM_V(vd, vd_fma, (vd a, vd b, vd c), vfmaq_f64(c, a, b))
NM_V(vd, vd_sub, (vd a, vd b), vsubq_f64(a, b))
NM_V(vd, vd_mul, (vd a, vd b), vmulq_f64(a, b))
NM_V(vd, vd_div, (vd a, vd b), vdivq_f64(a, b))
NM_V(vd, vd_sqrt, (vd x), vsqrtq_f64(x))
/* as signed integers */
NM_V(vd, vd_low_signed, (vu x), vcvtq_f64_s64(vmovl_s32(vget_low_s32(vreinterpretq_s32_u32(x)))))
NM_V(vd, vd_high_signed, (vu x), vcvtq_f64_s64(vmovl_high_s32(vreinterpretq_s32_u32(x))))
NM_V(vf, v_narrow, (vd low, vd high), vcvt_high_f32_f64(vcvt_f32_f64(low), high))
NM_V(double, vd_sum, (vd x), vpaddd_f64(x))
/* Lane i is the sum of the lanes of x[i], added in the order of vd_sum. */
NM_V(vd, vd_sums, (const vd x[2]), vpaddq_f64(x[0], x[1]))
NM_V(vu, vu_set, (uint32_t x), vdupq_n_u32(x))
NM_V(vu, vu_lanes, (void), (vu){0, 1, 2, 3})
NM_V(vu, vu_add, (vu a, vu b), vaddq_u32(a, b))
NM_V(vu, vu_max, (vu a, vu b), vmaxq_u32(a, b))
NM_V(vu, vu_xor, (vu a, vu b), veorq_u32(a, b))
NM_V(vu, vu_and, (vu a, vu b), vandq_u32(a, b))
NM_V(vu, vu_shift_left, (vu a, int bits), vshlq_u32(a, vdupq_n_s32(bits)))
NM_V(vu, vu_shift_right, (vu a, int bits), vshlq_u32(a, vdupq_n_s32(-bits)))
/* x < bound ? 0 : value, as unsigned words */
NM_V(vf, vu_zero_below, (vu x, vu bound, vf value),
     v_from_bits(vandq_u32(vcgeq_u32(x, bound), v_bits(value))))
/* clang-format on */

NM_INLINE void v_store(float *p, vf x)
{
    vst1q_f32(p, x);
}

NM_INLINE void v_stream(float *p, vf x)
{
    v_store(p, x);
}

NM_INLINE void v_stream_end(void)
{
}

NM_INLINE vf v_load_part(const float *p, int32_t n)
{
    vf x = vdupq_n_f32(0);
    if (n >= 2)
        x = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
    if (n == 1)
        x = vld1q_lane_f32(p, x, 0);
    else if (n == 3)
        x = vld1q_lane_f32(p + 2, x, 2);
    return x;
}

NM_INLINE void v_store_part(float *p, int32_t n, vf x)
{
    if (n >= 2)
        vst1_f32(p, vget_low_f32(x));
    if (n == 1)
        vst1q_lane_f32(p, x, 0);
    else if (n == 3)
        vst1q_lane_f32(p + 2, x, 2);
}

NM_INLINE vf v_load_bf16_part(const uint16_t *p, int32_t n)
{
    uint16_t numbers[NM_W] = {0};
    memcpy(numbers, p, (size_t)n * sizeof *p);
    return v_load_bf16(numbers);
}

NM_INLINE void vd_store(double *p, vd x)
{
    vst1q_f64(p, x);
}

/* 64-bit product of every lane and one word: high and low words. */
NM_INLINE void vu_multiply(vu a, uint32_t word, vu *high, vu *low)
{
    vu first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a), word)),
       second = vreinterpretq_u32_u64(vmull_high_n_u32(a, word));
    *high = vuzp2q_u32(first, second);
    *low = vuzp1q_u32(first, second);
}

NM_INLINE void v_transpose(vf r[NM_W])
{
    vf a = vtrn1q_f32(r[0], r[1]), b = vtrn2q_f32(r[0], r[1]);
    vf c = vtrn1q_f32(r[2], r[3]), d = vtrn2q_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
    r[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
    r[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
    r[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}

/* to[i] = sum of NM_LANES partial sums; see v_sums in vector_base.h for the order */
NM_INLINE void v_sums(vf x[4][4], float to[4])
{
    vf quarters[4];
    for (int q = 0; q < 4; q++) {
        vf lanes[4] = {x[0][q], x[1][q], x[2][q], x[3][q]};
        v_transpose(lanes);
        quarters[q] = v_add(v_add(lanes[0], lanes[2]), v_add(lanes[1], lanes[3]));
    }
    v_store(to, v_add(v_add(quarters[0], quarters[2]), v_add(quarters[1], quarters[3])));
}
