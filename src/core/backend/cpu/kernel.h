/* Helpers of the SIMD kernels: rows of matrices, partition of work, dropout factors, column sums. */
#pragma once

#include "backend/backend_private.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/simd.h"
#include "base/random.h"

NM_INLINE float *nm_row(nm_mat m, int32_t row)
{
    return (float *)m.data + (size_t)row * (size_t)m.stride;
}

NM_INLINE bool nm_same_shape(nm_mat a, nm_mat b)
{
    return a.rows == b.rows && a.cols == b.cols;
}

NM_INLINE int32_t nm_min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

NM_INLINE int32_t nm_ceil_div(int32_t n, int32_t size)
{
    return n / size + (n % size != 0);
}

NM_INLINE int32_t nm_round_up(int32_t n, int32_t unit)
{
    return nm_ceil_div(n, unit) * unit;
}

/* step(j, count) for whole vectors of n columns with a constant count, then once for the remaining columns,
 * so that only the remainder uses masks. `step` is a macro or an inline function that uses the caller's
 * variables. */
#define NM_COLUMNS(n, step)                                                                                  \
    do {                                                                                                     \
        int32_t at_ = 0;                                                                                     \
        for (; at_ + NM_W <= (n); at_ += NM_W)                                                               \
            step(at_, NM_W);                                                                                 \
        if (at_ < (n))                                                                                       \
            step(at_, (n)-at_);                                                                              \
    } while (0)

/* NM_COLUMNS for sums over columns: step(i, j, count) adds columns j .. j + count - 1 to vector i of the
 * NM_SUM_VECTORS vectors of partial sums. */
#define NM_SUM_COLUMNS(n, step)                                                                              \
    do {                                                                                                     \
        int32_t at_ = 0;                                                                                     \
        for (; at_ + NM_LANES <= (n); at_ += NM_LANES)                                                       \
            _Pragma("GCC unroll 4") for (int i_ = 0; i_ < NM_SUM_VECTORS; i_++)                              \
                step(i_, at_ + i_ * NM_W, NM_W);                                                             \
        _Pragma("GCC unroll 4") for (int i_ = 0; i_ < NM_SUM_VECTORS; i_++) if (at_ + i_ * NM_W < (n))       \
            step(i_, at_ + i_ * NM_W, nm_min_i32((n)-at_ - i_ * NM_W, NM_W));                                \
    } while (0)

/* Number of threads for an operation on this number of elements: 1 or all, because OpenMP ends and restarts
 * threads if the number varies. All are used for at least 4,096 elements per thread, so that starting them
 * takes no longer than the operation, and for 65,536 elements or more. */
NM_INLINE int32_t nm_threads_for(const nm_backend *b, size_t elements)
{
    return elements < 65536 && elements < 4096 * (size_t)b->threads ? 1 : b->threads;
}

/* Partition of a matrix into parts of at most NM_PART columns of a row; NM_PART is a multiple of the
 * dropout blocks. */
enum { NM_PART = 4096, NM_DROP_COLS = 128 };

typedef struct nm_part {
    int32_t row, col, cols;
} nm_part;

NM_INLINE int64_t nm_parts(nm_mat m)
{
    return (int64_t)m.rows * nm_ceil_div(m.cols, NM_PART);
}

NM_INLINE nm_part nm_part_at(nm_mat m, int64_t i)
{
    int32_t per_row = nm_ceil_div(m.cols, NM_PART);
    int32_t row = (int32_t)(i / per_row), col = (int32_t)(i % per_row) * NM_PART;
    return (nm_part){row, col, nm_min_i32(m.cols - col, NM_PART)};
}

/* A row of a window: columns x .. x + size - 1 of row y of an image; zeros outside the image. */
NM_INLINE void nm_copy_window_row(const nm_windows *w, nm_mat map, int32_t image, int32_t y, int32_t x,
                                  int32_t size, float *to)
{
    const size_t channels = (size_t)map.cols;
    const int32_t left = x < 0 ? nm_min_i32(-x, size) : 0, right = nm_min_i32(size, w->width - x);
    if (y < 0 || y >= w->height || right <= left) {
        memset(to, 0, (size_t)size * channels * sizeof *to);
        return;
    }
    if (left > 0)
        memset(to, 0, (size_t)left * channels * sizeof *to);
    const int32_t row = (image * w->height + y) * w->width + x,
                  part = map.stride == map.cols ? right - left : 1;
    for (int32_t j = left; j < right; j += part)
        memcpy(to + (size_t)j * channels, nm_row(map, row + j), (size_t)part * channels * sizeof *to);
    if (right < size)
        memset(to + (size_t)right * channels, 0, (size_t)(size - right) * channels * sizeof *to);
}

/* Dropout of one site. If `on` is false there is no dropout, and factors must not be computed. */
typedef struct nm_drop {
    bool on;
    uint32_t key[2], site, step, threshold;
    float scale;
} nm_drop;

