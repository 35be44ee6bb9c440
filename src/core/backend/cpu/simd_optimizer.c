/* Optimizer steps, and the dot product for gradient norms: long vectors, limited by memory bandwidth. */
#include "backend/cpu/kernel.h"

enum { CHUNK = 16384 }; /* elements per chunk */

typedef struct adam_numbers {
    float grad_scale, coupled_decay, beta1, one_minus_beta1, beta2, one_minus_beta2, decoupled_decay, rate,
        eps;
} adam_numbers;

static adam_numbers prepare_adam(const nm_adam *adam, double grad_scale)
{
    double correction1 = 1 - pow(adam->beta1, (double)adam->step);
    double root2 = sqrt(1 - pow(adam->beta2, (double)adam->step));
    bool fairseq = adam->variant == NM_ADAM_FAIRSEQ, coupled = adam->variant == NM_ADAM_TORCH;
    return (adam_numbers){.grad_scale = (float)grad_scale,
                          .coupled_decay = coupled ? (float)adam->weight_decay : 0,
                          .beta1 = (float)adam->beta1,
                          .one_minus_beta1 = (float)(1 - adam->beta1),
                          .beta2 = (float)adam->beta2,
                          .one_minus_beta2 = (float)(1 - adam->beta2),
                          .decoupled_decay = coupled ? 0 : (float)(adam->lr * adam->weight_decay),
                          .rate = (float)(adam->lr / correction1 * root2),
                          .eps = (float)(fairseq ? adam->eps : adam->eps * root2)};
}

static void adam_chunk(const adam_numbers *a, int32_t n, float *p, const float *g, float *m, float *v)
{
    for (int32_t i = 0; i < n; i += NM_W) {
        int32_t k = n - i;
        vf w = v_load_upto(p + i, k), grad = v_mul(v_set(a->grad_scale), v_load_upto(g + i, k));
        grad = v_fma(v_set(a->coupled_decay), w, grad);
        vf mean = v_fma(v_set(a->beta1), v_load_upto(m + i, k), v_mul(v_set(a->one_minus_beta1), grad));
        vf square = v_fma(v_set(a->beta2), v_load_upto(v + i, k),
                          v_mul(v_mul(v_set(a->one_minus_beta2), grad), grad));
        vf step = v_div(v_mul(v_set(a->rate), mean), v_add(v_sqrt(square), v_set(a->eps)));
        v_store_upto(m + i, k, mean);
        v_store_upto(v + i, k, square);
        v_store_upto(p + i, k, v_sub(w, v_fma(v_set(a->decoupled_decay), w, step)));
    }
}

static int32_t chunk_len(size_t n, size_t i)
{
    return n - i < CHUNK ? (int32_t)(n - i) : CHUNK;
}

static void adam(nm_backend *b, const nm_adam_args *args)
{
    const size_t n = args->n;
    const double grad_scale = args->scale ? *args->scale : args->config->grad_scale;
    adam_numbers numbers = prepare_adam(args->config, grad_scale);
    if (isnan(grad_scale))
        return;
    float *weight = args->p, *first = args->m, *second = args->v;
    const float *grad = args->g;
    int32_t threads = nm_threads_for(b, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i += CHUNK)
        adam_chunk(&numbers, chunk_len(n, i), weight + i, grad + i, first + i, second + i);
}

static void sgd_chunk(const nm_sgd_args *args, double grad_scale, size_t first, int32_t n)
{
    float *p = (float *)args->p + first, *v = (float *)args->v + first;
    const float *g = (const float *)args->g + first, bound = args->clip > 0 ? (float)args->clip : INFINITY;
    const vf lr = v_set((float)args->lr), momentum = v_set((float)args->momentum),
             factor = v_set((float)grad_scale), decay = v_set((float)args->weight_decay);
    for (int32_t i = 0; i < n; i += NM_W) {
        int32_t k = n - i;
        vf grad = v_mul(factor, v_load_upto(g + i, k));
        grad = v_min(v_set(bound), v_max(v_set(-bound), grad));
        vf weight = v_load_upto(p + i, k);
        if (args->weight_decay > 0)
            grad = v_fma(decay, weight, grad);
        vf velocity = v_fma(momentum, v_load_upto(v + i, k), grad);
        v_store_upto(v + i, k, velocity);
        v_store_upto(p + i, k, v_sub(weight, v_mul(lr, velocity)));
    }
}

static void sgd(nm_backend *b, const nm_sgd_args *args)
{
    const double grad_scale = args->scale ? *args->scale : args->grad_scale;
    int32_t threads = nm_threads_for(b, args->n);
    if (isnan(grad_scale))
        return;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < args->n; i += CHUNK)
        sgd_chunk(args, grad_scale, i, chunk_len(args->n, i));
}

static double dot_block(int32_t n, const float *a, const float *b)
{
    vd sums[2 * NM_SUM_VECTORS] = {{0}};
#define DOT(i, j, count)                                                                                     \
    do {                                                                                                     \
        vf x = v_load_upto(a + (j), count), y = v_load_upto(b + (j), count);                                 \
        sums[2 * (i)] = vd_fma(vd_low(x), vd_low(y), sums[2 * (i)]);                                         \
        sums[2 * (i) + 1] = vd_fma(vd_high(x), vd_high(y), sums[2 * (i) + 1]);                               \
    } while (0)
    NM_SUM_COLUMNS(n, DOT);
#undef DOT
    return vd_sum(vd_fold_lanes(sums));
}

static void dot(nm_backend *b, const nm_dot_args *args)
{
    const size_t n = args->n;
    const float *a = args->a, *other = args->b;
    size_t blocks = n / NM_DOT_BLOCK + (n % NM_DOT_BLOCK != 0);
    double *sums =
        args->blocks ? args->blocks : nm_backend_scratch(b, NM_CPU_PARTIALS, (blocks + 1) * sizeof(double));
    int32_t threads = nm_threads_for(b, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < blocks; i++) {
        size_t at = i * NM_DOT_BLOCK;
        sums[i] = dot_block(n - at < NM_DOT_BLOCK ? (int32_t)(n - at) : NM_DOT_BLOCK, a + at, other + at);
    }
    double sum = 0;
    for (size_t i = 0; i < blocks; i++)
        sum += sums[i];
    nm_dot_store(args, sum);
}

void NM_SIMD(nm_cpu_optimizer)(nm_kernels *k)
{
    k->adam = adam;
    k->sgd = sgd;
    k->dot = dot;
}
