/* Linear layers with the GEMM of gemm.h. Bias and activation are applied in registers, dropout while a block
 * is in the cache. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/tile.h"
#include "backend/patchwise.h"

enum { SUM_ROWS = 256 }; /* of a block of column sums */

static void drop_block(const nm_gemm *gemm, int32_t row, int32_t col, int32_t rows, int32_t cols)
{
    const nm_drop *drop = gemm->context;
    NM_ALIGNED float factors[NM_GEMM_COLS + NM_DROP_COLS];
    for (int32_t i = row; i < row + rows; i++) {
        float *y = gemm->c + (size_t)i * gemm->ldc + (size_t)col;
        const float *factor = nm_drop_row(drop, (uint32_t)i, col, cols, factors);
        for (int32_t j = 0; j < cols; j += NM_W)
            v_store_upto(y + j, cols - j, nm_flush(v_mul(v_load_upto(y + j, cols - j), v_load(factor + j))));
    }
}

static nm_gemm gemm_of(bool ta, bool tb, nm_mat a, nm_mat b, bool add, nm_mat c)
{
    int32_t depth = ta ? a.rows : a.cols;
    NM_ASSERT((ta ? a.cols : a.rows) == c.rows && (tb ? b.rows : b.cols) == c.cols);
    NM_ASSERT((tb ? b.cols : b.rows) == depth);
    return (nm_gemm){.ta = ta,
                     .tb = tb,
                     .add = add,
                     .alpha = 1,
                     .rows = c.rows,
                     .cols = c.cols,
                     .depth = depth,
                     .a = a.data,
                     .b = b.data,
                     .c = c.data,
                     .lda = (size_t)a.stride,
                     .ldb = (size_t)b.stride,
                     .ldc = (size_t)c.stride};
}

/* Weight standardization and attention pooling use this kernel, and are computed in float. */
#if !defined(NM_BF16)
static void gemm(nm_backend *b, const nm_gemm_args *args)
{
    nm_gemm work = gemm_of(args->ta, args->tb, args->a, args->b, args->beta != 0, args->c);
    work.alpha = (float)args->alpha;
    if (args->beta != 0 && args->beta != 1)
        NM_CALL(b, scale, .alpha = args->beta, .x = args->c, .y = args->c);
    NM_SIMD(nm_gemm_run)(b, &work);
}
#endif

/* The panels of rows of a registered weight; NULL unless the first row begins a panel. */
static const float *packed_rows(const nm_backend *b, nm_mat weight)
{
    int32_t first = 0;
    const nm_packed_weight *entry = nm_backend_find_packed(b, weight, &first);
    bool at_panel = entry && first % NM_TILE_COLS == 0;
    return at_panel ? (const float *)entry->packed + (size_t)first * (size_t)nm_panel_rows(weight.cols)
                    : NULL;
}

static void pack(nm_backend *b, const nm_pack_args *args)
{
    const nm_mat weight = args->weight;
    nm_gemm all = {.tb = true,
                   .cols = weight.rows,
                   .depth = weight.cols,
                   .b = weight.data,
                   .ldb = (size_t)weight.stride};
    *args->bytes = NM_SIMD(nm_gemm_pack)(b, &all, args->packed);
}

static void linear(nm_backend *b, const nm_linear_args *args)
{
    if (nm_backend_linear_int8(b, args))
        return;
    nm_gemm work = gemm_of(false, true, args->x, args->weight, false, args->y);
    work.packed = packed_rows(b, args->weight);
    work.bias = args->bias;
    work.relu = args->act == NM_ACT_RELU;
    nm_drop dropped = nm_drop_of(args->drop);
    if (dropped.on) {
        work.finish = drop_block;
        work.context = &dropped;
    }
    NM_SIMD(nm_gemm_run)(b, &work);
}

#if !defined(NM_BF16)
/* Rows of x and of the weight that are multiplied at once: as many as the registers hold partial sums for. */
enum { SELECTED_X = NM_SUM_VECTORS == 1 ? 4 : 1, SELECTED_W = 4, CACHE_LINE = 64 };

