/* Softmax over the vocabulary: label-smoothed cross-entropy with its gradients, log probabilities, top k.
 * The loss is computed in blocks of tokens: the logits of a batch are never materialized. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/shares.h"

#include <omp.h>

enum {
    LOGIT_BYTES = 128 << 20, /* memory limit of a block of logits */
    LOSS_ROWS = 512,         /* rows of a block, or a multiple */
    THREAD_ROWS = 32,        /* of a block, at least */
    SUM_CHUNK = 512,         /* columns that are summed in float; sums of chunks are added in double */
    MAX_CHUNK = 4 * NM_W     /* columns of a chunk of chunk_maxima */
};

/* Target distribution: `base` for every allowed token, plus `peak` for the target. */
typedef struct loss_call {
    const nm_softmax_loss_args *loss;
    const float *bias;
    const float *mask; /* 0, or -inf for tokens that are not allowed; NULL: all are allowed */
    double base, peak;
    int32_t words, allowed;
    bool grads;
} loss_call;

static const float *mask_words(nm_backend *b, const uint8_t *allowed, int32_t words, int32_t *count)
{
    *count = words;
    if (!allowed)
        return NULL;
    float *mask = nm_backend_scratch(b, NM_CPU_PARTIALS, (size_t)words * sizeof(float) + 64);
    *count = 0;
    for (int32_t v = 0; v < words; v++) {
        mask[v] = allowed[v] ? 0 : -INFINITY;
        *count += allowed[v] != 0;
    }
    return mask;
}

/* Vector of maxima whose largest lane is the maximum of top and of the first `count` lanes of x. */
NM_INLINE vf max_upto(vf top, vf x, int32_t count)
{
    float lanes[NM_W];
    if (count >= NM_W)
        return v_max(top, x);
    v_store(lanes, x);
    for (int32_t i = 0; i < count; i++)
        top = v_max(top, v_set(lanes[i]));
    return top;
}

/* x += bias, -inf where masked. Returns the maximum. Sets *sum to the sum of the values that are not
 * masked. */
static float prepare_row(int32_t n, const float *bias, const float *mask, float *x, double *sum)
{
    vf top = v_set(-INFINITY);
    *sum = 0;
    for (int32_t first = 0; first < n; first += SUM_CHUNK) {
        vf part[NM_SUM_VECTORS] = {{0}};
#define PREPARE(i, j, count)                                                                                 \
    do {                                                                                                     \
        float *at = x + first + (j);                                                                         \
        vf z = v_load_upto(at, count);                                                                       \
        if (bias)                                                                                            \
            z = v_add(z, v_load_upto(bias + first + (j), count));                                            \
        if (mask) {                                                                                          \
            vf hidden = v_load_upto(mask + first + (j), count), kept = v_keep_above(hidden, v_set(-1), z);   \
            part[i] = v_add(part[i], kept);                                                                  \
            z = v_add(kept, hidden);                                                                         \
        } else {                                                                                             \
            part[i] = v_add(part[i], z);                                                                     \
        }                                                                                                    \
        v_store_upto(at, count, z);                                                                          \
        top = max_upto(top, z, count);                                                                       \
    } while (0)
        NM_SUM_COLUMNS(nm_min_i32(n - first, SUM_CHUNK), PREPARE);
#undef PREPARE
        *sum += v_sum_lanes(part);
    }
    return v_largest(top);
}

/* Sum of e^(x - top). With `keep`, x is overwritten with the terms. */
NM_INLINE double exp_row(int32_t n, float top, float *x, const bool keep)
{
    double sum = 0;
    for (int32_t first = 0; first < n; first += SUM_CHUNK) {
        vf part[NM_SUM_VECTORS] = {{0}};
#define EXP(i, j, count)                                                                                     \
    do {                                                                                                     \
        float *at = x + first + (j);                                                                         \
        vf e = v_exp(v_sub(v_load_upto(at, count), v_set(top)));                                             \
        e = (count) < NM_W ? v_first(e, count) : e;                                                          \
        part[i] = v_add(part[i], e);                                                                         \
        if (keep)                                                                                            \
            v_store_upto(at, count, e);                                                                      \
    } while (0)
        NM_SUM_COLUMNS(nm_min_i32(n - first, SUM_CHUNK), EXP);
#undef EXP
        sum += v_sum_lanes(part);
    }
    return sum;
}

