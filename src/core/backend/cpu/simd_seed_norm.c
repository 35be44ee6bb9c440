/* SeeDNorm, see nm_seed_norm_args; formulas in ref_seed_norm.inc. A row is in L1 when its result is
 * computed after its sums, so that the memory traffic is that of RMSNorm: 2 passes forward, 3 backward. */
#include "backend/cpu/norm_parts.h"

typedef struct seed_call {
    nm_mat x, y, dy, dx;
    const float *weight, *alpha, *beta; /* padded vectors */
    float *scale, *gate;
    double eps;
    bool add, stream;
    nm_norm_residual residual;
} seed_call;

enum { N_VECTORS = 3 }; /* weight, alpha, beta, and their gradients */

/* memory: N_VECTORS padded vectors */
static void pad_vectors(seed_call *call, const void *weight, const void *alpha, const void *beta,
                        float *memory)
{
    const int32_t cols = call->x.cols;
    call->weight = nm_padded_vector(weight, cols, cols, 0, memory);
    call->alpha = nm_padded_vector(alpha, cols, cols, 0, memory + nm_padded(cols));
    call->beta = nm_padded_vector(beta, cols, cols, 0, memory + 2 * nm_padded(cols));
}

static double product(int32_t n, const float *x, const float *beta)
{
    vf sums[NM_ACCUMULATORS][NM_SUM_VECTORS] = {{{0}}};
#define ADD_PRODUCT(i, v, j, count)                                                                          \
    sums[i][v] = v_fma(v_load_upto(x + (j), count), v_load(beta + (j)), sums[i][v])
    NM_SUM_LANES(n, ADD_PRODUCT);
#undef ADD_PRODUCT
    double sum = nm_sum_lanes(sums);
    if (sum > -INFINITY && sum < INFINITY)
        return sum;
    sum = 0;
    for (int32_t j = 0; j < n; j++)
        sum += (double)x[j] * (double)beta[j];
    return sum;
}

static void forward_row(const seed_call *call, int32_t row)
{
    const int32_t n = call->x.cols;
    const float *x = nm_row(call->x, row), *weight = call->weight, *alpha = call->alpha;
    float *y = nm_row(call->y, row);
    call->scale[row] = (float)(1 / sqrt(nm_sum_of_squares(n, x) / n + call->eps));
    call->gate[row] = (float)tanh(product(n, x, call->beta));
    const vf scale = v_set(call->scale[row]), gate = v_set(call->gate[row]);
#define STEP(j, count)                                                                                       \
    nm_store(y + (j), count, call->stream,                                                                   \
             v_mul(v_fma(gate, v_load(alpha + (j)), v_load(weight + (j))),                                   \
                   v_mul(v_load_upto(x + (j), count), scale)))
    NM_COLUMNS(n, STEP);
#undef STEP
}

static void seed_norm(nm_backend *b, const nm_seed_norm_args *args)
{
    const nm_mat x = args->x;
    NM_ASSERT(nm_same_shape(x, args->y));
    seed_call call = {.x = x,
                      .y = args->y,
                      .scale = args->scale,
                      .gate = args->gate,
                      .eps = args->eps,
                      .stream = nm_use_streaming(args->y),
                      .residual = nm_residual_of_sum(args->sum, x)};
    pad_vectors(&call, args->weight, args->alpha, args->beta,
                nm_backend_scratch(b, NM_CPU_PARTIALS, N_VECTORS * nm_padded(x.cols) * sizeof(float)));
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
    int32_t blocks = nm_ceil_div(x.rows, NM_NORM_ROWS);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++) {
        int32_t end = nm_min_i32(x.rows, (i + 1) * NM_NORM_ROWS);
        for (int32_t row = i * NM_NORM_ROWS; row < end; row++) {
            if (call.residual.on)
                nm_residual_rows(&call.residual, x, row, row + 1);
            forward_row(&call, row);
        }
        if (call.stream)
            v_stream_end();
    }
}

/* Sums over a row of dy weight xhat and of dy alpha xhat. */
static void row_sums(const seed_call *call, const float *x, const float *dy, vf scale, double *weighted,
                     double *gated)
{
    const int32_t n = call->x.cols;
    const float *weight = call->weight, *alpha = call->alpha;
    vf sums[NM_SUM_VECTORS], gated_sums[NM_SUM_VECTORS];
    for (int32_t lane = 0; lane < NM_LANES; lane += NM_W) {
        vf sum[NM_ACCUMULATORS] = {v_set(0), v_set(0), v_set(0), v_set(0)},
           gated_sum[NM_ACCUMULATORS] = {v_set(0), v_set(0), v_set(0), v_set(0)};
#define STEP(i, j, count)                                                                                    \
    do {                                                                                                     \
        vf up = v_mul(v_load_upto(dy + (j), count), v_mul(v_load_upto(x + (j), count), scale));              \
        sum[i] = v_fma(v_load(weight + (j)), up, sum[i]);                                                    \
        gated_sum[i] = v_fma(v_load(alpha + (j)), up, gated_sum[i]);                                         \
    } while (0)
        NM_SUM_LANE(n, lane, STEP);
#undef STEP
        sums[lane / NM_W] = nm_sum_accumulators(sum);
        gated_sums[lane / NM_W] = nm_sum_accumulators(gated_sum);
    }
    *weighted = v_sum_lanes(sums);
    *gated = v_sum_lanes(gated_sums);
}