NM_INLINE nm_drop nm_drop_of(const nm_dropout *drop)
{
    nm_drop out = {0};
    if (!drop || nm_dropout_threshold(drop->rate) == 0)
        return out;
    out = (nm_drop){.on = true,
                    .key = {(uint32_t)drop->seed, (uint32_t)(drop->seed >> 32)},
                    .site = (uint32_t)NM_RANDOM_DROPOUT << 24 | drop->site,
                    .step = drop->step,
                    .threshold = nm_dropout_threshold(drop->rate),
                    .scale = (float)nm_dropout_scale(drop->rate)};
    return out;
}

/* Philox4x32-10 with one counter per lane. On input, c is the counters, of which only c[0] may differ between
 * lanes; on output, the random words. */
NM_INLINE void nm_philox_lanes(vu c[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    NM_UNROLLED(round, 10) {
        vu high0, low0, high2, low2;
        vu_multiply(c[0], 0xD2511F53u, &high0, &low0);
        vu_multiply(c[2], 0xCD9E8D57u, &high2, &low2);
        c[0] = vu_xor(vu_xor(high2, c[1]), vu_set(k0));
        c[2] = vu_xor(vu_xor(high0, c[3]), vu_set(k1));
        c[1] = low2;
        c[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Dropout factors (0 or scale) of NM_DROP_COLS columns of a row, from column block * NM_DROP_COLS; see
 * base/random.h. */
NM_INLINE void nm_drop_factors(const nm_drop *drop, uint32_t row, uint32_t block, float factors[NM_DROP_COLS])
{
    vu threshold = vu_set(drop->threshold), mask = vu_set(0xFFFF);
    vf scale = v_set(drop->scale);
    for (uint32_t lane = 0; lane < 16; lane += NM_W) {
        vu c[4] = {vu_add(vu_lanes(), vu_set(block * 16 + lane)), vu_set(row), vu_set(drop->site),
                   vu_set(drop->step)};
        nm_philox_lanes(c, drop->key);
        for (uint32_t word = 0; word < 4; word++) {
            v_store(factors + 32 * word + lane, vu_zero_below(vu_and(c[word], mask), threshold, scale));
            v_store(factors + 32 * word + 16 + lane,
                    vu_zero_below(vu_shift_right(c[word], 16), threshold, scale));
        }
    }
}

/* Dropout factors of columns col .. col + cols - 1 of a row; col is a multiple of 16. `factors` has memory
 * for cols + 2 * NM_DROP_COLS floats. Returns the address of the factor of column col. */
NM_INLINE const float *nm_drop_row(const nm_drop *drop, uint32_t row, int32_t col, int32_t cols,
                                   float *factors)
{
    int32_t first = col / NM_DROP_COLS;
    for (int32_t block = first; block * NM_DROP_COLS < col + cols; block++)
        nm_drop_factors(drop, row, (uint32_t)block, factors + (block - first) * NM_DROP_COLS);
    return factors + col % NM_DROP_COLS;
}

/* y = x + drop(f), or y = drop(f) if x is NULL */
NM_INLINE void nm_drop_part(const float *x, const float *f, const nm_drop *drop, nm_part part, float *y)
{
    NM_ALIGNED float factors[NM_DROP_COLS];
    for (int32_t j = 0; j < part.cols; j += NM_DROP_COLS) {
        int32_t end = nm_min_i32(part.cols, j + NM_DROP_COLS);
        if (drop->on)
            nm_drop_factors(drop, (uint32_t)part.row, (uint32_t)((part.col + j) / NM_DROP_COLS), factors);
        for (int32_t c = j; c < end; c += NM_W) {
            vf value = v_load_upto(f + c, end - c);
            if (drop->on)
                value = v_mul(value, v_load(factors + (c - j)));
            if (x)
                value = v_add(v_load_upto(x + c, end - c), value);
            v_store_upto(y + c, end - c, value);
        }
    }
}

/* Sums of up to 4 NM_W columns over rows: 8 rows at a time are summed in float, and these sums in double.
 * sums[4 NM_W]; those past cols are 0. */
NM_INLINE void nm_column_sums(const float *data, size_t stride, int32_t rows, int32_t cols, double *sums)
{
    for (int32_t i = 0; i < 4 * NM_W; i++)
        sums[i] = 0;
    for (int32_t r = 0; r < rows; r += 8) {
        int32_t end = nm_min_i32(rows, r + 8);
        for (int32_t j = 0; j < cols; j += NM_W) {
            vf sum = v_set(0);
            for (int32_t i = r; i < end; i++)
                sum = v_add(sum, v_load_upto(data + (size_t)i * stride + j, cols - j));
            v_accumulate(sums + j, sum);
        }
    }
}