/* x = factor x - base, 0 where masked */
static void grad_row(int32_t n, const float *mask, float factor, float base, float *x)
{
    for (int32_t j = 0; j < n; j += NM_W) {
        vf d = v_sub(v_mul(v_set(factor), v_load_upto(x + j, n - j)), v_set(base));
        if (mask)
            d = v_keep_above(v_load_upto(mask + j, n - j), v_set(-1), d);
        v_store_upto(x + j, n - j, d);
    }
}

/* Loss of one token, whose logits are overwritten with their gradient; lp: log softmax, t: target.
 *     loss      = peak (-lp_t) + base sum_v (-lp_v)
 *     gradient  = grad_scale (softmax - base - peak [v = t])
 * Both are 0 for ignored targets, and the gradient for tokens that are not allowed. */
static void loss_row(const loss_call *call, int32_t target, float *x, double sums[2])
{
    int32_t n = call->words;
    if (target == NM_TARGET_IGNORED) {
        memset(x, 0, (size_t)n * sizeof *x);
        sums[0] = sums[1] = 0;
        return;
    }
    NM_ASSERT(target >= 0 && target < n && (!call->loss->allowed || call->loss->allowed[target]));
    double all, scale = call->loss->grad_scale;
    float top = prepare_row(n, call->bias, call->mask, x, &all), own = x[target];
    double denominator = exp_row(n, top, x, true), lse = (double)top + log(denominator);
    sums[1] = lse - (double)own;
    sums[0] = call->peak * sums[1] + call->base * (call->allowed * lse - all);
    if (!call->grads)
        return;
    grad_row(n, call->mask, (float)(scale / denominator), (float)(scale * call->base), x);
    x[target] -= (float)(scale * call->peak);
}

static nm_gemm gemm_of(bool ta, bool tb, const float *a, size_t lda, const float *bm, size_t ldb)
{
    return (nm_gemm){.ta = ta, .tb = tb, .alpha = 1, .a = a, .b = bm, .lda = lda, .ldb = ldb};
}

/* c = or += the GEMM, over `depth` */
static void run_gemm(nm_backend *b, nm_gemm work, int32_t depth, bool add, nm_mat c)
{
    work.rows = c.rows;
    work.cols = c.cols;
    work.depth = depth;
    work.add = add;
    work.c = c.data;
    work.ldc = (size_t)c.stride;
    NM_SIMD(nm_gemm_run)(b, &work);
}

/* GEMMs with the weight of the output layer: logits from hidden vectors (up), and gradients of hidden vectors
 * from gradients of logits (down). */
typedef struct output_gemms {
    nm_gemm up, down;
} output_gemms;

static output_gemms gemms_of(const nm_softmax_loss_args *loss)
{
    int32_t words = loss->weight.rows, width = loss->weight.cols;
    const float *weight = loss->weight.data;
    size_t stride = (size_t)loss->weight.stride;
    output_gemms p = {gemm_of(false, true, NULL, (size_t)loss->hidden.stride, weight, stride),
                      gemm_of(false, false, NULL, (size_t)words, weight, stride)};
    p.up.cols = p.down.depth = words;
    p.up.depth = p.down.cols = width;
    return p;
}

/* Scratch memory of the loss. */
typedef struct loss_scratch {
    int32_t block;    /* rows whose logits are in memory at once */
    double *sums;     /* [block, 2] */
    float *logits;    /* [block, words] */
    float *packed;    /* the weight for both GEMMs if there are several blocks; otherwise NULL */
    size_t packed_up; /* offset of the second one */
} loss_scratch;

/* Number of rows of a block. GEMM adds products over rows in chunks of LOSS_ROWS, so results are the same for
 * all multiples. */