/* dx of a row, and its contribution to the sums of the block: [weight, alpha, beta], padded vectors. */
static void grad_row(const seed_call *call, int32_t row, float *sums)
{
    const int32_t n = call->x.cols;
    const float *x = nm_row(call->x, row), *dy = nm_row(call->dy, row);
    const float *weight = call->weight, *alpha = call->alpha, *beta = call->beta;
    float *dx = nm_row(call->dx, row), *alpha_sums = sums + nm_padded(n),
          *beta_sums = alpha_sums + nm_padded(n);
    const double scale = (double)call->scale[row], gate = (double)call->gate[row];
    const vf vscale = v_set(call->scale[row]), vgate = v_set(call->gate[row]);
    double weighted, gated;
    row_sums(call, x, dy, vscale, &weighted, &gated);
    const vf u = v_set((float)((1 - gate * gate) * gated));
    const vf along = v_set((float)(-scale * (weighted + gate * gated) / n));
    const bool add = call->add, stream = call->stream;
#define STEP(j, count)                                                                                       \
    do {                                                                                                     \
        vf x_ = v_load_upto(x + (j), count), up = v_load_upto(dy + (j), count), xhat = v_mul(x_, vscale);    \
        vf q = v_mul(v_fma(vgate, v_load(alpha + (j)), v_load(weight + (j))), up);                           \
        vf down = v_fma(q, vscale, v_fma(xhat, along, v_mul(u, v_load(beta + (j)))));                        \
        if (add)                                                                                             \
            down = v_add(v_load_upto(dx + (j), count), down);                                                \
        nm_store(dx + (j), count, stream, down);                                                             \
        nm_fma_to(sums + (j), up, xhat);                                                                     \
        nm_fma_to(alpha_sums + (j), vgate, v_mul(up, xhat));                                                 \
        nm_fma_to(beta_sums + (j), u, x_);                                                                   \
    } while (0)
    NM_COLUMNS(n, STEP);
#undef STEP
}

static void seed_norm_grad(nm_backend *b, const nm_seed_norm_grad_args *args)
{
    const nm_mat x = args->x;
    NM_ASSERT(nm_same_shape(x, args->dy) && nm_same_shape(x, args->dx));
    const size_t padded = nm_padded(x.cols), size = N_VECTORS * padded;
    const int32_t blocks = nm_ceil_div(x.rows, NM_NORM_ROWS);
    /* doubles: sums; floats: parameters, sums of the blocks */
    double *sums = nm_backend_scratch(b, NM_CPU_PARTIALS,
                                      size * sizeof(double) + size * ((size_t)blocks + 1) * sizeof(float));
    float *vectors = (float *)(void *)(sums + size), *partials = vectors + size;
    seed_call call = {.x = x,
                      .dy = args->dy,
                      .dx = args->dx,
                      .scale = (float *)(uintptr_t)args->scale, /* only read */
                      .gate = (float *)(uintptr_t)args->gate,
                      .add = args->add,
                      .residual = nm_residual_of_grad(args->residual, args->dx)};
    call.stream = !call.add && nm_use_streaming(call.dx) && !call.residual.on;
    pad_vectors(&call, args->weight, args->alpha, args->beta, vectors);
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++) {
        float *block_sums = partials + (size_t)i * size;
        int32_t end = nm_min_i32(x.rows, (i + 1) * NM_NORM_ROWS);
        memset(block_sums, 0, size * sizeof(float));
        for (int32_t row = i * NM_NORM_ROWS; row < end; row++) {
            grad_row(&call, row, block_sums);
            if (call.residual.on)
                nm_residual_grad_rows(&call.residual, call.dx, row, row + 1);
        }
        if (call.stream)
            v_stream_end();
    }
    nm_sum_blocks(b, partials, blocks, (int32_t)size, sums);
    nm_add_sums(sums, x.cols, args->d_weight);
    nm_add_sums(sums + padded, x.cols, args->d_alpha);
    nm_add_sums(sums + 2 * padded, x.cols, args->d_beta);
}

void NM_SIMD(nm_cpu_seed_norm)(nm_kernels *k)
{
    k->seed_norm = seed_norm;
    k->seed_norm_grad = seed_norm_grad;
}
