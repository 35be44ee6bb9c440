/* Soft-max over the vocabulary: the smoothed loss with its gradients, log probabilities, the best words. The
 * loss goes through the tokens in blocks, so that the logits of a batch never exist as a whole. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel.h"

#include <omp.h>

enum {
    LOGIT_BYTES = 64 << 20, /* most memory for one block of logits */
    LOSS_ROWS = 512,        /* rows of a block where that allows */
    CHUNK = 32 * NM_W,      /* columns summed in float before they join a sum in double */
    STRETCH = 4 * NM_W      /* columns whose largest is known before any of them is looked at */
};

/* The target distribution: `base` for every allowed word, and `peak` more for the target. */
typedef struct loss_call {
    const nm_softmax_loss_args *loss;
    const float *bias;
    const float *mask; /* 0, or -inf for words not allowed; NULL: all allowed */
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

/* x += bias, -inf where masked. Returns the largest; *sum gets the sum of the allowed. */
static float prepare_row(int32_t n, const float *bias, const float *mask, float *x, double *sum)
{
    vf top = v_set(-INFINITY);
    *sum = 0;
    for (int32_t first = 0; first < n; first += CHUNK) {
        int32_t end = nm_at_most(n, first + CHUNK);
        vf part = v_set(0);
        for (int32_t j = first; j < end; j += NM_W) {
            vf z = v_load_upto(x + j, end - j);
            if (bias)
                z = v_add(z, v_load_upto(bias + j, end - j));
            if (mask) {
                vf hidden = v_load_upto(mask + j, end - j);
                part = v_add(part, v_keep_above(hidden, v_set(-1), z));
                z = v_add(v_keep_above(hidden, v_set(-1), z), hidden);
            } else {
                part = v_add(part, z);
            }
            v_store_upto(x + j, end - j, z);
            if (end - j >= NM_W) {
                top = v_max(top, z);
            } else {
                float rest[NM_W];
                v_store(rest, z);
                for (int32_t i = 0; i < end - j; i++)
                    top = v_max(top, v_set(rest[i]));
            }
        }
        *sum += v_sum(part);
    }
    return v_largest(top);
}

/* The sum of e^(x - top), which x becomes when it is kept. */
NM_INLINE double exp_row(int32_t n, float top, float *x, const bool keep)
{
    double sum = 0;
    for (int32_t first = 0; first < n; first += CHUNK) {
        int32_t end = nm_at_most(n, first + CHUNK);
        vf part = v_set(0);
        for (int32_t j = first; j < end; j += NM_W) {
            vf e = v_exp(v_sub(v_load_upto(x + j, end - j), v_set(top)));
            if (end - j < NM_W)
                e = v_first(e, end - j);
            part = v_add(part, e);
            if (keep)
                v_store_upto(x + j, end - j, e);
        }
        sum += v_sum(part);
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

/* The loss of one token, and its logits overwritten by their gradient:
 *     peak (-lp_t) + base sum_v (-lp_v)        grad_scale (softmax - base - peak [v = t]),  0 for words not
 * allowed and for ignored targets */
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

static nm_gemm product(bool ta, bool tb, const float *a, size_t lda, const float *bm, size_t ldb)
{
    return (nm_gemm){.ta = ta, .tb = tb, .alpha = 1, .a = a, .b = bm, .lda = lda, .ldb = ldb};
}

static void run_product(nm_backend *b, nm_gemm work, int32_t rows, int32_t cols, int32_t depth, bool add,
                        float *c, int32_t ldc)
{
    work.rows = rows;
    work.cols = cols;
    work.depth = depth;
    work.add = add;
    work.c = c;
    work.ldc = (size_t)ldc;
    NM_SIMD(nm_gemm_run)(b, &work);
}

/* The products with the weight of the output layer: of hidden vectors to logits, and of the logits' gradients back. */
typedef struct output_products {
    nm_gemm up, down;
} output_products;

/* With several blocks of rows the weight is packed once for all of them. */
static output_products take_products(nm_backend *b, const nm_softmax_loss_args *loss, bool several)
{
    int32_t words = loss->weight.rows, width = loss->weight.cols;
    const float *weight = loss->weight.data;
    size_t stride = (size_t)loss->weight.stride;
    output_products p = {product(false, true, NULL, (size_t)loss->hidden.stride, weight, stride),
                         product(false, false, NULL, (size_t)words, weight, stride)};
    p.up.cols = p.down.depth = words;
    p.up.depth = p.down.cols = width;
    if (!several)
        return p;
    size_t up_bytes = NM_SIMD(nm_gemm_pack)(b, &p.up, NULL);
    size_t down_bytes = loss->d_hidden ? NM_SIMD(nm_gemm_pack)(b, &p.down, NULL) : 0;
    float *packed = nm_backend_scratch(b, NM_CPU_PACKED, up_bytes + down_bytes);
    NM_SIMD(nm_gemm_pack)(b, &p.up, packed);
    p.up.packed = packed;
    if (loss->d_hidden) {
        packed += up_bytes / sizeof(float);
        NM_SIMD(nm_gemm_pack)(b, &p.down, packed);
        p.down.packed = packed;
    }
    return p;
}

/* Gradients of a block of rows from those of its logits. */
static void push_block(nm_backend *b, const nm_softmax_loss_args *loss, nm_gemm down, int32_t first,
                       int32_t rows, const float *logits)
{
    int32_t words = loss->weight.rows, width = loss->weight.cols;
    const float *hidden = nm_row(loss->hidden, first);
    down.a = logits;
    nm_gemm across = product(true, false, logits, (size_t)words, hidden, (size_t)loss->hidden.stride);
    if (loss->d_hidden)
        run_product(b, down, rows, width, words, false,
                    (float *)loss->d_hidden + (size_t)first * (size_t)width, width);
    if (loss->d_weight)
        run_product(b, across, words, width, rows, true, loss->d_weight, width);
    if (loss->d_bias)
        NM_SIMD(nm_add_column_sums)(b, nm_mat_of((void *)(uintptr_t)logits, rows, words), loss->d_bias);
}

static loss_call prepare(nm_backend *b, const nm_softmax_loss_args *loss)
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
    loss_call call = prepare(b, loss);
    int32_t most = (int32_t)(LOGIT_BYTES / sizeof(float)) / call.words;
    int32_t block = nm_at_most(LOSS_ROWS, most < 1 ? 1 : most);
    block = nm_at_most(block, tokens > 0 ? tokens : 1);
    size_t sum_bytes = (size_t)nm_round_up(block, 4) * 2 * sizeof(double);
    double *sums =
        nm_backend_scratch(b, NM_CPU_BLOCK, sum_bytes + (size_t)block * (size_t)call.words * sizeof(float));
    float *logits = (float *)(void *)(sums + sum_bytes / sizeof(double));
    output_products products = take_products(b, loss, tokens > block);
    double total[2] = {0, 0};
    for (int32_t first = 0; first < tokens; first += block) {
        int32_t rows = nm_at_most(tokens - first, block);
        products.up.a = nm_row(loss->hidden, first);
        run_product(b, products.up, rows, call.words, width, false, logits, call.words);
#pragma omp parallel for num_threads(b->threads) schedule(dynamic, 4)
        for (int32_t i = 0; i < rows; i++)
            loss_row(&call, loss->targets[first + i], logits + (size_t)i * (size_t)call.words, sums + 2 * i);
        for (int32_t i = 0; i < 2 * rows; i++)
            total[i % 2] += sums[i];
        push_block(b, loss, products.down, first, rows, logits);
    }
    loss->sums[0] = total[0];
    loss->sums[1] = total[1];
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
        float *mine = work + (size_t)omp_get_thread_num() * floats;
#pragma omp for schedule(static)
        for (int32_t i = 0; i < x.rows; i++)
            log_softmax_row(x.cols, nm_row(x, i), mask, nm_row(y, i), mine);
    }
}

/* The largest of each STRETCH columns of a row, and of all. A NaN may be passed over. */
static float find_tops(int32_t n, const float *x, float *tops)
{
    float largest = -INFINITY;
    for (int32_t first = 0; first < n; first += STRETCH, tops++) {
        if (first + STRETCH <= n) {
            vf a = v_max(v_load(x + first), v_load(x + first + NM_W));
            vf b = v_max(v_load(x + first + 2 * NM_W), v_load(x + first + 3 * NM_W));
            *tops = v_largest(v_max(a, b));
        } else {
            *tops = -INFINITY;
            for (int32_t j = first; j < n; j++)
                *tops = x[j] > *tops ? x[j] : *tops;
        }
        largest = *tops > largest ? *tops : largest;
    }
    return largest;
}

/* A value and its column among the best found so far, behind those that are equal. */
NM_INLINE void keep_best(float value, int32_t column, int32_t k, int32_t *found, float *best, int32_t *where)
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

/* The k largest in descending order, ties to the smaller column. The k-th largest of the stretches' tops is no more than
 * the k-th largest of all, so only what reaches it is looked at. */
static void top_k_row(int32_t n, const float *x, const float *tops, int32_t k, float *best, int32_t *where)
{
    int32_t found = 0, stretches = nm_pieces(n, STRETCH);
    for (int32_t i = 0; i < stretches; i++)
        keep_best(tops[i], 0, k, &found, best, where);
    const float bound = found == k ? best[k - 1] : -INFINITY;
    found = 0;
    for (int32_t i = 0; i < stretches; i++) {
        int32_t first = i * STRETCH, end = nm_at_most(n, first + STRETCH);
        if (!(tops[i] >= bound))
            continue;
        for (int32_t j = first; j < end; j += NM_W) {
            int32_t stop = nm_at_most(end, j + NM_W);
            if (stop == j + NM_W && !v_any_from(v_load(x + j), v_set(bound)))
                continue;
            for (int32_t c = j; c < stop; c++)
                if (x[c] >= bound)
                    keep_best(x[c], c, k, &found, best, where);
        }
    }
    for (; found < k; found++) { /* only with NaN */
        best[found] = NAN;
        where[found] = 0;
    }
}

/* Scratch for the tops of a row, per thread. */
static float *take_tops(nm_backend *b, int32_t threads, int32_t cols, size_t *stride)
{
    *stride = (size_t)nm_round_up(nm_pieces(cols, STRETCH), 16);
    return nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * *stride * sizeof(float));
}

