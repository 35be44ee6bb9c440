/* Helpers of the norm kernels: padded parameter vectors; sums over rows, which are accumulated in float per
 * block of NM_NORM_ROWS rows and added in double in the order of the blocks; residual connections. */
#pragma once

#include "backend/cpu/kernel.h"

enum { NM_NORM_ROWS = 32 };

/* Length of a vector of d floats padded so that whole vectors can be read from every column. */
NM_INLINE size_t nm_padded(int32_t d)
{
    return (size_t)nm_round_up(d, 16) + 16;
}

/* Copies a parameter of length d or broadcasts one of length 1; `otherwise` is the value of a missing one.
 * The padding is 0. */
NM_INLINE const float *nm_padded_vector(const float *given, int32_t length, int32_t d, float otherwise,
                                        float *to)
{
    for (int32_t j = 0; j < d; j++)
        to[j] = !given || length == 0 ? otherwise : given[length == 1 ? 0 : j];
    for (int32_t j = d; j < (int32_t)nm_padded(d); j++)
        to[j] = 0;
    return to;
}

/* Results of at least NM_STREAM_BYTES do not fit the last-level cache and are written with non-temporal
 * (streaming) stores: a normal store would first read the cache line, and the line would be evicted before it
 * is read again. */
enum { NM_STREAM_BYTES = 24 << 20 };

NM_INLINE bool nm_use_streaming(nm_mat y)
{
    bool aligned = ((uintptr_t)y.data | (uintptr_t)y.stride * sizeof(float)) % (NM_W * sizeof(float)) == 0;
    return aligned && (size_t)y.rows * (size_t)y.cols * sizeof(float) >= NM_STREAM_BYTES;
}

/* Stores a vector, or its first `count` lanes; with streaming stores if `stream`. */
NM_INLINE void nm_store(float *to, int32_t count, const bool stream, vf x)
{
    if (stream && count >= NM_W)
        v_stream(to, x);
    else
        v_store_upto(to, count, x);
}

enum { NM_ACCUMULATORS = 4 }; /* independent accumulators of a sum, to hide the latency of additions */

enum { NM_SUM_BLOCK = NM_ACCUMULATORS * NM_LANES };

/* Sums over n columns, independently for each vector of partial sums:
 *     for (int32_t lane = 0; lane < NM_LANES; lane += NM_W)   sets the accumulators to 0, runs NM_SUM_LANE
 *     and
 *                                                             adds the accumulators
 * step(i, j, count) adds columns j .. j + count - 1 to accumulator i. */
#define NM_SUM_LANE(n, lane, step)                                                                           \
    do {                                                                                                     \
        const int32_t blocks_ = (n) / NM_SUM_BLOCK * NM_SUM_BLOCK;                                           \
        for (int32_t j_ = (lane); j_ < blocks_; j_ += NM_SUM_BLOCK)                                          \
            for (int32_t i_ = 0; i_ < NM_ACCUMULATORS; i_++)                                                 \
                step(i_, j_ + i_ * NM_LANES, NM_W);                                                          \
        for (int32_t j_ = blocks_ + (lane); j_ < (n); j_ += NM_LANES)                                        \
            step(0, j_, nm_min_i32((n)-j_, NM_W));                                                           \
    } while (0)

/* The same sums for all vectors in one loop, for steps with few registers: step(i, v, j, count) adds columns
 * j .. j + count - 1 to accumulator i of vector v. */
#define NM_SUM_LANES(n, step)                                                                                \
    do {                                                                                                     \
        int32_t j_ = 0;                                                                                      \
        for (; j_ + NM_SUM_BLOCK <= (n); j_ += NM_SUM_BLOCK) {                                               \
            _Pragma("GCC unroll 4") for (int32_t i_ = 0; i_ < NM_ACCUMULATORS; i_++)                         \
            {                                                                                                \
                _Pragma("GCC unroll 4") for (int32_t v_ = 0; v_ < NM_SUM_VECTORS; v_++)                      \
                    step(i_, v_, j_ + i_ * NM_LANES + v_ * NM_W, NM_W);                                      \
            }                                                                                                \
        }                                                                                                    \
        for (; j_ + NM_LANES <= (n); j_ += NM_LANES) {                                                       \
            _Pragma("GCC unroll 4") for (int32_t v_ = 0; v_ < NM_SUM_VECTORS; v_++)                          \
                step(0, v_, j_ + v_ * NM_W, NM_W);                                                           \
        }                                                                                                    \
        _Pragma("GCC unroll 4") for (int32_t v_ = 0; v_ < NM_SUM_VECTORS; v_++) if (j_ + v_ * NM_W < (n))    \
            step(0, v_, j_ + v_ * NM_W, nm_min_i32((n)-j_ - v_ * NM_W, NM_W));                               \
    } while (0)

