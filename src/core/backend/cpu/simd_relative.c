/* Attention with relative positions (TENER), see nm_relative_attention_args; formulas in
 * ref_relative.inc. A thread computes a pair of sequence and head, one query at a time: sentences are
 * short, so a row of scores with its keys and distances fits L1. */
#include "backend/cpu/relative.h"

#include <omp.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/shares.h"

typedef struct relative {
    const nm_relative_attention_args *call;
    const nm_relative_attention_grad_args *grad; /* NULL: forward */
    nm_drop drop;
    int32_t width; /* columns of one head */
    float *lse;
    /* backward: [pairs of sequence and head][2 * width]: sums for d_key_bias and d_distance_bias */
    double *biases;
} relative;

/* One sequence and head (m queries from row q0 on, n keys from row k0 on), and the workspace of the
 * thread. */
typedef struct pair {
    int32_t head, q0, m, k0, n;
    float *qa, *qb; /* q_i + a, q_i + b */
    float *scores, *factors;
} pair;

static float *head_row(nm_mat m, int32_t row, int32_t head, int32_t width)
{
    return nm_row(m, row) + (size_t)head * (size_t)width;
}

static const float *distance_row(const relative *r, int32_t distance)
{
    return nm_row(r->call->positions, r->call->zero_row + distance);
}

/* q_i + a and q_i + b */
static void shift_query(const relative *r, const pair *at, int32_t i)
{
    const float *q = head_row(r->call->q, at->q0 + i, at->head, r->width);
    const float *a = (const float *)r->call->key_bias + (size_t)at->head * (size_t)r->width;
    const float *d = (const float *)r->call->distance_bias + (size_t)at->head * (size_t)r->width;
#define SHIFT(c, count)                                                                                      \
    do {                                                                                                     \
        vf x_ = v_load_upto(q + (c), count);                                                                 \
        v_store_upto(at->qa + (c), count, v_add(x_, v_load_upto(a + (c), count)));                           \
        v_store_upto(at->qb + (c), count, v_add(x_, v_load_upto(d + (c), count)));                           \
    } while (0)
    NM_COLUMNS(r->width, SHIFT);
#undef SHIFT
}

/* Scores of query i with all keys. */
static void score(const relative *r, const pair *at, int32_t i)
{
    shift_query(r, at, i);
    for (int32_t j = 0; j < at->n; j++) {
        const float *k = head_row(r->call->k, at->k0 + j, at->head, r->width);
        const float *r_ji = distance_row(r, j - i), *r_ij = distance_row(r, i - j);
        vf sums[2 * NM_SUM_VECTORS] = {{0}}, *more = sums + NM_SUM_VECTORS;
#define SCORE(i, c, count)                                                                                   \
    do {                                                                                                     \
        vf k_ = v_load_upto(k + (c), count);                                                                 \
        sums[i] = v_fma(v_load_upto(at->qa + (c), count), k_, sums[i]);                                      \
        more[i] = v_fma(v_load_upto(at->qb + (c), count), v_load_upto(r_ji + (c), count), more[i]);          \
        sums[i] = v_fma(k_, v_load_upto(r_ij + (c), count), sums[i]);                                        \
    } while (0)
        NM_SUM_COLUMNS(r->width, SCORE);
#undef SCORE
        for (int v = 0; v < NM_SUM_VECTORS; v++)
            sums[v] = v_add(sums[v], more[v]);
        at->scores[j] = (float)v_sum_lanes(sums);
    }
    for (int32_t j = at->n; j < nm_round_up(at->n, NM_W); j++)
        at->scores[j] = -INFINITY;
}

/* Softmax in place. Returns the log of the denominator, -inf without keys. */
static float softmax_row(float *scores, int32_t n)
{
    vf top = v_set(-INFINITY), sums[NM_SUM_VECTORS] = {{0}};
    for (int32_t j = 0; j < n; j += NM_W)
        top = v_max(top, v_load(scores + j));
    float largest = n ? v_largest(top) : 0;
#define EXP(i, j, count)                                                                                     \
    do {                                                                                                     \
        vf e = v_exp(v_sub(v_load(scores + (j)), v_set(largest)));                                           \
        sums[i] = v_add(sums[i], e);                                                                         \
        v_store(scores + (j), e);                                                                            \
    } while (0)
    NM_SUM_COLUMNS(n, EXP);
#undef EXP
    double sum = v_sum_lanes(sums);
    for (int32_t j = 0; j < n; j += NM_W)
        v_store(scores + j, v_mul(v_set((float)(1 / sum)), v_load(scores + j)));
    return n ? (float)((double)largest + log(sum)) : -INFINITY;
}

static const float *factors_of(const relative *r, const pair *at, int32_t i)
{
    uint32_t row = (uint32_t)at->head * (uint32_t)r->call->q.rows + (uint32_t)(at->q0 + i);
    return r->drop.on ? nm_drop_row(&r->drop, row, 0, at->n, at->factors) : NULL;
}