static int32_t block_rows(int32_t tokens, int32_t words, int32_t threads)
{
    const int32_t most = (int32_t)(LOGIT_BYTES / sizeof(float)) / words;
    const int32_t wanted = nm_round_up(threads * THREAD_ROWS, LOSS_ROWS);
    int32_t rows = nm_min_i32(wanted, most / LOSS_ROWS * LOSS_ROWS);
    if (most < LOSS_ROWS)
        rows = most < 1 ? 1 : most;
    return nm_min_i32(rows, tokens > 0 ? tokens : 1);
}

static loss_scratch scratch_of(nm_backend *b, const nm_softmax_loss_args *loss, const output_gemms *gemms)
{
    int32_t tokens = loss->hidden.rows, words = loss->weight.rows;
    int32_t block = block_rows(tokens, words, b->threads);
    size_t sum_bytes = (size_t)nm_round_up(block, 4) * 2 * sizeof(double);
    size_t logit_bytes = (size_t)block * (size_t)words * sizeof(float);
    loss_scratch s = {.block = block, .sums = nm_backend_scratch(b, NM_CPU_BLOCK, sum_bytes + logit_bytes)};
    s.logits = b->dry_run ? NULL : (float *)(void *)(s.sums + sum_bytes / sizeof(double));
    if (tokens <= block)
        return s;
    size_t up_bytes = NM_SIMD(nm_gemm_pack)(b, &gemms->up, NULL);
    size_t down_bytes = loss->d_hidden ? NM_SIMD(nm_gemm_pack)(b, &gemms->down, NULL) : 0;
    s.packed = nm_backend_scratch(b, NM_CPU_PACKED, up_bytes + down_bytes);
    s.packed_up = up_bytes / sizeof(float);
    return s;
}

/* For several blocks of rows, the weight is packed only once. */
static void pack_weight(nm_backend *b, const nm_softmax_loss_args *loss, float *packed, size_t packed_up,
                        output_gemms *gemms)
{
    NM_SIMD(nm_gemm_pack)(b, &gemms->up, packed);
    gemms->up.packed = packed;
    if (!loss->d_hidden)
        return;
    NM_SIMD(nm_gemm_pack)(b, &gemms->down, packed + packed_up);
    gemms->down.packed = packed + packed_up;
}

/* LOSS_ROWS rows at a time, so that the sums are rounded in the same places for all sizes of a block. */
static void add_bias_gradients(nm_backend *b, nm_mat gradients, float *d_bias)
{
    for (int32_t first = 0; first < gradients.rows; first += LOSS_ROWS) {
        const int32_t rows = nm_min_i32(gradients.rows - first, LOSS_ROWS);
        NM_SIMD(nm_add_column_sums)(b, nm_mat_of(nm_row(gradients, first), rows, gradients.cols), d_bias);
    }
}

/* Gradients of a block of rows from the gradients of its logits. */
static void grad_block(nm_backend *b, const nm_softmax_loss_args *loss, nm_gemm down, int32_t first,
                       int32_t rows, const float *logits)
{
    int32_t words = loss->weight.rows, width = loss->weight.cols;
    const float *hidden = nm_row(loss->hidden, first);
    down.a = logits;
    nm_gemm across = gemm_of(true, false, logits, (size_t)words, hidden, (size_t)loss->hidden.stride);
    if (loss->d_hidden)
        run_gemm(b, down, words, false,
                 nm_mat_of((float *)loss->d_hidden + (size_t)first * (size_t)width, rows, width));
    if (loss->d_weight)
        run_gemm(b, across, rows, true, nm_mat_of(loss->d_weight, words, width));
    if (loss->d_bias)
        add_bias_gradients(b, nm_mat_of((void *)(uintptr_t)logits, rows, words), loss->d_bias);
}

static loss_call prepare_loss(nm_backend *b, const nm_softmax_loss_args *loss)
{
    loss_call call = {.loss = loss, .bias = loss->bias, .words = loss->weight.rows};
    call.mask = mask_words(b, loss->allowed, call.words, &call.allowed);
    call.grads = loss->d_hidden || loss->d_weight || loss->d_bias;
    if (loss->smoothing == NM_SMOOTH_UNIFORM) {
        call.base = loss->eps / call.allowed;
        call.peak = 1 - loss->eps;
    } else {
        call.base = call.allowed > 1 ? loss->eps / (call.allowed - 1) : 0;
        call.peak = 1 - loss->eps - call.base;
    }
    return call;
}

