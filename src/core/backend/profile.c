/* Profiling: each kernel is replaced with a function that calls it, measures its time and counts its work:
 * floating-point operations of matrix multiplications, or minimum memory traffic of other kernels. While
 * profiling is off, the kernels are called directly. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend_private.h"
#include "backend/device/target.h"
#include "base/clock.h"

typedef struct work {
    double flops, bytes;
} work;

static work flops(double n)
{
    return (work){.flops = n};
}

static work bytes(double n)
{
    return (work){.bytes = n};
}

/* n elements of the backend's type. */
static work elements(const nm_backend *b, double n)
{
    return bytes(n * (double)nm_dtype_bytes(b->dtype));
}

static double size(nm_mat m)
{
    return (double)m.rows * m.cols;
}

static bool sums_residual(const nm_feature_norm *spec)
{
    return spec->sum && !spec->row_scale_ready;
}

/* Passes over the gradient of a residual connection. */
static int residual_grad(const nm_residual_grad *residual)
{
    return !residual ? 0 : residual->add ? 2 : 1;
}

/* 1 + 2 + ... + n; 0 for n < 0. */
static double triangle(double n)
{
    return n > 0 ? n * (n + 1) / 2 : 0;
}

/* Number of pairs of a query and a key that it attends to. window: 0: none. */
static double attention_pairs(const nm_packing *q, const nm_packing *k, bool causal, int32_t window)
{
    double sum = 0;
    for (int32_t s = 0; s < q->n_seqs; s++) {
        double m = q->offsets[s + 1] - q->offsets[s], n = k->offsets[s + 1] - k->offsets[s];
        double outside = window ? triangle(n - window) - triangle(n - m - window) : 0;
        sum += causal ? m * (n - m) + triangle(m) - outside : m * n;
    }
    return sum;
}

/* Forward: q k^T and p v. Backward: q k^T again, dout v^T; then dv, dk, dq. */
static work attention_flops(const nm_attention_args *a, double qk, double pv)
{
    return flops(2 * attention_pairs(a->q_packing, a->k_packing, a->causal, a->window) *
                 (qk * a->q.cols + pv * a->v.cols));
}

/* Three matrix multiplications per score: q and keys, q and distances, keys and distances. */
static work relative_flops(const nm_relative_attention_args *a, double qk, double pv)
{
    return flops(2 * attention_pairs(a->q_packing, a->k_packing, false, 0) *
                 (qk * a->q.cols + pv * a->v.cols));
}

/* Kernels of which only the time is measured. */
static const work unknown = {0};

#define WORK(name, expression)                                                                               \
    static work name##_work(const nm_backend *b, const nm_##name##_args *a)                                  \
    {                                                                                                        \
        (void)b;                                                                                             \
        (void)a;                                                                                             \
        return expression;                                                                                   \
    }
/* clang-format off */
WORK(upload,                  bytes(2.0 * (double)a->bytes))
WORK(download,                bytes(2.0 * (double)a->bytes))
WORK(copy,                    bytes(2.0 * (double)a->bytes))
WORK(zero,                    bytes((double)a->bytes))
WORK(random_init,             elements(b, (double)a->n))
WORK(gemm,                    flops(2 * size(a->c) * (a->ta ? a->a.rows : a->a.cols)))
WORK(linear,                  flops(2 * size(a->y) * a->x.cols))
WORK(linear_selected,         flops(2 * size(a->y) * a->x.cols))
WORK(pack,                    elements(b, a->packed ? 2 * size(a->weight) : 0))
WORK(round_int8,              elements(b, 2 * size(a->m)))
WORK(pack_int8,               bytes(a->packed ? size(a->weight) * (1 + (double)nm_dtype_bytes(b->dtype)) : 0))
WORK(linear_int8,             flops(2 * size(a->y) * a->x.cols))
WORK(act_grad,                elements(b, 3 * size(a->dz)))
WORK(linear_grad_input,       flops(2 * size(a->dy) * a->dx.cols))
WORK(linear_grad_weight,      flops(a->dw.data ? 2 * size(a->dy) * a->x.cols : size(a->dy)))
WORK(scale,                   elements(b, 2 * size(a->y)))
WORK(add,                     elements(b, 3 * size(a->y)))
WORK(add_dropout,             elements(b, 3 * size(a->y)))
WORK(dropout,                 elements(b, (a->add ? 3 : 2) * size(a->y)))
WORK(store_bf16,              elements(b, 1.5 * size(a->x)))
WORK(load_bf16,               elements(b, 1.5 * size(a->y)))
WORK(map,                     elements(b, 2 * size(a->x)))
WORK(map_grad,                elements(b, (a->add ? 4 : 3) * size(a->dx)))
WORK(gate,                    elements(b, 3 * size(a->y)))
WORK(gate_grad,               elements(b, 5 * size(a->dy)))
WORK(embed,                   elements(b, 2 * size(a->out)))
WORK(embed_grad,              elements(b, 3 * size(a->dout)))
WORK(gather,                  elements(b, 2 * size(a->out)))
WORK(patches,                 elements(b, size(a->x) + size(a->out)))
WORK(patches_grad,            elements(b, size(a->dout) + (a->add ? 2 : 1) * size(a->dx)))
WORK(convolve,                flops(2 * size(a->y) * a->weight.cols))
WORK(convolve_grad_input,     flops(2 * size(a->dy) * a->weight.cols))
WORK(convolve_grad_weight,    flops(a->dw.data ? 2 * size(a->dy) * a->dw.cols : size(a->dy)))
WORK(window_mean,             elements(b, size(a->x) + size(a->out)))
WORK(window_mean_grad,        elements(b, size(a->dout) + (a->add ? 2 : 1) * size(a->dx)))
WORK(rotate,                  elements(b, 2 * size(a->x)))
WORK(attention,               attention_flops(a, 1, 1))
WORK(attention_grad,          attention_flops(&a->forward, 3, 2))
WORK(attention_cached,        unknown)
WORK(guided_attention,        unknown)
WORK(block_term,              unknown)
WORK(block_term_grad,         unknown)
WORK(relative_attention,      relative_flops(a, 3, 1))
WORK(relative_attention_grad, relative_flops(&a->forward, 7, 2))
WORK(pool_max,                elements(b, size(a->x)))
WORK(pool_max_grad,           elements(b, size(a->dx)))
WORK(crf,                     unknown)
WORK(softmax_loss,            flops((a->d_hidden ? 6 : 2) * size(a->hidden) * a->weight.rows))
WORK(log_softmax,             elements(b, 2 * size(a->x)))
WORK(mix,                     elements(b, 5 * size(a->x)))
WORK(log_top_k,               elements(b, size(a->x)))
WORK(token_norm,              elements(b, (a->sum ? 4 : 2) * size(a->x)))
WORK(token_norm_grad,         elements(b, ((a->add ? 4 : 3) + residual_grad(a->residual)) * size(a->x)))
WORK(seed_norm,               elements(b, (a->sum ? 4 : 2) * size(a->x)))
WORK(seed_norm_grad,          elements(b, ((a->add ? 4 : 3) + residual_grad(a->residual)) * size(a->x)))
WORK(feature_moments,         elements(b, (sums_residual(a->spec) ? 3 : 1) * size(a->x)))
WORK(feature_norm,            elements(b, (sums_residual(a->spec) ? 4 : a->added.data ? 3 : 2) * size(a->x)))
WORK(feature_norm_grad,       elements(b, ((a->relu.data ? 4 : !a->dx.data ? 2 : a->add ? 4 : 3) +
                                           residual_grad(a->residual)) * size(a->x)))