NM_INLINE double nm_sum_lanes(vf sums[NM_ACCUMULATORS][NM_SUM_VECTORS])
{
    for (int v = 0; v < NM_SUM_VECTORS; v++)
        sums[0][v] = v_add(v_add(sums[0][v], sums[1][v]), v_add(sums[2][v], sums[3][v]));
    return v_sum_lanes(sums[0]);
}

NM_INLINE vf nm_sum_accumulators(const vf sum[NM_ACCUMULATORS])
{
    /* cppcheck-suppress ctuArrayIndex ; it misreads initializers of vectors */
    return v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3]));
}

/* Sum of (x - center)^2 in double, for rows whose sum overflows in float, from about |x| = 1e19 on. */
static inline double nm_wide_sum_of_squares(int32_t n, const float *x, double center)
{
    double sum = 0;
    for (int32_t j = 0; j < n; j++)
        sum += ((double)x[j] - center) * ((double)x[j] - center);
    return sum;
}

NM_INLINE double nm_sum_of_squares(int32_t n, const float *x)
{
    vf sums[NM_ACCUMULATORS][NM_SUM_VECTORS] = {{{0}}};
#define ADD_SQUARE(i, v, j, count)                                                                           \
    sums[i][v] = v_fma(v_load_upto(x + (j), count), v_load_upto(x + (j), count), sums[i][v])
    NM_SUM_LANES(n, ADD_SQUARE);
#undef ADD_SQUARE
    double squares = nm_sum_lanes(sums);
    return squares < INFINITY ? squares : nm_wide_sum_of_squares(n, x, 0);
}

NM_INLINE void nm_add_to(float *sums, vf x)
{
    v_store(sums, v_add(v_load(sums), x));
}

NM_INLINE void nm_fma_to(float *sums, vf a, vf b)
{
    v_store(sums, v_fma(a, b, v_load(sums)));
}

/* sums[j] = sum over blocks of partials[block * n + j], n a multiple of 16 */
NM_INLINE void nm_sum_blocks(nm_backend *b, const float *partials, int32_t blocks, int32_t n, double *sums)
{
    int32_t threads = nm_threads_for(b, (size_t)blocks * (size_t)n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t j = 0; j < n; j += 4 * NM_W) {
        NM_ALIGNED double part[4 * NM_W];
        int32_t cols = nm_min_i32(n - j, 4 * NM_W);
        nm_column_sums(partials + j, (size_t)n, blocks, cols, part);
        memcpy(sums + j, part, (size_t)cols * sizeof(double));
    }
}

/* to[j] += sums[j], unless `to` is NULL */
NM_INLINE void nm_add_sums(const double *sums, int32_t n, float *to)
{
    for (int32_t j = 0; to && j < n; j++)
        to[j] = (float)((double)to[j] + sums[j]);
}

/* Residual connection before a norm (nm_residual_sum, nm_residual_grad). on: false if there is none. */
typedef struct nm_norm_residual {
    bool on, add;
    nm_mat stream, f, df;
    nm_drop drop;
} nm_norm_residual;

NM_INLINE nm_norm_residual nm_residual_of_sum(const nm_residual_sum *sum, nm_mat x)
{
    if (!sum)
        return (nm_norm_residual){0};
    NM_ASSERT(nm_same_shape(sum->stream, x) && nm_same_shape(sum->f, x));
    return (nm_norm_residual){.on = true, .stream = sum->stream, .f = sum->f, .drop = nm_drop_of(sum->drop)};
}

NM_INLINE nm_norm_residual nm_residual_of_grad(const nm_residual_grad *grad, nm_mat dx)
{
    if (!grad)
        return (nm_norm_residual){0};
    NM_ASSERT(nm_same_shape(grad->df, dx));
    return (nm_norm_residual){.on = true, .add = grad->add, .df = grad->df, .drop = nm_drop_of(grad->drop)};
}

/* x = stream + drop(f) in rows begin .. end - 1. Not inlined, because the loops of the norms need the
 * registers. */
static __attribute__((noinline, unused)) void nm_residual_rows(const nm_norm_residual *r, nm_mat x,
                                                               int32_t begin, int32_t end)
{
    for (int32_t i = begin; r->on && i < end; i++)
        nm_drop_part(nm_row(r->stream, i), nm_row(r->f, i), &r->drop, (nm_part){i, 0, x.cols}, nm_row(x, i));
}

/* df = drop(dx), or +=, in rows begin .. end - 1. */
static __attribute__((noinline, unused)) void nm_residual_grad_rows(const nm_norm_residual *r, nm_mat dx,
                                                                    int32_t begin, int32_t end)
{
    for (int32_t i = begin; r->on && i < end; i++)
        nm_drop_part(r->add ? nm_row(r->df, i) : NULL, nm_row(dx, i), &r->drop, (nm_part){i, 0, dx.cols},
                     nm_row(r->df, i));
}