/* out = sum_j weights_j v_j */
static void weighted_sum(const relative *r, const pair *at, float *out)
{
#define SUM(c, count)                                                                                        \
    do {                                                                                                     \
        vf sum_ = v_set(0);                                                                                  \
        for (int32_t j = 0; j < at->n; j++)                                                                  \
            sum_ =                                                                                           \
                v_fma(v_set(at->scores[j]),                                                                  \
                      v_load_upto(head_row(r->call->v, at->k0 + j, at->head, r->width) + (c), count), sum_); \
        v_store_upto(out + (c), count, sum_);                                                                \
    } while (0)
    NM_COLUMNS(r->width, SUM);
#undef SUM
}

static void forward_pair(const relative *r, const pair *at)
{
    const nm_mat out = r->call->out;
    for (int32_t i = 0; i < at->m; i++) {
        score(r, at, i);
        float lse = softmax_row(at->scores, at->n);
        if (r->lse)
            r->lse[(size_t)at->head * (size_t)out.rows + (size_t)(at->q0 + i)] = lse;
        const float *factors = factors_of(r, at, i);
        for (int32_t j = 0; factors && j < at->n; j++)
            at->scores[j] *= factors[j];
        weighted_sum(r, at, head_row(out, at->q0 + i, at->head, r->width));
    }
}

static float dot(int32_t n, const float *a, const float *b)
{
    vf sums[NM_SUM_VECTORS] = {{0}};
#define DOT(i, c, count) sums[i] = v_fma(v_load_upto(a + (c), count), v_load_upto(b + (c), count), sums[i])
    NM_SUM_COLUMNS(n, DOT);
#undef DOT
    return (float)v_sum_lanes(sums);
}

/* Replaces the scores of query i with ds_j, and adds its contribution to dv_j, with dropout factors f_j and D
 * = out_i . dout_i:
 *     ds_j  = p_j (f_j dout_i . v_j - D)
 *     dv_j += f_j p_j dout_i */
static void grad_scores(const relative *r, const pair *at, int32_t i)
{
    const nm_relative_attention_grad_args *g = r->grad;
    const float *dout = head_row(g->dout, at->q0 + i, at->head, r->width), *factors = factors_of(r, at, i);
    float total = dot(r->width, head_row(r->call->out, at->q0 + i, at->head, r->width), dout);
    vf lse = v_set(r->lse[(size_t)at->head * (size_t)r->call->q.rows + (size_t)(at->q0 + i)]);
    for (int32_t j = 0; j < at->n; j += NM_W)
        v_store(at->scores + j, v_exp(v_sub(v_load(at->scores + j), lse)));
    for (int32_t j = 0; j < at->n; j++) {
        float p = at->scores[j], f = factors ? factors[j] : 1;
        float *dv = head_row(g->dv, at->k0 + j, at->head, r->width);
        at->scores[j] =
            p * (f * dot(r->width, dout, head_row(r->call->v, at->k0 + j, at->head, r->width)) - total);
        vf weight = v_set(f * p);
#define ADD(c, count)                                                                                        \
    v_store_upto(dv + (c), count, v_fma(weight, v_load_upto(dout + (c), count), v_load_upto(dv + (c), count)))
        NM_COLUMNS(r->width, ADD);
#undef ADD
    }
}

/* sums += x, in double; n lanes */
static void add_widened(double *sums, int32_t n, vf x)
{
    float lanes[NM_W];
    v_store(lanes, x);
    for (int32_t i = 0; i < n; i++)
        sums[i] += (double)lanes[i];
}

/* dq_i  = sum_j ds_j (k_j + R_(j-i))
 * dk_j += ds_j (q_i + a + R_(i-j))
 * da   += sum_j ds_j k_j
 * db   += sum_j ds_j R_(j-i) */
static void grad_query_keys(const relative *r, const pair *at, int32_t i, double *biases)
{
    const nm_relative_attention_grad_args *g = r->grad;
    float *dq = head_row(g->dq, at->q0 + i, at->head, r->width);
#define SUMS(c, count)                                                                                       \
    do {                                                                                                     \
        vf keys_ = v_set(0), distances_ = v_set(0), qa_ = v_load_upto(at->qa + (c), count);                  \
        for (int32_t j = 0; j < at->n; j++) {                                                                \
            vf ds_ = v_set(at->scores[j]);                                                                   \
            float *dk_ = head_row(g->dk, at->k0 + j, at->head, r->width) + (c);                              \
            const float *k_ = head_row(r->call->k, at->k0 + j, at->head, r->width) + (c);                    \
            keys_ = v_fma(ds_, v_load_upto(k_, count), keys_);                                               \
            distances_ = v_fma(ds_, v_load_upto(distance_row(r, j - i) + (c), count), distances_);           \
            v_store_upto(dk_, count,                                                                         \
                         v_fma(ds_, v_add(qa_, v_load_upto(distance_row(r, i - j) + (c), count)),            \
                               v_load_upto(dk_, count)));                                                    \
        }                                                                                                    \
        v_store_upto(dq + (c), count, v_add(keys_, distances_));                                             \
        add_widened(biases + (c), count, keys_);                                                             \
        add_widened(biases + r->width + (c), count, distances_);                                             \
    } while (0)
    NM_COLUMNS(r->width, SUMS);
#undef SUMS
}

