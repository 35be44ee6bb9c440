/* Portable vectors: a kernel is written once for every CPU level.
 *
 * Files named simd_*.c are compiled once per level with NM_LEVEL set: `base` (vectors of 4 floats with the
 * compiler's vector extension, for any CPU), `avx2`, `avx512` and `neon`. External names of such a file
 * contain the level: NM_SIMD(name). `vf` is a vector of NM_W floats, `vd` of NM_W / 2 doubles, `vu` of NM_W
 * unsigned 32-bit integers. Multiply-add rounds twice on base, and once on the other levels. Loads and stores
 * need no alignment.
 *
 * Sums over columns have NM_LANES partial sums at every level: partial sum l is that of the columns l, l +
 * NM_LANES, l + 2 NM_LANES and so on. They are stored in NM_SUM_VECTORS vectors and added in a fixed order,
 * so that avx2, avx512 and neon give bitwise identical results. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define NM_PASTE_(a, b) a##_##b
#define NM_PASTE(a, b)  NM_PASTE_(a, b)
#define NM_SIMD(name)   NM_PASTE(name, NM_LEVEL)
#define NM_INLINE       static inline __attribute__((always_inline, unused))

/* A row of a table of vector operations: what a function returns, its name, its parameters, and its value. */
#define NM_V(type, name, parameters, ...)                                                                    \
    NM_INLINE type name parameters                                                                           \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }

/* A loop with a constant number of iterations, at most 16, which is unrolled completely. */
#define NM_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define NM_UNROLLED(i, n) NM_PRAGMA(clang loop unroll(full)) for (int i = 0; i < (n); i++)
#else
#define NM_UNROLLED(i, n) NM_PRAGMA(GCC unroll 16) for (int i = 0; i < (n); i++)
#endif

/* Local arrays that are written and read as vectors. A store across two cache lines is not forwarded to the
 * next load, and the stack protector places an array at any multiple of 16 bytes. */
#define NM_ALIGNED _Alignas(64)

#if defined(NM_LEVEL_avx512)
#include "backend/cpu/vector_avx512.h"
#elif defined(NM_LEVEL_avx2)
#include "backend/cpu/vector_avx2.h"
#elif defined(NM_LEVEL_neon)
#include "backend/cpu/vector_neon.h"
#else
#include "backend/cpu/vector_base.h"
#endif

/* Load and store of the first n lanes, n from 0 to NM_W; missing lanes are 0. */
NM_INLINE vf v_load_upto(const float *p, int32_t n)
{
    return n >= NM_W ? v_load(p) : v_load_part(p, n);
}

NM_INLINE vf v_load_bf16_upto(const uint16_t *p, int32_t n)
{
    return n >= NM_W ? v_load_bf16(p) : v_load_bf16_part(p, n);
}

NM_INLINE void v_store_upto(float *p, int32_t n, vf x)
{
    if (n >= NM_W)
        v_store(p, x);
    else
        v_store_part(p, n, x);
}

enum { NM_LANES = 16, NM_SUM_VECTORS = NM_LANES / NM_W };

/* Double accumulators for NM_W columns: low and high half. */
NM_INLINE void v_accumulate(double *sums, vf x)
{
    vd_store(sums, vd_add(vd_load(sums), vd_low(x)));
    vd_store(sums + NM_W / 2, vd_add(vd_load(sums + NM_W / 2), vd_high(x)));
}

/* Reduces NM_LANES partial sums to one vector, whose vd_sum is the sum of all. Repeatedly adds the upper half
 * to the lower half (l + 8 to l, l + 4 to l, ...); overwrites sums. */
NM_INLINE vd vd_fold_lanes(vd sums[2 * NM_SUM_VECTORS])
{
    for (int n = NM_SUM_VECTORS; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            sums[i] = vd_add(sums[i], sums[i + n]);
    return sums[0];
}

/* The same in double for partial sums in float. */
NM_INLINE vd v_fold_lanes(const vf sums[NM_SUM_VECTORS])
{
    vd wide[2 * NM_SUM_VECTORS];
    for (int i = 0; i < NM_SUM_VECTORS; i++) {
        wide[2 * i] = vd_low(sums[i]);
        wide[2 * i + 1] = vd_high(sums[i]);
    }
    return vd_fold_lanes(wide);
}

/* Sum of NM_LANES partial sums in double. */
NM_INLINE double v_sum_lanes(const vf sums[NM_SUM_VECTORS])
{
    return vd_sum(v_fold_lanes(sums));
}

/* e^x within 2 ulp; 0 below -87.3, clamped above 88; NaN for NaN. Polynomial from Cephes. */
NM_INLINE vf v_exp(vf x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer kept in the low bits */
    vf z = v_min(v_set(88.0f), v_max(v_set(-87.3f), x));
    vf t = v_fma(z, v_set(1.44269504088896341f), v_set(shifter));
    vf n = v_sub(t, v_set(shifter));
    vf r = v_fma(n, v_set(-0.693359375f), z);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_add(v_fma(p, v_mul(r, r), r), v_set(1.0f));
    vu exponent = vu_shift_left(vu_add(v_bits(t), vu_set(127u)), 23);
    return v_zero_below(x, v_set(-87.3f), v_mul(p, v_from_bits(exponent)));
}