typedef struct selected_rows { /* SELECTED_W rows of the weight, and those after them */
    const float *now[SELECTED_W], *next[SELECTED_W];
} selected_rows;

/* After the last column, it is repeated. */
static selected_rows selected_at(const nm_linear_selected_args *args, int32_t col)
{
    selected_rows w;
    for (int32_t k = 0; k < SELECTED_W; k++) {
        int32_t row = args->rows[nm_min_i32(col + k, args->y.cols - 1)];
        NM_ASSERT(row >= 0 && row < args->weight.rows);
        w.now[k] = nm_row(args->weight, row);
        w.next[k] = nm_row(args->weight, args->rows[nm_min_i32(col + SELECTED_W + k, args->y.cols - 1)]);
    }
    return w;
}

/* sums[i][k] = x[i] . w[k]. Prefetches the next rows, because the hardware prefetcher does not predict
 * them. */
NM_INLINE void selected_products(const float *const *x, const selected_rows *w, int32_t width,
                                 float sums[SELECTED_X][SELECTED_W])
{
    vf parts[SELECTED_X][SELECTED_W][NM_SUM_VECTORS] = {{{{0}}}};
#define DOT(v, j, count)                                                                                     \
    do {                                                                                                     \
        vf rows[SELECTED_W];                                                                                 \
        for (int k = 0; k < SELECTED_W; k++) {                                                               \
            rows[k] = v_load_upto(w->now[k] + (j), count);                                                   \
            if ((j) % (CACHE_LINE / (int32_t)sizeof(float)) == 0)                                            \
                __builtin_prefetch(w->next[k] + (j));                                                        \
        }                                                                                                    \
        for (int i = 0; i < SELECTED_X; i++) {                                                               \
            vf part = v_load_upto(x[i] + (j), count);                                                        \
            for (int k = 0; k < SELECTED_W; k++)                                                             \
                parts[i][k][v] = v_fma(part, rows[k], parts[i][k][v]);                                       \
        }                                                                                                    \
    } while (0)
    NM_SUM_COLUMNS(width, DOT);
#undef DOT
    for (int i = 0; i < SELECTED_X; i++)
        v_sums(parts[i], sums[i]);
}

/* Columns col .. col + SELECTED_W - 1 of y. */
static void selected_columns(const nm_linear_selected_args *args, int32_t col)
{
    const nm_mat x = args->x, y = args->y;
    const float *bias = args->bias;
    const selected_rows w = selected_at(args, col);
    const int32_t cols = nm_min_i32(SELECTED_W, y.cols - col);
    for (int32_t i = 0; i < y.rows; i += SELECTED_X) {
        const float *rows[SELECTED_X];
        float sums[SELECTED_X][SELECTED_W];
        for (int32_t r = 0; r < SELECTED_X; r++)
            rows[r] = nm_row(x, nm_min_i32(i + r, y.rows - 1));
        selected_products(rows, &w, x.cols, sums);
        for (int32_t r = 0; r < nm_min_i32(SELECTED_X, y.rows - i); r++)
            for (int32_t k = 0; k < cols; k++)
                nm_row(y, i + r)[col + k] = sums[r][k] + (bias ? bias[args->rows[col + k]] : 0);
    }
}

static void linear_selected(nm_backend *b, const nm_linear_selected_args *args)
{
    const nm_mat x = args->x, y = args->y;
    NM_ASSERT(x.rows == y.rows && x.cols == args->weight.cols);
    int32_t threads = nm_threads_for(b, (size_t)x.cols * (size_t)y.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t col = 0; col < y.cols; col += SELECTED_W)
        selected_columns(args, col);
}
#endif

/* With relu, the gradient passes where y > 0, which is neither dropped nor negative before the activation, so
 * the dropout mask is not needed. Without an activation it is. */
