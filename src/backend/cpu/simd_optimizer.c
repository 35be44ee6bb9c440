/* Optimizer steps and the dot product behind gradient norms: long vectors, limited by memory. */
#include "backend/cpu/kernel.h"

enum { STRETCH = 16384 }; /* elements done at a time; a sum is taken per stretch and joined by index */

typedef struct adam_numbers {
    float grad_scale, coupled_decay, beta1, rest1, beta2, rest2, shrink, rate, eps;
} adam_numbers;

static adam_numbers prepare(const nm_adam *adam)
{
    double correction1 = 1 - pow(adam->beta1, (double)adam->step);
    double root2 = sqrt(1 - pow(adam->beta2, (double)adam->step));
    bool fairseq = adam->variant == NM_ADAM_FAIRSEQ, coupled = adam->variant == NM_ADAM_TORCH;
    return (adam_numbers){.grad_scale = (float)adam->grad_scale,
                          .coupled_decay = coupled ? (float)adam->weight_decay : 0,
                          .beta1 = (float)adam->beta1,
                          .rest1 = (float)(1 - adam->beta1),
                          .beta2 = (float)adam->beta2,
                          .rest2 = (float)(1 - adam->beta2),
                          .shrink = coupled ? 0 : (float)(adam->lr * adam->weight_decay),
                          .rate = (float)(adam->lr / correction1 * root2),
                          .eps = (float)(fairseq ? adam->eps : adam->eps * root2)};
}

static void adam_stretch(const adam_numbers *a, int32_t n, float *p, const float *g, float *m, float *v)
{
    for (int32_t i = 0; i < n; i += NM_W) {
        int32_t k = n - i;
        vf w = v_load_upto(p + i, k), grad = v_mul(v_set(a->grad_scale), v_load_upto(g + i, k));
        grad = v_fma(v_set(a->coupled_decay), w, grad);
        vf mean = v_fma(v_set(a->beta1), v_load_upto(m + i, k), v_mul(v_set(a->rest1), grad));
        vf square = v_fma(v_set(a->beta2), v_load_upto(v + i, k), v_mul(v_mul(v_set(a->rest2), grad), grad));
        vf step = v_div(v_mul(v_set(a->rate), mean), v_add(v_sqrt(square), v_set(a->eps)));
        v_store_upto(m + i, k, mean);
        v_store_upto(v + i, k, square);
        v_store_upto(p + i, k, v_sub(w, v_fma(v_set(a->shrink), w, step)));
    }
}

static int32_t stretch_at(size_t n, size_t i)
{
    return n - i < STRETCH ? (int32_t)(n - i) : STRETCH;
}

static void adam(nm_backend *b, const nm_adam_args *args)
{
    const size_t n = args->n;
    adam_numbers numbers = prepare(args->config);
    float *weight = args->p, *first = args->m, *second = args->v;
    const float *grad = args->g;
    int32_t threads = nm_threads_for(b, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i += STRETCH)
        adam_stretch(&numbers, stretch_at(n, i), weight + i, grad + i, first + i, second + i);
}

static void sgd_stretch(float lr, float momentum, float grad_scale, float bound, int32_t n, float *p,
                        const float *g, float *v)
{
    for (int32_t i = 0; i < n; i += NM_W) {
        int32_t k = n - i;
        vf grad = v_mul(v_set(grad_scale), v_load_upto(g + i, k));
        grad = v_min(v_set(bound), v_max(v_set(-bound), grad));
        vf speed = v_fma(v_set(momentum), v_load_upto(v + i, k), grad);
        v_store_upto(v + i, k, speed);
        v_store_upto(p + i, k, v_sub(v_load_upto(p + i, k), v_mul(v_set(lr), speed)));
    }
}

static void sgd(nm_backend *b, const nm_sgd_args *args)
{
    const double clip = args->clip;
    const size_t n = args->n;
    float *weight = args->p, *speed = args->v, bound = clip > 0 ? (float)clip : INFINITY;
    const float *grad = args->g;
    int32_t threads = nm_threads_for(b, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i += STRETCH)
        sgd_stretch((float)args->lr, (float)args->momentum, (float)args->grad_scale, bound, stretch_at(n, i),
                    weight + i, grad + i, speed + i);
}

static double dot_stretch(int32_t n, const float *a, const float *b)
{
    vd low = vd_set(0), high = vd_set(0);
    for (int32_t i = 0; i < n; i += NM_W) {
        vf x = v_load_upto(a + i, n - i), y = v_load_upto(b + i, n - i);
        low = vd_fma(vd_low(x), vd_low(y), low);
        high = vd_fma(vd_high(x), vd_high(y), high);
    }
    return vd_sum(vd_add(low, high));
}

static void dot(nm_backend *b, const nm_dot_args *args)
{
    const size_t n = args->n;
    const float *a = args->a, *other = args->b;
    size_t stretches = n / STRETCH + (n % STRETCH != 0);
    double *sums = nm_backend_scratch(b, NM_CPU_PARTIALS, (stretches + 1) * sizeof(double));
    int32_t threads = nm_threads_for(b, n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < stretches; i++)
        sums[i] = dot_stretch(stretch_at(n, i * STRETCH), a + i * STRETCH, other + i * STRETCH);
    double sum = 0;
    for (size_t i = 0; i < stretches; i++)
        sum += sums[i];
    *args->out = sum;
}

void NM_SIMD(nm_cpu_optimizer)(nm_kernels *k)
{
    k->adam = adam;
    k->sgd = sgd;
    k->dot = dot;
}
