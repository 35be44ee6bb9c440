/* Scaled dot-product attention of single queries over a gathered KV cache, for decoding. The cache is float
 * or bf16; all sums are float, in the same order. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/relative.h"
#include "backend/cpu/shares.h"

#include <omp.h>

/* Masks the scores from n_keys up to whole vectors with -inf. */
static void mask_tail(float *row, int32_t n_keys, int32_t keys)
{
    for (int32_t j = n_keys; j < keys; j++)
        row[j] = -INFINITY;
}

static float row_max(const float *row, int32_t keys)
{
    vf top = v_set(-INFINITY);
    for (int32_t j = 0; j < keys; j += NM_W)
        top = v_max(top, v_load(row + j));
    return v_largest(top);
}

/* Softmax in place. Sets *top to the largest score, 0 without keys. Returns the sum of e^(score - top). */
static double softmax_in_place(float *row, int32_t n_keys, int32_t keys, float *top)
{
    mask_tail(row, n_keys, keys);
    *top = n_keys ? row_max(row, keys) : 0;
    vf sums[NM_SUM_VECTORS] = {{0}};
#define EXP(i, j, count)                                                                                     \
    do {                                                                                                     \
        vf e = v_exp(v_sub(v_load(row + (j)), v_set(*top)));                                                 \
        sums[i] = v_add(sums[i], e);                                                                         \
        v_store(row + (j), e);                                                                               \
    } while (0)
    NM_SUM_COLUMNS(keys, EXP);
#undef EXP
    double sum = v_sum_lanes(sums);
    vf factor = v_set(n_keys ? (float)(1 / sum) : 0);
    for (int32_t j = 0; j < keys; j += NM_W)
        v_store(row + j, v_mul(factor, v_load(row + j)));
    return sum;
}

/* Numbers of keys and of output vectors per inner loop: they fit the registers and hide the latency of
 * additions. */
enum { KEYS_AT_ONCE = 4, SUM_VECTORS = 8, CACHE_LINE = 64 };

typedef struct cached_attention {
    const nm_attention_cached_args *args;
    int32_t width, v_width; /* of a head */
    int32_t group;          /* number of query heads that read the same key and value head */
    int32_t heads_at_once;  /* number of heads whose values are summed in one loop */
    int32_t n_heads;        /* of a task: all, unless there are too few queries for all threads */
    size_t stride;          /* between the softmax weights of two heads */
} cached_attention;

/* The heads from `head` on of a query, which attends to the n rows of a list. n = 0 after the last task. */
typedef struct cached_task {
    int32_t query, head, n;
    const int32_t *rows;
} cached_task;

static cached_task task_at(const cached_attention *call, int32_t i)
{
    const int32_t tasks = call->args->heads / call->n_heads, query = i / tasks;
    if (query >= call->args->q.rows)
        return (cached_task){0};
    const int32_t *offsets = call->args->offsets + query;
    return (cached_task){query, i % tasks * call->n_heads, offsets[1] - offsets[0],
                         call->args->rows + offsets[0]};
}

