/* Random initialization, as in ref_random_init.inc, for a vector of counters at a time. Uniform numbers
 * are bitwise identical to the reference kernel. For normal numbers, logarithm and cosine are computed here
 * in double, within 2 ulp and without FMA, so that every CPU level gives the same floats. */
#include "backend/cpu/kernel.h"
#include "base/random.h"

/* c[0] + c[1] x + ... + c[n - 1] x^(n - 1) */
NM_INLINE vd polynomial(int n, const double c[], vd x)
{
    vd sum = vd_set(c[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        sum = vd_add(vd_mul(sum, x), vd_set(c[i]));
    return sum;
}

/* log(m 2^k), m in about [1/sqrt(2), sqrt(2)]: with f = m - 1 and s = f/(2 + f),
 *     log m = log((1 + s)/(1 - s)) = 2s + s r(s^2) = f - (f^2/2 - s (f^2/2 + r(s^2)))
 * r has the coefficients of FreeBSD's libm (e_log.c); ln 2 is split into two parts. */
NM_INLINE vd log_of(vd m, vd k)
{
    static const double r[] = {6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                               2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                               1.479819860511658591e-01};
    vd f = vd_sub(m, vd_set(1)), half = vd_mul(vd_set(0.5), vd_mul(f, f));
    vd s = vd_div(f, vd_add(vd_set(2), f)), square = vd_mul(s, s);
    vd rest = vd_mul(square, polynomial(7, r, square));
    vd tail = vd_add(vd_mul(s, vd_add(half, rest)), vd_mul(k, vd_set(1.90821492927058770002e-10)));
    return vd_sub(vd_mul(k, vd_set(6.93147180369123816490e-01)), vd_sub(vd_sub(half, tail), f));
}

/* Sine and cosine of x, |x| <= pi/4, by Taylor series. */
NM_INLINE vd sine_of(vd x)
{
    static const double c[] = {1,
                               -1.0 / 6,
                               1.0 / 120,
                               -1.0 / 5040,
                               1.0 / 362880,
                               -1.0 / 39916800,
                               1.0 / 6227020800.0,
                               -1.0 / 1307674368000.0};
    return vd_mul(x, polynomial(8, c, vd_mul(x, x)));
}

NM_INLINE vd cosine_of(vd x)
{
    static const double c[] = {1,
                               -1.0 / 2,
                               1.0 / 24,
                               -1.0 / 720,
                               1.0 / 40320,
                               -1.0 / 3628800.0,
                               1.0 / 479001600.0,
                               -1.0 / 87178291200.0,
                               1.0 / 20922789888000.0};
    return polynomial(9, c, vd_mul(x, x));
}

enum { HALVES = 2 }; /* halves of a vector of floats, as doubles */

/* A word w as (w + 1/2) / 2^32, in (0, 1). */
NM_INLINE void unit_of(vu word, vd u[HALVES])
{
    vu moved = vu_xor(word, vu_set(0x80000000u)); /* as a signed integer: w - 2^31 */
    vd integer[HALVES] = {vd_low_signed(moved), vd_high_signed(moved)};
    for (int h = 0; h < HALVES; h++)
        u[h] = vd_mul(vd_add(integer[h], vd_set(2147483648.5)), vd_set(1.0 / 4294967296.0));
}

/* sqrt(-2 log u) of the Box-Muller transform: u = m 2^k, k from the nearest float, so that m and k are
 * exact. */
NM_INLINE void radius_of(vu word, vd radius[HALVES])
{
    const uint32_t one = 0x3F800000, root_half = 0x3F3504F3, exponent = 0x7F800000, two_to_23 = 0x4B000000;
    vd u[HALVES];
    unit_of(word, u);
    vu power = vu_and(vu_add(v_bits(v_narrow(u[0], u[1])), vu_set(one - root_half)), vu_set(exponent));
    vu opposite = vu_add(vu_xor(power, vu_set(0xFFFFFFFFu)), vu_set(2 * one + 1)); /* 2^-k: 2 one - power */
    vf k =
        v_sub(v_from_bits(vu_add(vu_shift_right(power, 23), vu_set(two_to_23))), v_set(8388608.0f + 127.0f));
    vf scale = v_from_bits(opposite);
    vd scales[HALVES] = {vd_low(scale), vd_high(scale)}, ks[HALVES] = {vd_low(k), vd_high(k)};
    for (int h = 0; h < HALVES; h++)
        radius[h] = vd_sqrt(vd_mul(vd_set(-2), log_of(vd_mul(u[h], scales[h]), ks[h])));
}

/* cos(2 pi v) with v from unit_of. v = (q + r)/4 with an integer q and |r| <= 1/2, both exact, so that
 *     cos(2 pi v) = cos(pi/2 r), -sin(pi/2 r), -cos(pi/2 r), sin(pi/2 r)    for q mod 4 = 0, 1, 2, 3 */
NM_INLINE void cosine_of_turn(vu word, vd cosine[HALVES])
{
    const uint32_t eighth = 1u << 29;
    vu turned = vu_add(word, vu_set(eighth)), q = vu_shift_right(turned, 30);
    vu offset = vu_add(vu_and(turned, vu_set(0x3FFFFFFF)), vu_set(0u - eighth)); /* signed */
    vf on_cosine = v_add(v_set(1), vu_zero_below(q, vu_set(1), v_set(-1))), on_sine = v_set(0);
    on_cosine = v_add(on_cosine, vu_zero_below(q, vu_set(2), v_set(-1)));
    on_cosine = v_add(on_cosine, vu_zero_below(q, vu_set(3), v_set(1)));
    on_sine = v_add(on_sine, vu_zero_below(q, vu_set(1), v_set(-1)));
    on_sine = v_add(on_sine, vu_zero_below(q, vu_set(2), v_set(1)));
    on_sine = v_add(on_sine, vu_zero_below(q, vu_set(3), v_set(1)));
    vd integer[HALVES] = {vd_low_signed(offset), vd_high_signed(offset)};
    vd c[HALVES] = {vd_low(on_cosine), vd_high(on_cosine)}, s[HALVES] = {vd_low(on_sine), vd_high(on_sine)};
    for (int h = 0; h < HALVES; h++) {
        vd r = vd_mul(vd_add(integer[h], vd_set(0.5)), vd_set(1.0 / 1073741824.0));
        vd x = vd_mul(r, vd_set(1.57079632679489661923));
        cosine[h] = vd_add(vd_mul(c[h], cosine_of(x)), vd_mul(s[h], sine_of(x)));
    }
}

NM_INLINE vf values_of(nm_init init, const vu words[4])
{
    vd value[HALVES], factor[HALVES];
    if (init.kind == NM_INIT_UNIFORM) {
        unit_of(words[0], value);
        for (int h = 0; h < HALVES; h++)
            value[h] = vd_mul(vd_set(init.scale), vd_sub(vd_mul(vd_set(2), value[h]), vd_set(1)));
        return v_narrow(value[0], value[1]);
    }
    radius_of(words[0], value);
    cosine_of_turn(words[1], factor);
    for (int h = 0; h < HALVES; h++) {
        value[h] = vd_mul(vd_set(init.scale), vd_mul(value[h], factor[h]));
        value[h] = vd_add(vd_set(init.kind == NM_INIT_NORMAL_MEAN_ONE), value[h]);
    }
    return v_narrow(value[0], value[1]);
}

static void random_init(nm_backend *b, const nm_random_init_args *args)
{
    const nm_init init = args->init;
    const uint64_t seed = args->seed;
    const size_t n = args->n;
    enum { PART = 1024 };
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t purpose = (uint32_t)NM_RANDOM_INIT << 24 | args->site;
    const int64_t parts = (int64_t)((n + PART - 1) / PART);
    int32_t threads = nm_threads_for(b, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        const size_t begin = (size_t)part * PART, end = n - begin < PART ? n : begin + PART;
        for (size_t i = begin; i < end; i += NM_W) {
            vu words[4] = {vu_add(vu_lanes(), vu_set((uint32_t)i)), vu_set((uint32_t)(i >> 32)),
                           vu_set(purpose), vu_set(0)};
            vf values = v_set((float)init.scale);
            if (init.kind != NM_INIT_CONSTANT) {
                nm_philox_lanes(words, key);
                values = values_of(init, words);
            }
            v_store_upto((float *)args->out + i, end - i < NM_W ? (int32_t)(end - i) : NM_W, values);
        }
    }
}

void NM_SIMD(nm_cpu_random_init)(nm_kernels *k)
{
    k->random_init = random_init;
}