static void softmax_loss(nm_backend *b, const nm_softmax_loss_args *loss)
{
    int32_t tokens = loss->hidden.rows, width = loss->weight.cols;
    NM_ASSERT(loss->hidden.cols == width && loss->weight.rows > 0);
    output_gemms gemms = gemms_of(loss);
    const loss_scratch scratch = scratch_of(b, loss, &gemms);
    const int32_t block = scratch.block;
    double *sums = scratch.sums, total[2] = {0, 0};
    float *logits = scratch.logits;
    if (b->dry_run) {
        run_gemm(b, gemms.up, width, false, nm_mat_of(logits, block, loss->weight.rows));
        NM_SIMD(nm_add_column_sums)
        (b, nm_mat_of(logits, nm_min_i32(block, LOSS_ROWS), loss->weight.rows), NULL);
        return;
    }
    loss_call call = prepare_loss(b, loss);
    if (scratch.packed)
        pack_weight(b, loss, scratch.packed, scratch.packed_up, &gemms);
    for (int32_t first = 0; first < tokens; first += block) {
        int32_t rows = nm_min_i32(tokens - first, block);
        gemms.up.a = nm_row(loss->hidden, first);
        run_gemm(b, gemms.up, width, false, nm_mat_of(logits, rows, call.words));
        const nm_shares shares = nm_shares_of_blocks(b, b->threads, rows);
#pragma omp parallel num_threads(b->threads)
        for (int32_t i; (i = nm_shares_take(&shares, omp_get_thread_num())) >= 0;)
            loss_row(&call, loss->targets[first + i], logits + (size_t)i * (size_t)call.words, sums + 2 * i);
        for (int32_t i = 0; i < 2 * rows; i++)
            total[i % 2] += sums[i];
        grad_block(b, loss, gemms.down, first, rows, logits);
    }
    for (int i = 0; i < 2; i++)
        loss->sums[i] = (loss->add_sums ? loss->sums[i] : 0) + total[i];
}

static void log_softmax_row(int32_t n, const float *x, const float *mask, float *y, float *work)
{
    double all;
    memcpy(work, x, (size_t)n * sizeof(float));
    float top = prepare_row(n, NULL, mask, work, &all);
    float lse = (float)((double)top + log(exp_row(n, top, work, false)));
    for (int32_t j = 0; j < n; j += NM_W) {
        vf z = v_sub(v_load_upto(x + j, n - j), v_set(lse));
        if (mask) {
            vf hidden = v_load_upto(mask + j, n - j);
            z = v_add(v_keep_above(hidden, v_set(-1), z), hidden);
        }
        v_store_upto(y + j, n - j, z);
    }
}

static void log_softmax(nm_backend *b, const nm_log_softmax_args *args)
{
    const nm_mat x = args->x, y = args->y;
    NM_ASSERT(nm_same_shape(x, y));
    int32_t count, threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
    const float *mask = mask_words(b, args->allowed, x.cols, &count);
    size_t floats = (size_t)nm_round_up(x.cols, 16);
    float *work = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
        float *local = work + (size_t)omp_get_thread_num() * floats;
#pragma omp for schedule(static)
        for (int32_t i = 0; i < x.rows; i++)
            log_softmax_row(x.cols, nm_row(x, i), mask, nm_row(y, i), local);
    }
}

/* Computes the maximum of each chunk of a row; returns the maximum of the row. NaN may be ignored. */
static float chunk_maxima(int32_t n, const float *x, float *maxima)
{
    float largest = -INFINITY;
    for (int32_t first = 0; first < n; first += MAX_CHUNK, maxima++) {
        if (first + MAX_CHUNK <= n) {
            vf a = v_max(v_load(x + first), v_load(x + first + NM_W));
            vf b = v_max(v_load(x + first + 2 * NM_W), v_load(x + first + 3 * NM_W));
            *maxima = v_largest(v_max(a, b));
        } else {
            *maxima = -INFINITY;
            for (int32_t j = first; j < n; j++)
                *maxima = x[j] > *maxima ? x[j] : *maxima;
        }
        largest = *maxima > largest ? *maxima : largest;
    }
    return largest;
}