/* Element (row, col) of keys or values. */
NM_INLINE const void *cache_at(nm_mat m, int32_t row, size_t col, const bool bf16)
{
    size_t i = (size_t)row * (size_t)m.stride + col;
    return (const char *)m.data + i * (bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* The values of the elements i .. i + count - 1, in float. */
NM_INLINE vf cache_load(const void *from, int32_t i, int32_t count, const bool bf16)
{
    return bf16 ? v_load_bf16_upto((const uint16_t *)from + i, count)
                : v_load_upto((const float *)from + i, count);
}

/* Prefetches columns of the j-th row that a task reads, if there is one. */
NM_INLINE void cache_prefetch(nm_mat m, const cached_task *task, int32_t j, size_t first_col, int32_t cols,
                              const bool bf16)
{
    const size_t bytes = (size_t)cols * (bf16 ? sizeof(uint16_t) : sizeof(float));
    if (j < task->n)
        for (size_t i = 0; i < bytes; i += CACHE_LINE)
            __builtin_prefetch((const char *)cache_at(m, task->rows[j], first_col, bf16) + i);
}

/* scores[i] = q . key i for KEYS_AT_ONCE keys; full: the width is a multiple of NM_W */
NM_INLINE void score_keys(const float *q, const void *const *keys, int32_t width, const bool full,
                          const bool bf16, float *scores)
{
    vf sums[KEYS_AT_ONCE][NM_SUM_VECTORS] = {{{0}}};
#define DOT(i, j, count)                                                                                     \
    do {                                                                                                     \
        const int32_t lanes = full ? NM_W : (count);                                                         \
        vf part = v_load_upto(q + (j), lanes);                                                               \
        for (int k = 0; k < KEYS_AT_ONCE; k++)                                                               \
            sums[k][i] = v_fma(part, cache_load(keys[k], j, lanes, bf16), sums[k][i]);                       \
    } while (0)
    NM_SUM_COLUMNS(width, DOT);
#undef DOT
    v_sums(sums, scores);
}

/* scores[j] = q . key j of a head for j .. j + KEYS_AT_ONCE - 1. After the last key, it is repeated; the
 * scores of the repeated ones are overwritten by the softmax. The same columns of the values are
 * prefetched. */
NM_INLINE void score_head(const cached_attention *call, const cached_task *task, int32_t head, int32_t j,
                          const bool bf16, float *scores)
{
    const nm_mat k = call->args->k, v = call->args->v;
    const size_t first_col = (size_t)(head / call->group) * (size_t)call->width;
    const float *q = nm_row(call->args->q, task->query) + (size_t)head * (size_t)call->width;
    const void *keys[KEYS_AT_ONCE];
    for (int32_t i = 0; i < KEYS_AT_ONCE; i++) {
        keys[i] = cache_at(k, task->rows[nm_min_i32(j + i, task->n - 1)], first_col, bf16);
        cache_prefetch(v, task, j + i, first_col, call->width, bf16);
    }
    if (call->width % NM_W == 0)
        score_keys(q, keys, call->width, true, bf16, scores + j);
    else
        score_keys(q, keys, call->width, false, bf16, scores + j);
}

static void softmax_cached(float scale, float *scores, int32_t n)
{
    for (int32_t j = 0; j < n; j += NM_W)
        v_store(scores + j, v_mul(v_set(scale), v_load(scores + j)));
    float top;
    softmax_in_place(scores, n, nm_round_up(n, NM_W), &top);
}

/* Columns from first_col on of the values that a task reads. */
typedef struct gathered_values {
    const cached_attention *call;
    const cached_task *task, *next; /* next: the same columns of its keys are prefetched */
    bool bf16;
    size_t first_col;
} gathered_values;

/* Computes `count` vectors of out = sum_j weight_j v_j over the cached rows. Each `per_head` vectors belong
 * to a head; the weights of the next head begin `stride` later. The last vector has `last` columns. shared:
 * all heads have the same values. */
NM_INLINE void weighted_sum_vectors(const gathered_values from, const float *weights, size_t stride,
                                    const int per_head, const int count, const bool shared, int32_t last,
                                    float *out)
{
    const nm_mat v = from.call->args->v, k = from.call->args->k;
    const int32_t cols = (shared ? per_head : count) * NM_W;
    vf sum[SUM_VECTORS];
    for (int i = 0; i < count; i++)
        sum[i] = v_set(0);
    for (int32_t j = 0; j < from.task->n; j++) {
        const void *value = cache_at(v, from.task->rows[j], from.first_col, from.bf16);
        cache_prefetch(k, from.next, j, from.first_col, cols, from.bf16);
        for (int i = 0; i < count; i++) {
            vf weight = v_set(weights[(size_t)(i / per_head) * stride + (size_t)j]);
            int32_t first = (shared ? i % per_head : i) * NM_W, columns = i < count - 1 ? NM_W : last;
            sum[i] = v_fma(weight, cache_load(value, first, columns, from.bf16), sum[i]);
        }
    }
    for (int i = 0; i < count - 1; i++)
        v_store(out + i * NM_W, sum[i]);
    v_store_upto(out + (count - 1) * NM_W, last, sum[count - 1]);
}

/* One head of `width` columns. */
NM_INLINE void weighted_sum_head(gathered_values from, const float *weights, int32_t width, float *out)
{
    for (int32_t columns; width > 0; width -= columns, from.first_col += (size_t)columns, out += columns) {
        int vectors = width >= SUM_VECTORS * NM_W ? SUM_VECTORS
                      : width >= 4 * NM_W         ? 4
                      : width > NM_W              ? 2
                                                  : 1;
        columns = nm_min_i32(width, vectors * NM_W);
        int32_t last = columns - (vectors - 1) * NM_W;
        if (vectors == SUM_VECTORS)
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, SUM_VECTORS, false, NM_W, out);
        else if (vectors == 4)
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, 4, false, NM_W, out);
        else if (vectors == 2)
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, 2, false, last, out);
        else
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, 1, false, last, out);
    }
}

/* Number of heads whose results fill SUM_VECTORS vectors, or 1. n_heads: a multiple of it. */
static int32_t heads_per_loop(int32_t v_width, int32_t n_heads)
{
    static const int32_t vectors[] = {1, 2, 4};
    for (int i = 0; i < 3; i++)
        if (v_width == vectors[i] * NM_W && n_heads % (SUM_VECTORS / vectors[i]) == 0)
            return SUM_VECTORS / vectors[i];
    return 1;
}

