/* Scaled dot-product attention of single queries over a gathered KV cache, for decoding. */
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

/* Numbers of keys and of output vectors per inner loop: they fit the registers and hide the latency of additions. */
enum { KEYS_AT_ONCE = 4, SUM_VECTORS = 8 };

typedef struct cached_attention {
    nm_mat q, k, v, out;
    bool bf16;              /* k and v are bf16 numbers */
    int32_t width, v_width; /* of a head */
    int32_t group;          /* number of query heads that read the same key and value head */
    float scale;
} cached_attention;

/* The heads head .. head + n_heads - 1 of a query, which attends to the n rows of a list. */
typedef struct cached_task {
    int32_t query, head, n_heads;
    const int32_t *rows;
    int32_t n;
    float *weights; /* [n_heads], `stride` apart */
    size_t stride;
} cached_task;

/* Element (row, col) of keys or values. */
NM_INLINE const void *cache_at(nm_mat m, int32_t row, size_t col, const bool bf16)
{
    size_t i = (size_t)row * (size_t)m.stride + col;
    return (const char *)m.data + i * (bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* The values of elements i .. i + count - 1. */
NM_INLINE vf cache_load(const void *from, int32_t i, int32_t count, const bool bf16)
{
    return bf16 ? v_load_bf16_upto((const uint16_t *)from + i, count)
                : v_load_upto((const float *)from + i, count);
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

/* Sets scores[j] = q . key j for the n keys of a head. The last key is repeated up to a multiple of KEYS_AT_ONCE; the scores of
 * the repeated ones are overwritten by the softmax. */
NM_INLINE void score_cached(const cached_attention *call, const cached_task *task, int32_t head,
                            const bool bf16, float *scores)
{
    size_t first_col = (size_t)(head / call->group) * (size_t)call->width;
    const float *q = nm_row(call->q, task->query) + (size_t)head * (size_t)call->width;
    for (int32_t j = 0; j < task->n; j += KEYS_AT_ONCE) {
        const void *keys[KEYS_AT_ONCE];
        for (int32_t i = 0; i < KEYS_AT_ONCE; i++)
            keys[i] = cache_at(call->k, task->rows[nm_min_i32(j + i, task->n - 1)], first_col, bf16);
        if (call->width % NM_W == 0)
            score_keys(q, keys, call->width, true, bf16, scores + j);
        else
            score_keys(q, keys, call->width, false, bf16, scores + j);
    }
}

static void softmax_cached(float scale, float *scores, int32_t n)
{
    for (int32_t j = 0; j < n; j += NM_W)
        v_store(scores + j, v_mul(v_set(scale), v_load(scores + j)));
    float top;
    softmax_in_place(scores, n, nm_round_up(n, NM_W), &top);
}

/* Columns from first_col on of the values that a query attends to. */
typedef struct gathered_values {
    nm_mat v;
    bool bf16;
    const int32_t *rows;
    int32_t n;
    size_t first_col;
} gathered_values;

/* Computes `count` vectors of out = sum_j weight_j v_j over the cached rows. Each `per_head` vectors belong to a head; the weights
 * of the next head begin `stride` later. The last vector has `last` columns. shared: all heads have the same values. */
NM_INLINE void weighted_sum_vectors(const gathered_values from, const float *weights, size_t stride,
                                    const int per_head, const int count, const bool shared, int32_t last,
                                    float *out)
{
    vf sum[SUM_VECTORS];
    for (int i = 0; i < count; i++)
        sum[i] = v_set(0);
    for (int32_t j = 0; j < from.n; j++) {
        const void *value = cache_at(from.v, from.rows[j], from.first_col, from.bf16);
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
static int32_t heads_per_task(int32_t v_width, int32_t n_heads)
{
    static const int32_t vectors[] = {1, 2, 4};
    for (int i = 0; i < 3; i++)
        if (v_width == vectors[i] * NM_W && n_heads % (SUM_VECTORS / vectors[i]) == 0)
            return SUM_VECTORS / vectors[i];
    return 1;
}

/* n_heads of heads_per_task heads, which have the same values if `shared`. */
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

NM_INLINE void weighted_sum_cached(const cached_attention *call, const cached_task *task, const bool bf16)
{
    size_t head = (size_t)task->head, width = (size_t)call->v_width;
    gathered_values from = {call->v, bf16, task->rows, task->n, head / (size_t)call->group * width};
    float *out = nm_row(call->out, task->query) + head * width;
    if (task->n_heads == 1)
        weighted_sum_head(from, task->weights, call->v_width, out);
    else
        weighted_sum_heads(from, task->weights, task->stride, task->n_heads, call->group > 1, out);
}

NM_INLINE void attend_cached(const cached_attention *call, const cached_task *task, const bool bf16)
{
    for (int32_t h = 0; h < task->n_heads; h++)
        score_cached(call, task, task->head + h, bf16, task->weights + (size_t)h * task->stride);
    for (int32_t h = 0; h < task->n_heads; h++)
        softmax_cached(call->scale, task->weights + (size_t)h * task->stride, task->n);
    weighted_sum_cached(call, task, bf16);
}

static void attention_cached(nm_backend *b, const nm_attention_cached_args *args)
{
    const nm_mat q = args->q, k = args->k, v = args->v, out = args->out;
    const int32_t *offsets = args->offsets, heads = args->heads;
    const int32_t key_heads = args->key_heads ? args->key_heads : heads;
    NM_ASSERT(heads > 0 && key_heads > 0 && heads % key_heads == 0 && q.cols % heads == 0);
    NM_ASSERT(k.cols == q.cols / heads * key_heads && v.cols % key_heads == 0);
    NM_ASSERT(out.rows == q.rows && out.cols == v.cols / key_heads * heads);
    cached_attention call = {
        q, k, v, out, args->bf16, q.cols / heads, v.cols / key_heads, heads / key_heads, (float)args->scale};
    /* The heads of a task have different values each, or all of them the same ones. */
    int32_t n_heads = heads_per_task(call.v_width, call.group == 1 ? heads : call.group);
    int32_t tasks = heads / n_heads, most = 0;
    for (int32_t i = 0; i < q.rows; i++)
        most = offsets[i + 1] - offsets[i] > most ? offsets[i + 1] - offsets[i] : most;
    int32_t threads = nm_threads_for(b, (size_t)(offsets[q.rows] - offsets[0]) * (size_t)q.cols);
    size_t stride = (size_t)nm_round_up(most, 16) + 16, floats = stride * (size_t)n_heads;
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
    const nm_shares shares = nm_shares_of_blocks(b, threads, q.rows * tasks);
#pragma omp parallel num_threads(threads)
    for (int32_t i; (i = nm_shares_take(&shares, omp_get_thread_num())) >= 0;) {
        int32_t query = i / tasks, first = offsets[query], n = offsets[query + 1] - first;
        float *weights = base + (size_t)omp_get_thread_num() * floats;
        const cached_task task = {query, i % tasks * n_heads, n_heads, args->rows + first, n, weights,
                                  stride};
        if (call.bf16)
            attend_cached(&call, &task, true);
        else
            attend_cached(&call, &task, false);
    }
}

void NM_SIMD(nm_cpu_attention_cached)(nm_kernels *k)
{
    k->attention_cached = attention_cached;
}