/* Inserts a value and its column into the k best ones found so far, after equal values. */
NM_INLINE void insert_best(float value, int32_t column, int32_t k, int32_t *found, float *best,
                           int32_t *where)
{
    if (*found == k && !(value > best[k - 1]))
        return;
    int32_t at = *found < k ? (*found)++ : k - 1;
    for (; at > 0 && value > best[at - 1]; at--) {
        best[at] = best[at - 1];
        where[at] = where[at - 1];
    }
    best[at] = value;
    where[at] = column;
}

/* The k largest values in descending order; of equal values, the smaller column comes first. The k-th largest
 * chunk maximum is a lower bound of the k-th largest value, so values below it are skipped. */
static void top_k_row(int32_t n, const float *x, const float *maxima, int32_t k, float *best, int32_t *where)
{
    int32_t found = 0, chunks = nm_ceil_div(n, MAX_CHUNK);
    for (int32_t i = 0; i < chunks; i++)
        insert_best(maxima[i], 0, k, &found, best, where);
    const float bound = found == k ? best[k - 1] : -INFINITY;
    found = 0;
    for (int32_t i = 0; i < chunks; i++) {
        int32_t first = i * MAX_CHUNK, end = nm_min_i32(n, first + MAX_CHUNK);
        if (!(maxima[i] >= bound))
            continue;
        for (int32_t j = first; j < end; j += NM_W) {
            int32_t stop = nm_min_i32(end, j + NM_W);
            if (stop == j + NM_W && !v_any_from(v_load(x + j), v_set(bound)))
                continue;
            for (int32_t c = j; c < stop; c++)
                if (x[c] >= bound)
                    insert_best(x[c], c, k, &found, best, where);
        }
    }
    for (; found < k; found++) { /* only if the row contains NaN */
        best[found] = NAN;
        where[found] = 0;
    }
}

/* Scratch for the chunk maxima of a row, per thread. */
static float *maxima_scratch(nm_backend *b, int32_t threads, int32_t cols, size_t *stride)
{
    *stride = (size_t)nm_round_up(nm_ceil_div(cols, MAX_CHUNK), 16);
    return nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * *stride * sizeof(float));
}

static void log_top_k(nm_backend *b, const nm_log_top_k_args *args)
{
    const nm_mat x = args->x;
    const int32_t k = args->k, also = args->also;
    NM_ASSERT(k > 0 && k <= x.cols && also >= 0 && also < x.cols);
    size_t stride;
    int32_t count, threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
    float *scratch = maxima_scratch(b, threads, x.cols, &stride);
    const float *mask = mask_words(b, args->allowed, x.cols, &count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < x.rows; i++) {
        float *row = nm_row(x, i), *best = (float *)args->values + (size_t)i * (size_t)k;
        float *maxima = scratch + (size_t)omp_get_thread_num() * stride;
        double all;
        if (mask)
            prepare_row(x.cols, NULL, mask, row, &all);
        float top = chunk_maxima(x.cols, row, maxima),
              lse = args->ready ? 0 : (float)((double)top + log(exp_row(x.cols, top, row, false)));
        top_k_row(x.cols, row, maxima, k, best, args->columns + (size_t)i * (size_t)k);
        for (int32_t j = 0; j < k; j++)
            best[j] -= lse;
        ((float *)args->also_values)[i] = row[also] - lse;
        if (args->given)
            ((float *)args->given_values)[i] =
                args->given[i] == NM_TARGET_IGNORED ? 0 : row[args->given[i]] - lse;
    }
}

void NM_SIMD(nm_cpu_loss)(nm_kernels *k)
{
    k->softmax_loss = softmax_loss;
    k->log_softmax = log_softmax;
    k->log_top_k = log_top_k;
}