static void act_grad_part(nm_act act, const nm_drop *drop, nm_part part, const float *y, const float *dy,
                          float *dz)
{
    const float kept = drop->on ? drop->scale : 1;
    NM_ALIGNED float factors[NM_DROP_COLS];
    for (int32_t j = 0; j < part.cols; j += NM_DROP_COLS) {
        int32_t end = nm_min_i32(part.cols, j + NM_DROP_COLS);
        if (act != NM_ACT_RELU && drop->on)
            nm_drop_factors(drop, (uint32_t)part.row, (uint32_t)((part.col + j) / NM_DROP_COLS), factors);
        for (int32_t c = j; c < end; c += NM_W) {
            vf up = v_load_upto(dy + c, end - c), factor = v_set(1);
            if (act == NM_ACT_RELU)
                factor = v_keep_above(v_load_upto(y + c, end - c), v_set(0), v_set(kept));
            else if (drop->on)
                factor = v_load(factors + (c - j));
            v_store_upto(dz + c, end - c, v_mul(up, factor));
        }
    }
}

static void act_grad(nm_backend *b, const nm_act_grad_args *args)
{
    const nm_mat y = args->y, dy = args->dy, dz = args->dz;
    NM_ASSERT(nm_same_shape(y, dy) && nm_same_shape(y, dz));
    nm_drop dropped = nm_drop_of(args->drop);
    int64_t parts = nm_parts(y);
    int32_t threads = nm_threads_for(b, (size_t)y.rows * (size_t)y.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < parts; i++) {
        nm_part part = nm_part_at(y, i);
        act_grad_part(args->act, &dropped, part, nm_row(y, part.row) + part.col,
                      nm_row(dy, part.row) + part.col, nm_row(dz, part.row) + part.col);
    }
}

static void linear_grad_input(nm_backend *b, const nm_linear_grad_input_args *args)
{
    nm_gemm work = gemm_of(false, false, args->dy, args->weight, args->add, args->dx);
    NM_SIMD(nm_gemm_run)(b, &work);
}

static void linear_grad_weight(nm_backend *b, const nm_linear_grad_weight_args *args)
{
    const nm_mat dy = args->dy;
    void *db = args->db;
    if (args->dw.data) {
        nm_gemm work = gemm_of(true, false, dy, args->x, true, args->dw);
        NM_SIMD(nm_gemm_run)(b, &work);
    }
    if (db)
        NM_SIMD(nm_add_column_sums)(b, dy, db);
}

/* Sums of a block of SUM_ROWS rows, added in the order of the blocks: results do not depend on the
 * threads. */
void NM_SIMD(nm_add_column_sums)(nm_backend *b, nm_mat x, float *to)
{
    const int32_t cols = 4 * NM_W, width = nm_round_up(x.cols, cols), blocks = nm_ceil_div(x.rows, SUM_ROWS);
    double *sums = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)blocks * (size_t)width * sizeof(double));
    if (b->dry_run)
        return;
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int32_t i = 0; i < blocks * (width / cols); i++) {
            const int32_t block = i / (width / cols), col = i % (width / cols) * cols;
            nm_column_sums(nm_row(x, block * SUM_ROWS) + col, (size_t)x.stride,
                           nm_min_i32(x.rows - block * SUM_ROWS, SUM_ROWS), nm_min_i32(x.cols - col, cols),
                           sums + (size_t)block * (size_t)width + col);
        }
#pragma omp for schedule(static)
        for (int32_t j = 0; j < x.cols; j++) {
            double sum = 0;
            for (int32_t block = 0; block < blocks; block++)
                sum += sums[(size_t)block * (size_t)width + (size_t)j];
            to[j] = (float)((double)to[j] + sum);
        }
    }
}

void NM_SIMD(nm_cpu_linear)(nm_kernels *k)
{
#if defined(NM_BF16)
    k->convolve = nm_patchwise_convolve;
    k->convolve_grad_input = nm_patchwise_grad_input;
    k->convolve_grad_weight = nm_patchwise_grad_weight;
#else
    k->gemm = gemm;
    k->linear_selected = linear_selected;
#endif
    k->linear = linear;
    k->pack = pack;
    k->act_grad = act_grad;
    k->linear_grad_input = linear_grad_input;
    k->linear_grad_weight = linear_grad_weight;
}
