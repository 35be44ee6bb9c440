/* The vectors of simd.h with the compiler's vector extension: 4 floats on any machine. */
#ifndef NM_VECTOR_BASE_H
#define NM_VECTOR_BASE_H

#define NM_W         4
#define NM_TILE_ROWS 4
typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

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

NM_INLINE vf v_load_bf16(const uint16_t *p) /* the values of NM_W bf16 numbers */
{
    return (vf)((vu){p[0], p[1], p[2], p[3]} << 16);
}

NM_INLINE vf v_load_bf16_part(const uint16_t *p, int32_t n)
{
    uint16_t numbers[NM_W] = {0};
    memcpy(numbers, p, (size_t)n * sizeof *p);
    return v_load_bf16(numbers);
}

NM_INLINE vf v_first(vf x, int32_t n) /* lanes from n on are set to 0; n <= NM_W */
{
    return (vf){n > 0 ? x[0] : 0, n > 1 ? x[1] : 0, n > 2 ? x[2] : 0, n > 3 ? x[3] : 0};
}

/* Lane 2i is lane 2i + 1 of x, and lane 2i + 1 is lane 2i. */
NM_INLINE vf v_swap_pairs(vf x)
{
    return (vf){x[1], x[0], x[3], x[2]};
}

NM_INLINE vf v_set(float x)
{
    return (vf){x, x, x, x};
}

NM_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}

NM_INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}

NM_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}

NM_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}

NM_INLINE vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

NM_INLINE vf v_sqrt(vf x)
{
    return (vf){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}

NM_INLINE vu v_bits(vf x)
{
    return (vu)x;
}

NM_INLINE vf v_from_bits(vu x)
{
    return (vf)x;
}

NM_INLINE vf v_select(vi mask, vf yes, vf no)
{
    return v_from_bits(((vu)mask & v_bits(yes)) | (~(vu)mask & v_bits(no)));
}

NM_INLINE vf v_max(vf a, vf b) /* b if either is NaN */
{
    return v_select((vi)(a > b), a, b);
}

NM_INLINE vf v_min(vf a, vf b)
{
    return v_select((vi)(a < b), a, b);
}

NM_INLINE float v_largest(vf x)
{
    float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
}

NM_INLINE vf v_zero_below(vf x, vf bound, vf value) /* x < bound ? 0 : value */
{
    return v_from_bits(~(vu)(x < bound) & v_bits(value));
}

NM_INLINE vf v_keep_above(vf x, vf bound, vf value) /* x > bound ? value : 0 */
{
    return v_from_bits((vu)(x > bound) & v_bits(value));
}

NM_INLINE int v_any_from(vf x, vf bound) /* any lane with x >= bound */
{
    return x[0] >= bound[0] || x[1] >= bound[1] || x[2] >= bound[2] || x[3] >= bound[3];
}

NM_INLINE vd vd_low(vf x)
{
    return (vd){(double)x[0], (double)x[1]};
}

NM_INLINE vd vd_high(vf x)
{
    return (vd){(double)x[2], (double)x[3]};
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

NM_INLINE vd vd_set(double x)
{
    return (vd){x, x};
}

NM_INLINE vd vd_add(vd a, vd b)
{
    return a + b;
}

NM_INLINE vd vd_fma(vd a, vd b, vd c)
{
    return a * b + c;
}

NM_INLINE vd vd_sub(vd a, vd b)
{
    return a - b;
}

NM_INLINE vd vd_mul(vd a, vd b)
{
    return a * b;
}

NM_INLINE vd vd_div(vd a, vd b)
{
    return a / b;
}

NM_INLINE vd vd_sqrt(vd x)
{
    return (vd){sqrt(x[0]), sqrt(x[1])};
}

NM_INLINE vd vd_low_signed(vu x) /* as signed integers */
{
    return (vd){(double)(int32_t)x[0], (double)(int32_t)x[1]};
}

NM_INLINE vd vd_high_signed(vu x)
{
    return (vd){(double)(int32_t)x[2], (double)(int32_t)x[3]};
}

NM_INLINE vf v_narrow(vd low, vd high)
{
    return (vf){(float)low[0], (float)low[1], (float)high[0], (float)high[1]};
}

NM_INLINE double vd_sum(vd x)
{
    return x[0] + x[1];
}

/* Lane i is the sum of the lanes of x[i], added in the order of vd_sum. */
NM_INLINE vd vd_sums(const vd x[2])
{
    return (vd){x[0][0] + x[0][1], x[1][0] + x[1][1]};
}

NM_INLINE vu vu_set(uint32_t x)
{
    return (vu){x, x, x, x};
}

NM_INLINE vu vu_lanes(void)
{
    return (vu){0, 1, 2, 3};
}

NM_INLINE vu vu_add(vu a, vu b)
{
    return a + b;
}

NM_INLINE vu vu_max(vu a, vu b)
{
    vu above = (vu)(a > b);
    return (above & a) | (~above & b);
}

NM_INLINE vu vu_xor(vu a, vu b)
{
    return a ^ b;
}

NM_INLINE vu vu_and(vu a, vu b)
{
    return a & b;
}

NM_INLINE vu vu_shift_left(vu a, int bits)
{
    return a << vu_set((uint32_t)bits);
}

NM_INLINE vu vu_shift_right(vu a, int bits)
{
    return a >> vu_set((uint32_t)bits);
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

NM_INLINE vf vu_zero_below(vu x, vu bound, vf value) /* x < bound ? 0 : value, as unsigned words */
{
    return v_from_bits((vu)(x >= bound) & v_bits(value));
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

#endif
