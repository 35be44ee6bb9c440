/* The vectors of simd.h with the compiler's vector extension: 4 floats on any machine. */
#pragma once

#define NM_W         4
#define NM_TILE_ROWS 4
typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

/* clang-format off */
/* the values of NM_W bf16 numbers */
NM_V(vf, v_load_bf16, (const uint16_t *p), (vf)((vu){p[0], p[1], p[2], p[3]} << 16))
/* lanes from n on are set to 0; n <= NM_W */
NM_V(vf, v_first, (vf x, int32_t n),
     (vf){n > 0 ? x[0] : 0, n > 1 ? x[1] : 0, n > 2 ? x[2] : 0, n > 3 ? x[3] : 0})
/* Lane 2i is lane 2i + 1 of x, and lane 2i + 1 is lane 2i. */
NM_V(vf, v_swap_pairs, (vf x), (vf){x[1], x[0], x[3], x[2]})
NM_V(vf, v_set, (float x), (vf){x, x, x, x})
NM_V(vf, v_add, (vf a, vf b), a + b)
NM_V(vf, v_sub, (vf a, vf b), a - b)
NM_V(vf, v_mul, (vf a, vf b), a * b)
NM_V(vf, v_div, (vf a, vf b), a / b)
NM_V(vf, v_fma, (vf a, vf b, vf c), a * b + c)
NM_V(vf, v_sqrt, (vf x), (vf){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])})
NM_V(vu, v_bits, (vf x), (vu)x)
NM_V(vf, v_from_bits, (vu x), (vf)x)
NM_V(vf, v_select, (vi mask, vf yes, vf no),
     v_from_bits(((vu)mask & v_bits(yes)) | (~(vu)mask & v_bits(no))))
NM_V(vf, v_max, (vf a, vf b), v_select((vi)(a > b), a, b)) /* b if either is NaN */
NM_V(vf, v_min, (vf a, vf b), v_select((vi)(a < b), a, b))
/* x < bound ? 0 : value */
NM_V(vf, v_zero_below, (vf x, vf bound, vf value), v_from_bits(~(vu)(x < bound) & v_bits(value)))
/* x > bound ? value : 0 */
NM_V(vf, v_keep_above, (vf x, vf bound, vf value), v_from_bits((vu)(x > bound) & v_bits(value)))
/* any lane with x >= bound */
NM_V(int, v_any_from, (vf x, vf bound),
     x[0] >= bound[0] || x[1] >= bound[1] || x[2] >= bound[2] || x[3] >= bound[3])
NM_V(vd, vd_low, (vf x), (vd){(double)x[0], (double)x[1]})
NM_V(vd, vd_high, (vf x), (vd){(double)x[2], (double)x[3]})
NM_V(vd, vd_set, (double x), (vd){x, x})
NM_V(vd, vd_add, (vd a, vd b), a + b)
NM_V(vd, vd_fma, (vd a, vd b, vd c), a * b + c)
NM_V(vd, vd_sub, (vd a, vd b), a - b)
NM_V(vd, vd_mul, (vd a, vd b), a * b)
NM_V(vd, vd_div, (vd a, vd b), a / b)
NM_V(vd, vd_sqrt, (vd x), (vd){sqrt(x[0]), sqrt(x[1])})
NM_V(vd, vd_low_signed, (vu x), (vd){(double)(int32_t)x[0], (double)(int32_t)x[1]}) /* as signed integers */
NM_V(vd, vd_high_signed, (vu x), (vd){(double)(int32_t)x[2], (double)(int32_t)x[3]})
NM_V(vf, v_narrow, (vd low, vd high), (vf){(float)low[0], (float)low[1], (float)high[0], (float)high[1]})
NM_V(double, vd_sum, (vd x), x[0] + x[1])
/* Lane i is the sum of the lanes of x[i], added in the order of vd_sum. */
NM_V(vd, vd_sums, (const vd x[2]), (vd){x[0][0] + x[0][1], x[1][0] + x[1][1]})
NM_V(vu, vu_set, (uint32_t x), (vu){x, x, x, x})
NM_V(vu, vu_lanes, (void), (vu){0, 1, 2, 3})
NM_V(vu, vu_add, (vu a, vu b), a + b)
NM_V(vu, vu_xor, (vu a, vu b), a ^ b)
NM_V(vu, vu_and, (vu a, vu b), a & b)
NM_V(vu, vu_shift_left, (vu a, int bits), a << vu_set((uint32_t)bits))
NM_V(vu, vu_shift_right, (vu a, int bits), a >> vu_set((uint32_t)bits))
/* x < bound ? 0 : value, as unsigned words */
NM_V(vf, vu_zero_below, (vu x, vu bound, vf value), v_from_bits((vu)(x >= bound) & v_bits(value)))
/* clang-format on */

NM_INLINE vf v_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}

NM_INLINE void v_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
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
    vf x = {n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0};
    return x;
}

NM_INLINE void v_store_part(float *p, int32_t n, vf x)
{
    for (int32_t i = 0; i < n && i < 4; i++)
        p[i] = x[i];
}

NM_INLINE vf v_load_bf16_part(const uint16_t *p, int32_t n)
{
    uint16_t numbers[NM_W] = {0};
    memcpy(numbers, p, (size_t)n * sizeof *p);
    return v_load_bf16(numbers);
}

NM_INLINE float v_largest(vf x)
{
    float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
}

NM_INLINE vd vd_load(const double *p)
{
    vd x;
    memcpy(&x, p, sizeof x);
    return x;
}

NM_INLINE void vd_store(double *p, vd x)
{
    memcpy(p, &x, sizeof x);
}

NM_INLINE vu vu_max(vu a, vu b)
{
    vu above = (vu)(a > b);
    return (above & a) | (~above & b);
}

/* 64-bit product of every lane and one word: high and low words. */
NM_INLINE void vu_multiply(vu a, uint32_t word, vu *high, vu *low)
{
    vu h = {0}, l = {0};
    for (int i = 0; i < 4; i++) {
        uint64_t product = (uint64_t)a[i] * word;
        h[i] = (uint32_t)(product >> 32);
        l[i] = (uint32_t)product;
    }
    *high = h;
    *low = l;
}

/* to[i] = sum of the 16 partial sums x[i]: each quarter first, then quarters 0 and 2, 1 and 3, and all */
NM_INLINE void v_sums(vf x[4][4], float to[4])
{
    for (int i = 0; i < 4; i++) {
        float quarter[4];
        for (int q = 0; q < 4; q++)
            quarter[q] = (x[i][q][0] + x[i][q][2]) + (x[i][q][1] + x[i][q][3]);
        to[i] = (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
    }
}

NM_INLINE void v_transpose(vf r[NM_W])
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) {
            float swap = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = swap;
        }
}
