/* Rotary position embeddings (Su et al. 2021), see nm_rotate_args. */
#include "backend/cpu/kernel.h"

enum { ANGLE_COLS = 128 }; /* a multiple of NM_W */

/* One head whose pairs are the columns k and k + pairs. angles: row of the table; sign: of the sines. */
static void rotate_halves(const float *x, const float *angles, int32_t pairs, float sign, float *y)
{
    const vf plus = v_set(sign), minus = v_set(-sign);
#define STEP(k, count)                                                                                       \
    do {                                                                                                     \
        vf cos_ = v_load_upto(angles + (k), count), sin_ = v_load_upto(angles + pairs + (k), count);         \
        vf a_ = v_load_upto(x + (k), count), b_ = v_load_upto(x + pairs + (k), count);                       \
        v_store_upto(y + (k), count, v_fma(a_, cos_, v_mul(b_, v_mul(minus, sin_))));                        \
        v_store_upto(y + pairs + (k), count, v_fma(b_, cos_, v_mul(a_, v_mul(plus, sin_))));                 \
    } while (0)
    NM_COLUMNS(pairs, STEP);
#undef STEP
}

/* Angles of interleaved pairs, ANGLE_COLS columns at a time: cos_c and sin_c are repeated for both columns of
 * a pair, and the sine of its first column is negative. */
typedef struct angle_block {
    NM_ALIGNED float cosines[ANGLE_COLS];
    NM_ALIGNED float sines[ANGLE_COLS];
} angle_block;

static void angle_block_fill(angle_block *block, const float *cosines, const float *sines, int32_t pairs,
                             float sign)
{
    for (int32_t k = 0; k < pairs; k++) {
        block->cosines[2 * k] = block->cosines[2 * k + 1] = cosines[k];
        block->sines[2 * k] = -sign * sines[k];
        block->sines[2 * k + 1] = sign * sines[k];
    }
}

/* The first `cols` columns of a block. */
static void rotate_pairs(const float *x, const angle_block *block, int32_t cols, float *y)
{
#define STEP(j, count)                                                                                       \
    do {                                                                                                     \
        vf x_ = v_load_upto(x + (j), count), sin_ = v_load_upto(block->sines + (j), count);                  \
        v_store_upto(y + (j), count,                                                                         \
                     v_fma(x_, v_load_upto(block->cosines + (j), count), v_mul(v_swap_pairs(x_), sin_)));    \
    } while (0)
    NM_COLUMNS(cols, STEP);
#undef STEP
}

static void rotate_interleaved(const nm_rotate_args *args, const float *x, const float *angles, float sign,
                               float *y)
{
    const int32_t width = args->table.cols;
    angle_block block;
    for (int32_t first = 0; first < width; first += ANGLE_COLS) {
        int32_t cols = nm_min_i32(width - first, ANGLE_COLS);
        angle_block_fill(&block, angles + first / 2, angles + (width + first) / 2, cols / 2, sign);
        for (int32_t j = first; j < args->x.cols; j += width)
            rotate_pairs(x + j, &block, cols, y + j);
    }
}

static void rotate(nm_backend *b, const nm_rotate_args *args)
{
    const nm_mat x = args->x, y = args->y, table = args->table;
    NM_ASSERT(nm_same_shape(x, y) && args->heads > 0 && x.cols == args->heads * table.cols &&
              table.cols % 2 == 0);
    const float sign = args->inverse ? -1 : 1;
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < x.rows; i++) {
        NM_ASSERT(args->positions[i] >= 0 && args->positions[i] < table.rows);
        const float *angles = nm_row(table, args->positions[i]);
        if (args->interleaved)
            rotate_interleaved(args, nm_row(x, i), angles, sign, nm_row(y, i));
        else
            for (int32_t j = 0; j < x.cols; j += table.cols)
                rotate_halves(nm_row(x, i) + j, angles, table.cols / 2, sign, nm_row(y, i) + j);
    }
}

void NM_SIMD(nm_cpu_rotate)(nm_kernels *k)
{
    k->rotate = rotate;
}