/* n_heads of heads_per_loop heads, which have the same values if `shared`. */
NM_INLINE void weighted_sum_heads(gathered_values from, const float *weights, size_t stride, int32_t n_heads,
                                  const bool shared, float *out)
{
    if (n_heads == SUM_VECTORS)
        weighted_sum_vectors(from, weights, stride, 1, SUM_VECTORS, shared, NM_W, out);
    else if (n_heads == SUM_VECTORS / 2)
        weighted_sum_vectors(from, weights, stride, 2, SUM_VECTORS, shared, NM_W, out);
    else
        weighted_sum_vectors(from, weights, stride, 4, SUM_VECTORS, shared, NM_W, out);
}

/* out of heads_at_once heads from `head` on. */
NM_INLINE void weighted_sum_cached(const cached_attention *call, const cached_task *task,
                                   const cached_task *next, int32_t head, const float *weights,
                                   const bool bf16)
{
    const size_t width = (size_t)call->v_width;
    const gathered_values from = {call, task, next, bf16, (size_t)(head / call->group) * width};
    float *out = nm_row(call->args->out, task->query) + (size_t)head * width;
    if (call->heads_at_once == 1)
        weighted_sum_head(from, weights, call->v_width, out);
    else if (call->group == 1)
        weighted_sum_heads(from, weights, call->stride, call->heads_at_once, false, out);
    else
        weighted_sum_heads(from, weights, call->stride, call->heads_at_once, true, out);
}

/* One task; weights: workspace, [n_heads, stride]. The heads are in the inner loop, so that the columns of a
 * row are read in order. What the next loop reads is prefetched, because the hardware prefetcher does not
 * predict the rows of a list. */
NM_INLINE void attend_cached(const cached_attention *call, const cached_task *task, const cached_task *next,
                             float *weights, const bool bf16)
{
    for (int32_t j = 0; j < task->n; j += KEYS_AT_ONCE)
        for (int32_t h = 0; h < call->n_heads; h++)
            score_head(call, task, task->head + h, j, bf16, weights + (size_t)h * call->stride);
    for (int32_t h = 0; h < call->n_heads; h++)
        softmax_cached((float)call->args->scale, weights + (size_t)h * call->stride, task->n);
    for (int32_t h = 0; h < call->n_heads; h += call->heads_at_once)
        weighted_sum_cached(call, task, next, task->head + h, weights + (size_t)h * call->stride, bf16);
}

static cached_attention cached_attention_of(const nm_attention_cached_args *args, int32_t threads)
{
    const nm_mat q = args->q, k = args->k, v = args->v, out = args->out;
    const int32_t heads = args->heads, key_heads = args->key_heads ? args->key_heads : heads;
    NM_ASSERT(heads > 0 && key_heads > 0 && heads % key_heads == 0 && q.cols % heads == 0);
    NM_ASSERT(k.cols == q.cols / heads * key_heads && v.cols % key_heads == 0);
    NM_ASSERT(out.rows == q.rows && out.cols == v.cols / key_heads * heads);
    const int32_t group = heads / key_heads, v_width = v.cols / key_heads;
    /* The heads of a loop have different values each, or all of them the same ones. */
    const int32_t at_once = heads_per_loop(v_width, group == 1 ? heads : group);
    int32_t most = 0; /* keys of a query */
    for (int32_t i = 0; i < q.rows; i++) {
        int32_t n = args->offsets[i + 1] - args->offsets[i];
        most = n > most ? n : most;
    }
    return (cached_attention){.args = args,
                              .width = q.cols / heads,
                              .v_width = v_width,
                              .group = group,
                              .heads_at_once = at_once,
                              .n_heads = q.rows < 4 * threads ? at_once : heads,
                              .stride = (size_t)nm_round_up(most, 16) + 16};
}

static void attention_cached(nm_backend *b, const nm_attention_cached_args *args)
{
    const int32_t *offsets = args->offsets, rows = args->q.rows;
    int32_t threads = nm_threads_for(b, (size_t)(offsets[rows] - offsets[0]) * (size_t)args->q.cols);
    const cached_attention call = cached_attention_of(args, threads);
    const size_t floats = call.stride * (size_t)call.n_heads;
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
    const nm_shares shares = nm_shares_of_blocks(b, threads, rows * (args->heads / call.n_heads));
#pragma omp parallel num_threads(threads)
    for (int32_t i; (i = nm_shares_take(&shares, omp_get_thread_num())) >= 0;) {
        float *weights = base + (size_t)omp_get_thread_num() * floats;
        const cached_task task = task_at(&call, i), next = task_at(&call, i + 1);
        if (args->bf16)
            attend_cached(&call, &task, &next, weights, true);
        else
            attend_cached(&call, &task, &next, weights, false);
    }
}

void NM_SIMD(nm_cpu_attention_cached)(nm_kernels *k)
{
    k->attention_cached = attention_cached;
}