static void top_k(nm_backend *b, const nm_top_k_args *args)
{
    const nm_mat x = args->x;
    const int32_t k = args->k;
    NM_ASSERT(k >= 0 && k <= x.cols);
    float *best = args->values;
    size_t stride;
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
    float *scratch = take_tops(b, threads, x.cols, &stride);
    if (k == 0)
        return;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < x.rows; i++) {
        float *tops = scratch + (size_t)omp_get_thread_num() * stride;
        find_tops(x.cols, nm_row(x, i), tops);
        top_k_row(x.cols, nm_row(x, i), tops, k, best + (size_t)i * (size_t)k,
                  args->columns + (size_t)i * (size_t)k);
    }
}

static void log_top_k(nm_backend *b, const nm_log_top_k_args *args)
{
    const nm_mat x = args->x;
    const int32_t k = args->k, also = args->also;
    NM_ASSERT(k > 0 && k <= x.cols && also >= 0 && also < x.cols);
    size_t stride;
    int32_t count, threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
    float *scratch = take_tops(b, threads, x.cols, &stride);
    const float *mask = mask_words(b, args->allowed, x.cols, &count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < x.rows; i++) {
        float *row = nm_row(x, i), *best = (float *)args->values + (size_t)i * (size_t)k;
        float *tops = scratch + (size_t)omp_get_thread_num() * stride;
        double all;
        if (mask)
            prepare_row(x.cols, NULL, mask, row, &all);
        float top = find_tops(x.cols, row, tops),
              lse = (float)((double)top + log(exp_row(x.cols, top, row, false)));
        top_k_row(x.cols, row, tops, k, best, args->columns + (size_t)i * (size_t)k);
        for (int32_t j = 0; j < k; j++)
            best[j] -= lse;
        ((float *)args->also_values)[i] = row[also] - lse;
    }
}

void NM_SIMD(nm_cpu_loss)(nm_kernels *k)
{
    k->softmax_loss = softmax_loss;
    k->log_softmax = log_softmax;
    k->top_k = top_k;
    k->log_top_k = log_top_k;
}
