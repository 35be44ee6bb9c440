/* Where the time goes: every kernel is wrapped by one that looks at the clock, and counts what it was asked to do, the
 * operations of its products or the fewest bytes that the rest has to move. Switched off, the backend has its own table,
 * and nothing of this runs. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/calls.h"

typedef struct work {
    double flops, bytes;
} work;

static work products(double flops)
{
    return (work){.flops = flops};
}

static work moved(double bytes)
{
    return (work){.bytes = bytes};
}

static work numbers(const nm_backend *b, double n)
{
    return moved(n * (double)nm_dtype_bytes(b->dtype));
}

static double size(nm_mat m)
{
    return (double)m.rows * m.cols;
}

/* Pairs of a query and a key that it sees. */
static double pairs(const nm_packing *q, const nm_packing *k, bool causal)
{
    double sum = 0;
    for (int32_t s = 0; s < q->n_seqs; s++) {
        double m = q->offsets[s + 1] - q->offsets[s], n = k->offsets[s + 1] - k->offsets[s];
        sum += causal ? m * (n - m) + m * (m + 1) / 2 : m * n;
    }
    return sum;
}

static double relative_pairs(const nm_relative *call)
{
    return pairs(call->q_packing, call->k_packing, false);
}

/* Attention's backward computes the weights again: products of q with k, dout with v; then dv, dk and dq. TENER's has three
 * products in its weights: with k, with the vectors of distances, and of k with those. What has no line of its own but
 * `nothing` is timed alone. */
/* clang-format off */
static const work nothing = {0};
#define WORK_upload             moved(2.0 * (double)bytes)
#define WORK_download           moved(2.0 * (double)bytes)
#define WORK_copy               moved(2.0 * (double)bytes)
#define WORK_zero               moved((double)bytes)
#define WORK_random_init               numbers(b, (double)n)
#define WORK_gemm               products(2 * size(c) * (ta ? a.rows : a.cols))
#define WORK_linear             products(2 * size(y) * x.cols)
#define WORK_pack               numbers(b, form ? 2 * size(weight) : 0)
#define WORK_round_int8         numbers(b, 2 * size(m))
#define WORK_pack_int8          moved(form ? size(weight) * (1 + (double)nm_dtype_bytes(b->dtype)) : 0)
#define WORK_linear_int8        products(2 * size(y) * x.cols)
#define WORK_act_grad           numbers(b, 3 * size(dz))
#define WORK_linear_grad_input  products(2 * size(dy) * dx.cols)
#define WORK_linear_grad_weight products(2 * size(dy) * x.cols)
#define WORK_scale              numbers(b, 2 * size(y))
#define WORK_add                numbers(b, 3 * size(y))
#define WORK_add_dropout        numbers(b, 3 * size(y))
#define WORK_dropout            numbers(b, (add ? 3 : 2) * size(y))
#define WORK_embed              numbers(b, 2 * size(out))
#define WORK_embed_grad         numbers(b, 3 * size(dout))
#define WORK_gather             numbers(b, 2 * size(out))
#define WORK_attention          products(2 * pairs(q_packing, k_packing, causal) * (q.cols + v.cols))
#define WORK_attention_grad     products(2 * pairs(q_packing, k_packing, causal) * (3 * q.cols + 2 * v.cols))
#define WORK_attention_rows     nothing
#define WORK_block_term         nothing
#define WORK_block_term_grad    nothing
#define WORK_relative_attention      products(2 * relative_pairs(call) * (3 * call->q.cols + call->v.cols))
#define WORK_relative_attention_grad products(2 * relative_pairs(call) * (7 * call->q.cols + 2 * call->v.cols))
#define WORK_pool_max           numbers(b, size(x))
#define WORK_pool_max_grad      numbers(b, size(dx))
#define WORK_crf                nothing
#define WORK_softmax_loss       products((loss->d_hidden ? 6 : 2) * size(loss->hidden) * loss->weight.rows)
#define WORK_log_softmax        numbers(b, 2 * size(x))
#define WORK_top_k              numbers(b, size(x))
#define WORK_log_top_k          numbers(b, size(x))
#define WORK_token_norm         numbers(b, 2 * size(x))
#define WORK_token_norm_grad    numbers(b, (add ? 4 : 3) * size(x))
#define WORK_feature_moments    numbers(b, size(x))
#define WORK_feature_norm       numbers(b, 2 * size(x))
#define WORK_feature_norm_grad  numbers(b, (!dx.data ? 2 : add ? 4 : 3) * size(x))
#define WORK_vec                nothing
#define WORK_dot                numbers(b, (va == vb ? 1.0 : 2.0) * (double)n)
#define WORK_adam               numbers(b, 7.0 * (double)n)
#define WORK_sgd                numbers(b, 5.0 * (double)n)
/* clang-format on */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A kernel that calls another one counts for both. */
static void note(nm_backend *b, int kernel, double began, work done)
{
    nm_profiling *profiling = &nm_backend_inside(b)->profiling;
    if (--profiling->depth)
        return;
    nm_kernel_time *time = &profiling->times[kernel];
    time->seconds += seconds() - began;
    time->flops += done.flops;
    time->bytes += done.bytes;
    time->calls++;
}

#define K(name, args)                                                                                        \
    static void timed_##name args                                                                            \
    {                                                                                                        \
        const work done = WORK_##name;                                                                       \
        nm_backend_inside(b)->profiling.depth++;                                                             \
        double began = seconds();                                                                            \
        nm_backend_inside(b)->profiling.inner.name CALL_##name;                                              \
        note(b, NM_KERNEL_##name, began, done);                                                              \
    }
NM_KERNELS(K)
#undef K

void nm_backend_profile(nm_backend *backend, bool on)
{
    static const nm_kernels timed = {
#define K(name, args) .name = timed_##name,
        NM_KERNELS(K)
#undef K
    };
    static const char *const names[] = {
#define K(name, args) #name,
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
        profiling->inner = inside->active;
    inside->active = on ? timed : profiling->inner;
    profiling->on = on;
    nm_backend_dry_run(backend, backend->planning);
}

static int compare(const void *left, const void *right)
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
    qsort(times, (size_t)n, sizeof *times, compare);
    return n;
}