static void backward_pair(const relative *r, const pair *at, double *biases)
{
    size_t bytes = (size_t)r->width * sizeof(float);
    memset(biases, 0, 2 * (size_t)r->width * sizeof *biases);
    for (int32_t j = 0; j < at->n; j++) {
        memset(head_row(r->grad->dk, at->k0 + j, at->head, r->width), 0, bytes);
        memset(head_row(r->grad->dv, at->k0 + j, at->head, r->width), 0, bytes);
    }
    for (int32_t i = 0; i < at->m; i++) {
        score(r, at, i);
        grad_scores(r, at, i);
        grad_query_keys(r, at, i, biases);
    }
}

static void check(const nm_relative_attention_args *call)
{
    int32_t longest = call->q_packing->longest > call->k_packing->longest ? call->q_packing->longest
                                                                          : call->k_packing->longest;
    NM_ASSERT(call->heads > 0 && call->q.cols % call->heads == 0 && nm_same_shape(call->k, call->v));
    NM_ASSERT(call->q_packing->n_tokens == call->q.rows && call->k_packing->n_tokens == call->k.rows);
    NM_ASSERT(call->q_packing->n_seqs == call->k_packing->n_seqs && call->q.cols == call->k.cols);
    NM_ASSERT(call->positions.cols == call->q.cols / call->heads && longest <= call->zero_row + 1 &&
              call->zero_row + longest <= call->positions.rows);
}

static void run_pairs(nm_backend *b, const relative *r)
{
    const nm_relative_attention_args *call = r->call;
    size_t width = (size_t)nm_round_up(r->width, 16),
           keys = (size_t)nm_round_up(call->k_packing->longest, 16);
    size_t floats = 2 * width + 2 * keys + 2 * NM_DROP_COLS;
    int32_t threads = nm_threads_for(b, (size_t)call->q.rows * (size_t)call->q.cols);
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
    const nm_shares shares = nm_shares_of_blocks(b, threads, call->q_packing->n_seqs * call->heads);
#pragma omp parallel num_threads(threads)
    for (int32_t p; (p = nm_shares_take(&shares, omp_get_thread_num())) >= 0;) {
        float *local = base + (size_t)omp_get_thread_num() * floats;
        const int32_t *q = call->q_packing->offsets + p / call->heads,
                      *k = call->k_packing->offsets + p / call->heads;
        const pair at = {p % call->heads,
                         q[0],
                         q[1] - q[0],
                         k[0],
                         k[1] - k[0],
                         local,
                         local + width,
                         local + 2 * width,
                         local + 2 * width + keys};
        if (r->grad)
            backward_pair(r, &at, r->biases + 2 * (size_t)p * (size_t)r->width);
        else
            forward_pair(r, &at);
    }
}

static void relative_attention(nm_backend *b, const nm_relative_attention_args *call)
{
    check(call);
    NM_ASSERT(nm_same_shape(call->q, call->out));
    const relative r = {
        .call = call, .drop = nm_drop_of(&call->drop), .width = call->q.cols / call->heads, .lse = call->lse};
    run_pairs(b, &r);
}

/* Adds the contributions of all sequences, in their order, to the gradient of a bias: 0 key bias, 1 distance
 * bias. */
static void add_biases(const relative *r, float *to, int32_t second)
{
    const nm_relative_attention_args *call = r->call;
    for (int32_t head = 0; head < call->heads; head++)
        for (int32_t c = 0; c < r->width; c++) {
            double sum = 0;
            for (int32_t s = 0; s < call->q_packing->n_seqs; s++)
                sum +=
                    r->biases[(size_t)(2 * (s * call->heads + head) + second) * (size_t)r->width + (size_t)c];
            float *at = &to[(size_t)head * (size_t)r->width + (size_t)c];
            *at = (float)((double)*at + sum);
        }
}

static void relative_attention_grad(nm_backend *b, const nm_relative_attention_grad_args *grad)
{
    const nm_relative_attention_args *call = &grad->forward;
    check(call);
    NM_ASSERT(nm_same_shape(call->q, grad->dout) && nm_same_shape(call->q, grad->dq) &&
              nm_same_shape(call->k, grad->dk) && nm_same_shape(call->v, grad->dv));
    relative r = {.call = call,
                  .grad = grad,
                  .drop = nm_drop_of(&call->drop),
                  .width = call->q.cols / call->heads,
                  .lse = call->lse};
    size_t doubles = 2 * (size_t)call->q_packing->n_seqs * (size_t)call->q.cols;
    r.biases = nm_backend_scratch(b, NM_CPU_PARTIALS, doubles * sizeof *r.biases);
    run_pairs(b, &r);
    add_biases(&r, grad->d_key_bias, 0);
    add_biases(&r, grad->d_distance_bias, 1);
}

void NM_SIMD(nm_cpu_relative)(nm_kernels *k)
{
    k->relative_attention = relative_attention;
    k->relative_attention_grad = relative_attention_grad;
}