WORK(vec,                     unknown)
WORK(dot,                     elements(b, (a->a == a->b ? 1.0 : 2.0) * (double)a->n))
WORK(plan_update,             unknown)
WORK(adam,                    elements(b, 7.0 * (double)a->n))
WORK(sgd,                     elements(b, 5.0 * (double)a->n))
/* clang-format on */
#undef WORK

/* Records an outermost kernel. Its time includes that of the kernels it calls, which are not recorded. */
static void end_call(nm_backend *b, int kernel, double began, work done)
{
    nm_profiling *profiling = &nm_backend_inside(b)->profiling;
    if (--profiling->depth)
        return;
    const nm_backend_private *inside = nm_backend_inside(b);
    if (inside->target)
        inside->target->finish(inside->device);
    nm_kernel_time *time = &profiling->times[kernel];
    time->seconds += nm_clock() - began;
    time->flops += done.flops;
    time->bytes += done.bytes;
    time->calls++;
}

#define K(name)                                                                                              \
    static void timed_##name(nm_backend *b, const nm_##name##_args *args)                                    \
    {                                                                                                        \
        nm_profiling *profiling = &nm_backend_inside(b)->profiling;                                          \
        const work done = name##_work(b, args);                                                              \
        profiling->depth++;                                                                                  \
        double began = nm_clock();                                                                           \
        profiling->untimed.name(b, args);                                                                    \
        end_call(b, NM_KERNEL_##name, began, done);                                                          \
    }
NM_KERNELS(K)
#undef K

void nm_backend_profile(nm_backend *backend, bool on)
{
    static const nm_kernels timed = {
#define K(name) .name = timed_##name,
        NM_KERNELS(K)
#undef K
    };
    static const char *const names[] = {
#define K(name) #name,
        NM_KERNELS(K)
#undef K
    };
    nm_backend_private *inside = nm_backend_inside(backend);
    nm_profiling *profiling = &inside->profiling;
    if (on == profiling->on)
        return;
    for (int i = 0; i < NM_N_KERNELS; i++)
        profiling->times[i].kernel = names[i];
    if (on)
        profiling->untimed = inside->active;
    inside->active = on ? timed : profiling->untimed;
    profiling->on = on;
    nm_backend_dry_run(backend, backend->dry_run);
}

static int compare_seconds(const void *left, const void *right)
{
    const nm_kernel_time *a = left, *b = right;
    return a->seconds != b->seconds ? (a->seconds < b->seconds ? 1 : -1) : strcmp(a->kernel, b->kernel);
}

int nm_backend_times(const nm_backend *backend, nm_kernel_time times[NM_N_KERNELS])
{
    const nm_profiling *profiling = &nm_backend_inside(backend)->profiling;
    int n = 0;
    for (int i = 0; i < NM_N_KERNELS; i++)
        if (profiling->times[i].calls)
            times[n++] = profiling->times[i];
    qsort(times, (size_t)n, sizeof *times, compare_seconds);
    return n;
}
