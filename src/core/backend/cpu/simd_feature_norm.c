/* Normalization with statistics over the batch: BatchNorm, PowerNorm and related norms, see nm_feature_norm:
 *     h = x row_scale
 *     z = (h - shift) scale
 *     y = weight z + bias
 * Rows are processed in order; sums over rows are accumulated per block of rows. */
#include <float.h>

#include "backend/cpu/norm_parts.h"

typedef struct feature_call {
    const nm_feature_norm *spec;
    nm_mat x, y, dy; /* backward: y is dx, or the result of relu (SUMS_RELU) */
    nm_mat added;
    float *row_scale; /* [rows, groups] */
    /* Padded vectors. `scale` is folded into the weight (backward: into c1), because the loops use h - shift
     * instead of z. */
    const float *shift, *weight, *bias; /* backward: weight is a, bias is c0 */
    const float *c1;
    int32_t groups, width; /* one group of all columns if there is no row scale */
    /* scaled: with row scales; measured: they are given; plain: without shift and, in the backward pass,
     * without c0. */
    bool scaled, measured, stream, plain, row_by_row;
    bool late; /* the results of a row prefetch the next row */
    nm_norm_residual residual;
    int32_t n_summed; /* number of rows of x for which the residual connection has been computed */
} feature_call;

static feature_call prepare_feature_norm(const nm_feature_norm *spec, nm_mat x, void *row_scale)
{
    NM_ASSERT(spec->groups >= 0 && (spec->groups == 0 || (x.cols % spec->groups == 0 && row_scale)));
    int32_t groups = spec->groups ? spec->groups : 1;
    return (feature_call){.spec = spec,
                          .x = x,
                          .row_scale = row_scale,
                          .groups = groups,
                          .width = x.cols / groups,
                          .scaled = spec->groups > 0,
                          .measured = spec->row_scale_ready,
                          .row_by_row = (size_t)x.rows * (size_t)x.cols * sizeof(float) >= NM_STREAM_BYTES,
                          .residual = nm_residual_of_sum(spec->row_scale_ready ? NULL : spec->sum, x)};
}

enum {
    GROUPS = 8
}; /* groups of a row computed together, to hide the latency of their square roots and projections */

/* Sums of squares of n groups, 0 for the others. next_row: the same columns of the next row, which are
 * prefetched if `early`. */
NM_INLINE void sums_of_squares(const float *x, const float *next_row, const bool early, const int32_t width,
                               const int32_t n, double squares[GROUPS])
{
    vd folded[GROUPS];
    int64_t finite = 1;
    for (int32_t i = 0; i < n; i++) {
        vf sums[2][NM_SUM_VECTORS] = {{{0}}};
        int32_t first = 0;
#define ADD_SQUARE(v, j, count)                                                                              \
    do {                                                                                                     \
        vf value = v_load_upto(x + first + (j), count);                                                      \
        sums[(v) / NM_SUM_VECTORS][(v) % NM_SUM_VECTORS] =                                                   \
            v_fma(value, value, sums[(v) / NM_SUM_VECTORS][(v) % NM_SUM_VECTORS]);                           \
    } while (0)
        for (; first + 2 * NM_LANES <= width; first += 2 * NM_LANES) {
            if (early) {
                __builtin_prefetch(next_row + first);
                __builtin_prefetch(next_row + first + NM_LANES);
            }
            NM_UNROLLED(v, 2 * NM_SUM_VECTORS)
                ADD_SQUARE(v, v * NM_W, NM_W);
        }
        NM_SUM_COLUMNS(width - first, ADD_SQUARE);
#undef ADD_SQUARE
        for (int v = 0; v < NM_SUM_VECTORS; v++)
            sums[0][v] = v_add(sums[0][v], sums[1][v]);
        folded[i] = v_fold_lanes(sums[0]);
        x += width;
        next_row += width;
    }
    for (int32_t i = n; i < GROUPS; i++)
        folded[i] = vd_set(0);
    for (int32_t i = 0; i < GROUPS; i += NM_W / 2)
        vd_store(squares + i, vd_sums(folded + i));
    for (int32_t i = 0; i < GROUPS; i++)
        finite &= (int64_t)(squares[i] < INFINITY);
    for (int32_t i = 0; !finite && i < n; i++)
        if (!(squares[i] < INFINITY))
            squares[i] = nm_wide_sum_of_squares(width, x - (n - i) * width, 0);
}

/* Computes and stores the row scales of n groups from x on. */
NM_INLINE void compute_row_scales(const feature_call *call, const float *x, const bool early,
                                  const int32_t width, const int32_t n, float *at, float to[GROUPS])
{
    const double share = 1.0 / width, eps = call->spec->eps;
    NM_ALIGNED double squares[GROUPS];
    sums_of_squares(x, x + call->x.stride, early, width, n, squares);
    for (int32_t i = 0; i < GROUPS; i++) /* not only n, so that the compiler vectorizes the square roots */
        to[i] = (float)(1 / sqrt(squares[i] * share + eps));
    for (int32_t i = 0; i < n; i++)
        at[i] = to[i];
}

/* Reads the row scales of groups first .. first + n - 1 of a row, or computes and stores them.
 *
 * Frequent widths are constants, because loops of few vectors take most of their time outside the sums. The
 * next row is prefetched, because the hardware prefetcher stalls while square roots are pending: with the
 * sums of squares or, if call->late, with the results of this row, since the sums of a constant width alone
 * would use all miss buffers. */
static __attribute__((noinline)) void load_row_scales(const feature_call *call, int32_t row, int32_t first,
                                                      int32_t n, float to[GROUPS])
{
    float *at = call->row_scale + (size_t)row * (size_t)call->groups + (size_t)first;
    const float *x = nm_row(call->x, row) + (size_t)first * (size_t)call->width;
    const bool constant = n == GROUPS && !call->row_by_row;
    if (call->measured)
        memcpy(to, at, (size_t)n * sizeof *to);
    else if (constant && call->width == 32 && call->late)
        compute_row_scales(call, x, false, 32, GROUPS, at, to);
    else if (constant && call->width == 64 && call->late)
        compute_row_scales(call, x, false, 64, GROUPS, at, to);
    else if (constant && call->width == 32)
        compute_row_scales(call, x, true, 32, GROUPS, at, to);
    else if (constant && call->width == 64)
        compute_row_scales(call, x, true, 64, GROUPS, at, to);
    else
        compute_row_scales(call, x, true, call->width, n, at, to);
}

/* A row and the vectors shared by all rows. Passed by value, because the compiler assumes that a vector store
 * may change any object whose address is taken. */
typedef struct row_view {
    const float *x, *next_x, *added; /* next_x: the row to prefetch; added: may be NULL */
    float *y, *dy;                   /* backward: y is dx, or the result of relu */
    const float *shift, *weight, *bias, *c1;
    float *sums, *second;
} row_view;

/* Operation of a pass over the rows: sums of squares; sums of values and squares; forward (with sums of
 * squares, or with relu); sums of dy and dy (h - shift), of which dy can be the gradient of a relu, in place;
 * dx (PUSH) or dx += (ADD), with these sums or not. The operation and the three flags below are compile-time
 * constants of the loops. */
typedef enum feature_work {
    SQUARES,
    MOMENTS,
    NORM,
    NORM_SQUARES,
    NORM_RELU,
    SUMS,
    SUMS_RELU,
    PUSH,
    PUSH_SUMS,
    ADD,
    ADD_SUMS,
    N_WORKS
} feature_work;
enum { SCALED = 1, PLAIN = 2, STREAM = 4, N_CHOICES = 8 };

NM_INLINE vf h_at(const row_view v, const bool scaled, vf row_scale, int32_t j, int32_t count)
{
    vf x = v_load_upto(v.x + j, count);
    return scaled ? v_mul(x, row_scale) : x;
}

NM_INLINE vf away_of(const row_view v, const bool plain, vf h, int32_t j)
{
    return plain ? h : v_sub(h, v_load(v.shift + j));
}

/* Sums of h - shift, if `mean`, and of (h - shift)^2; masked lanes of h and of the shift are 0. */
NM_INLINE void moments_columns(const row_view v, const bool scaled, const bool plain, const bool mean,
                               vf row_scale, int32_t j, int32_t count)
{
    vf h = h_at(v, scaled, row_scale, j, count), away = plain ? h : v_sub(h, v_load_upto(v.shift + j, count));
    if (mean)
        nm_add_to(v.sums + j, away);
    nm_fma_to(v.second + j, away, away);
}

NM_INLINE void norm_columns(const row_view v, const feature_work work, const unsigned how, vf row_scale,
                            int32_t j, int32_t count)
{
    const bool scaled = how & SCALED, stream = how & STREAM;
    vf h = h_at(v, scaled, row_scale, j, count);
    if (scaled && !stream)
        __builtin_prefetch(v.next_x + j);
    vf y = v_fma(v_load(v.weight + j), away_of(v, how & PLAIN, h, j), v_load(v.bias + j));
    if (work == NORM_RELU)
        y = v_max(v_set(0), v.added ? v_add(v_load_upto(v.added + j, count), y) : y);
    nm_store(v.y + j, count, stream, y);
    if (work == NORM_SQUARES)
        nm_fma_to(v.second + j, h, h);
}

/* dh = a dy + c0 + c1 (h - shift) */
NM_INLINE vf dh_of(const row_view v, const bool plain, vf up, vf away, int32_t j)
{
    vf c1 = v_load(v.c1 + j), along = plain ? v_mul(c1, away) : v_fma(c1, away, v_load(v.bias + j));
    return v_fma(v_load(v.weight + j), up, along);
}

/* Mean of dh h over a group from column `first` on: the term of the gradient through the row scale. */
NM_INLINE float projection_of(const row_view v, const bool plain, vf row_scale, int32_t first, int32_t n)
{
    vf sums[NM_ACCUMULATORS][NM_SUM_VECTORS] = {{{0}}};
#define STEP(i, v_, j, count)                                                                                \
    do {                                                                                                     \
        vf h = h_at(v, true, row_scale, first + (j), count);                                                 \
        vf up = v_load_upto(v.dy + first + (j), count);                                                      \
        vf dh = dh_of(v, plain, up, away_of(v, plain, h, first + (j)), first + (j));                         \
        sums[i][v_] = v_fma(dh, h, sums[i][v_]);                                                             \
    } while (0)
    NM_SUM_LANES(n, STEP);
#undef STEP
    return (float)(nm_sum_lanes(sums) / n);
}

/* dy of `count` columns, multiplied by relu'(y) in place if `relu`. */
NM_INLINE vf gradient_of(float *dy, const float *y, const bool relu, int32_t count)
{
    const vf up = v_load_upto(dy, count);
    if (!relu)
        return up;
    const vf down = v_mul(up, v_keep_above(v_load_upto(y, count), v_set(0), v_set(1)));
    v_store_upto(dy, count, down);
    return down;
}

NM_INLINE void grad_columns(const row_view v, const feature_work work, const unsigned how, vf row_scale,
                            vf projection, int32_t j, int32_t count)
{
    vf up = gradient_of(v.dy + j, v.y + j, work == SUMS_RELU, count),
       h = h_at(v, how & SCALED, row_scale, j, count);
    vf away = away_of(v, how & PLAIN, h, j);
    if (work >= PUSH) {
        vf down = dh_of(v, how & PLAIN, up, away, j);
        if (how & SCALED)
            down = v_mul(row_scale, v_sub(down, v_mul(h, projection)));
        if (work == ADD || work == ADD_SUMS)
            down = v_add(v_load_upto(v.y + j, count), down);
        nm_store(v.y + j, count, how & STREAM, down);
    }
    if (work < PUSH || work == PUSH_SUMS || work == ADD_SUMS) {
        nm_add_to(v.sums + j, up);
        nm_fma_to(v.second + j, up, away);
    }
}

NM_INLINE void run_columns(const row_view v, const feature_work work, const unsigned how, vf row_scale,
                           vf projection, int32_t first, int32_t n)
{
#define MOMENTS_STEP(j, count)                                                                               \
    moments_columns(v, how &SCALED, how &PLAIN, work == MOMENTS, row_scale, first + (j), count)
#define NORM_STEP(j, count) norm_columns(v, work, how, row_scale, first + (j), count)
#define GRAD_STEP(j, count) grad_columns(v, work, how, row_scale, projection, first + (j), count)
    if (work == SQUARES || work == MOMENTS)
        NM_COLUMNS(n, MOMENTS_STEP);
    else if (work < SUMS)
        NM_COLUMNS(n, NORM_STEP);
    else
        NM_COLUMNS(n, GRAD_STEP);
}

/* Groups first .. first + n - 1 of a row, at most GROUPS. */
NM_INLINE void run_groups(const feature_call *call, const row_view v, const feature_work work,
                          const unsigned how, int32_t row, int32_t first, int32_t n)
{
    NM_ALIGNED float scales[GROUPS];
    float projections[GROUPS] = {0};
    const int32_t width = call->width;
    load_row_scales(call, row, first, n, scales);
    if (work >= PUSH)
        for (int32_t i = 0; i < n; i++)
            projections[i] = projection_of(v, how & PLAIN, v_set(scales[i]), (first + i) * width, width);
    for (int32_t i = 0; i < n; i++)
        run_columns(v, work, how, v_set(scales[i]), v_set(projections[i]), (first + i) * width, width);
}

NM_INLINE row_view view_row(const feature_call *call, const feature_work work, int32_t row, float *sums)
{
    return (row_view){.x = nm_row(call->x, row),
                      .next_x = nm_row(call->x, row) + (call->late ? call->x.stride : 0),
                      .dy = work >= SUMS ? nm_row(call->dy, row) : NULL,
                      .added = call->added.data ? nm_row(call->added, row) : NULL,
                      .y = work <= MOMENTS || work == SUMS ? NULL : nm_row(call->y, row),
                      .shift = call->shift,
                      .weight = call->weight,
                      .bias = call->bias,
                      .c1 = call->c1,
                      .sums = sums,
                      .second = sums + nm_padded(call->x.cols)};
}

enum { ROWS = 4 };

/* Passes that only compute sums process ROWS rows at a time, with one load and store of each sum. The order
 * of additions does not change. Matrices that do not fit the last-level cache are read row by row, because
 * the hardware prefetcher does not follow several rows at once. */
NM_INLINE void sum_rows(const row_view v, const feature_work work, const unsigned how, ptrdiff_t x_stride,
                        ptrdiff_t dy_stride, ptrdiff_t y_stride, int32_t j, int32_t count)
{
    vf sum = v_load(v.sums + j), second = v_load(v.second + j);
    const vf shift = how & PLAIN ? v_set(0) : v_load_upto(v.shift + j, count);
    for (ptrdiff_t r = 0; r < ROWS; r++) {
        vf x = v_load_upto(v.x + r * x_stride + j, count), away = how & PLAIN ? x : v_sub(x, shift);
        vf up = work < SUMS
                    ? away
                    : gradient_of(v.dy + r * dy_stride + j, v.y + r * y_stride + j, work == SUMS_RELU, count);
        if (work != SQUARES)
            sum = v_add(sum, up);
        second = v_fma(up, away, second);
    }
    v_store(v.sums + j, sum);
    v_store(v.second + j, second);
}

NM_INLINE void run_rows(const feature_call *call, const feature_work work, const unsigned how, int32_t begin,
                        int32_t end, float *sums)
{
    int32_t row = begin;
    const int32_t n = call->x.cols;
    if (!(how & SCALED) && (work <= MOMENTS || work == SUMS || work == SUMS_RELU) && !call->row_by_row)
        for (; row + ROWS <= end; row += ROWS) {
            const row_view v = view_row(call, work, row, sums);
            const ptrdiff_t x_stride = call->x.stride, dy_stride = call->dy.stride, y_stride = call->y.stride;
#define SUM_STEP(j, count) sum_rows(v, work, how, x_stride, dy_stride, y_stride, j, count)
            NM_COLUMNS(n, SUM_STEP);
        }
    for (; row < end; row++) {
        const row_view v = view_row(call, work, row, sums);
        if (!(how & SCALED))
            run_columns(v, work, how, v_set(1), v_set(0), 0, n);
        else
            for (int32_t first = 0; first < call->groups; first += GROUPS)
                run_groups(call, v, work, how, row, first, nm_min_i32(call->groups - first, GROUPS));
    }
}

/* Processes rows begin .. end - 1; their sums are added to sums[0 ..] and sums[padded ..]. */
typedef void rows_kernel(const feature_call *call, int32_t begin, int32_t end, float *sums);

#define KERNEL(work, how)                                                                                    \
    static void work##_##how(const feature_call *call, int32_t begin, int32_t end, float *sums)              \
    {                                                                                                        \
        run_rows(call, work, how, begin, end, sums);                                                         \
    }
#define KERNELS(work)                                                                                        \
    KERNEL(work, 0)                                                                                          \
    KERNEL(work, 1)                                                                                          \
    KERNEL(work, 2) KERNEL(work, 3) KERNEL(work, 4) KERNEL(work, 5) KERNEL(work, 6) KERNEL(work, 7)
#define NAMES(work)                                                                                          \
    {                                                                                                        \
        work##_0, work##_1, work##_2, work##_3, work##_4, work##_5, work##_6, work##_7                       \
    }
KERNELS(SQUARES)
KERNELS(MOMENTS)
KERNELS(NORM)
KERNELS(NORM_SQUARES)
KERNELS(NORM_RELU)
KERNELS(SUMS)
KERNELS(SUMS_RELU)
KERNELS(PUSH)
KERNELS(PUSH_SUMS)
KERNELS(ADD)
KERNELS(ADD_SUMS)

static rows_kernel *const kernels[N_WORKS][N_CHOICES] = {
    NAMES(SQUARES),   NAMES(MOMENTS), NAMES(NORM),      NAMES(NORM_SQUARES), NAMES(NORM_RELU), NAMES(SUMS),
    NAMES(SUMS_RELU), NAMES(PUSH),    NAMES(PUSH_SUMS), NAMES(ADD),          NAMES(ADD_SUMS)};

/* Workspace of a call: total sums, first and second; parameter vectors; sums of each block. */
typedef struct feature_workspace {
    double *sums, *second;
    float *vector, *partials;
    int32_t blocks;
} feature_workspace;

static feature_workspace workspace_init(nm_backend *b, nm_mat x, int32_t vectors)
{
    size_t padded = nm_padded(x.cols);
    feature_workspace workspace = {.blocks = nm_ceil_div(x.rows, NM_NORM_ROWS)};
    size_t floats = (size_t)(vectors + 2 * workspace.blocks) * padded;
    workspace.sums =
        nm_backend_scratch(b, NM_CPU_PARTIALS, 2 * padded * sizeof(double) + floats * sizeof(float));
    workspace.second = workspace.sums + padded;
    workspace.vector = (float *)(void *)(workspace.second + padded);
    workspace.partials = workspace.vector + (size_t)vectors * padded;
    return workspace;
}

static void run_blocks(nm_backend *b, const feature_call *call, feature_work work,
                       const feature_workspace *workspace)
{
    size_t size = 2 * nm_padded(call->x.cols);
    unsigned flags = (call->scaled ? SCALED : 0u) | (call->plain ? PLAIN : 0u) | (call->stream ? STREAM : 0u);
    rows_kernel *run = kernels[work][flags];
    int32_t threads = nm_threads_for(b, (size_t)call->x.rows * (size_t)call->x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < workspace->blocks; i++) {
        float *sums = workspace->partials + (size_t)i * size;
        memset(sums, 0, size * sizeof(float));
        const int32_t begin = i * NM_NORM_ROWS, end = nm_min_i32(call->x.rows, begin + NM_NORM_ROWS);
        if (call->residual.on && work < SUMS)
            nm_residual_rows(&call->residual, call->x, begin < call->n_summed ? call->n_summed : begin, end);
        run(call, begin, end, sums);
        if (call->residual.on && work >= PUSH)
            nm_residual_grad_rows(&call->residual, call->y, begin, end);
        if (call->stream)
            v_stream_end();
    }
    if (work != NORM && work != NORM_RELU && work != PUSH && work != ADD)
        nm_sum_blocks(b, workspace->partials, workspace->blocks, (int32_t)size, workspace->sums);
}

static const float *padded_vector(const void *given, int32_t d, float otherwise, float **vector)
{
    const float *padded = nm_padded_vector(given, d, d, otherwise, *vector);
    *vector += nm_padded(d);
    return padded;
}

enum { ESTIMATE_ROWS = 16, FAR = 64 };

/* Estimate of the mean from the first rows, so that one pass gives mean and variance. */
static void estimate_center(const feature_call *call, float *center)
{
    int32_t rows = nm_min_i32(call->x.rows, ESTIMATE_ROWS);
    for (int32_t group = 0; group < call->groups; group++)
        for (int32_t i = 0; i < rows; i++) {
            float scale[GROUPS] = {1};
            if (call->scaled)
                load_row_scales(call, i, group, 1, scale);
            for (int32_t j = group * call->width; j < (group + 1) * call->width; j++)
                center[j] += nm_row(call->x, i)[j] * *scale / (float)rows;
        }
}

static float stored_square(double mean)
{
    return mean > (double)FLT_MAX / 2 ? FLT_MAX / 2 : (float)mean;
}

/* Mean and mean square from sums about a center:
 *     mean   = center + mean(h - center)
 *     square = mean((h - center)^2), or with about_mean
 *     square = mean((h - center)^2) - mean(h - center)^2
 * Returns whether the distance of a center from the mean was too many standard deviations for a difference of
 * squares. */
static bool store_moments(const feature_call *call, const feature_workspace *workspace, bool about_mean,
                          float *mean, float *square)
{
    bool far = false;
    double n = call->x.rows;
    for (int32_t j = 0; j < call->x.cols; j++) {
        double off = workspace->sums[j] / n, about_center = workspace->second[j] / n;
        double own = about_mean ? about_center - off * off : about_center;
        far |= about_mean && off * off > FAR * own;
        if (mean)
            mean[j] = (float)((double)call->shift[j] + off);
        if (square)
            square[j] = stored_square(own < 0 ? 0 : own);
    }
    return far;
}

/* If center == mean the variance is computed about an estimate of the mean and corrected; if the estimate was
 * too far from the mean, in a second pass. */
static void feature_moments(nm_backend *b, const nm_feature_moments_args *args)
{
    const nm_mat x = args->x;
    const void *center = args->center;
    void *mean = args->mean, *square = args->square;
    feature_call call = prepare_feature_norm(args->spec, x, args->row_scale);
    feature_workspace workspace = workspace_init(b, x, 1);
    bool about_mean = center && center == mean;
    float *estimate = workspace.vector;
    call.shift = padded_vector(about_mean ? NULL : center, x.cols, 0, &workspace.vector);
    call.plain = !center;
    if (about_mean) {
        call.n_summed = nm_min_i32(x.rows, ESTIMATE_ROWS);
        nm_residual_rows(&call.residual, x, 0, call.n_summed);
        estimate_center(&call, estimate);
    }
    run_blocks(b, &call, mean ? MOMENTS : SQUARES, &workspace);
    if (!store_moments(&call, &workspace, about_mean, mean, square) || !square)
        return;
    memcpy(estimate, mean, (size_t)x.cols * sizeof(float));
    call.measured = true; /* the first pass has computed the row scales and the residual connection */
    call.residual.on = false;
    run_blocks(b, &call, MOMENTS, &workspace);
    store_moments(&call, &workspace, about_mean, mean, square);
}

static const float *scaled_vector(const float *vector, const float *scale, int32_t d, float *product)
{
    for (int32_t j = 0; j < (int32_t)nm_padded(d); j++)
        product[j] = vector[j] * scale[j];
    return product;
}

static void feature_norm(nm_backend *b, const nm_feature_norm_args *args)
{
    const nm_mat x = args->x, y = args->y;
    const void *shift = args->shift;
    void *square = args->square;
    NM_ASSERT(nm_same_shape(x, y));
    feature_call call = prepare_feature_norm(args->spec, x, args->row_scale);
    float *squares = square;
    feature_workspace workspace = workspace_init(b, x, 5);
    call.y = y;
    call.shift = padded_vector(shift, x.cols, 0, &workspace.vector);
    call.weight = padded_vector(args->weight, x.cols, 1, &workspace.vector);
    call.weight = scaled_vector(call.weight, padded_vector(args->scale, x.cols, 1, &workspace.vector), x.cols,
                                workspace.vector);
    workspace.vector += nm_padded(x.cols);
    call.bias = padded_vector(args->bias, x.cols, 0, &workspace.vector);
    call.stream = nm_use_streaming(y) && call.width % NM_W == 0;
    call.plain = !shift;
    call.late = !call.measured && !call.row_by_row;
    NM_ASSERT(!args->added.data || (args->relu && nm_same_shape(x, args->added)));
    NM_ASSERT(!args->relu || !square);
    call.added = args->added;
    run_blocks(b, &call, args->relu ? NORM_RELU : square ? NORM_SQUARES : NORM, &workspace);
    for (int32_t j = 0; square && j < x.cols; j++)
        squares[j] = stored_square(workspace.second[j] / x.rows);
}

static void feature_norm_grad(nm_backend *b, const nm_feature_norm_grad_args *args)
{
    const nm_mat dy = args->dy, x = args->x, dx = args->dx;
    const void *shift = args->shift, *c0 = args->c0;
    void *sum_dy = args->sum_dy, *sum_dy_z = args->sum_dy_z;
    NM_ASSERT(nm_same_shape(x, dy) && (!dx.data || (nm_same_shape(x, dx) && !args->relu.data)));
    /* the row scales are only read */
    feature_call call = prepare_feature_norm(args->spec, x, (float *)(uintptr_t)args->row_scale);
    float *sums = sum_dy, *sums_z = sum_dy_z;
    feature_workspace workspace = workspace_init(b, x, 6);
    call.measured = true;
    call.dy = dy;
    call.y = args->relu.data ? args->relu : dx;
    call.shift = padded_vector(shift, x.cols, 0, &workspace.vector);
    const float *whole_scale = padded_vector(args->scale, x.cols, 1, &workspace.vector);
    call.weight = padded_vector(args->a, x.cols, 1, &workspace.vector);
    call.bias = padded_vector(c0, x.cols, 0, &workspace.vector);
    call.c1 = scaled_vector(padded_vector(args->c1, x.cols, 0, &workspace.vector), whole_scale, x.cols,
                            workspace.vector);
    bool measure = sum_dy || sum_dy_z;
    feature_work work = args->relu.data ? SUMS_RELU
                        : !dx.data      ? SUMS
                        : args->add     ? (measure ? ADD_SUMS : ADD)
                        : measure       ? PUSH_SUMS
                                        : PUSH;
    NM_ASSERT(dx.data || !args->residual);
    call.residual = nm_residual_of_grad(args->residual, dx);
    call.stream = dx.data && nm_use_streaming(dx) && call.width % NM_W == 0 && !call.residual.on;
    call.plain = !shift && !c0;
    run_blocks(b, &call, work, &workspace);
    for (int32_t j = 0; measure && j < x.cols; j++) {
        if (sum_dy)
            sums[j] = (float)workspace.sums[j];
        if (sum_dy_z)
            sums_z[j] = (float)(workspace.second[j] * (double)whole_scale[j]);
    }
}

void NM_SIMD(nm_cpu_feature_norm)(nm_kernels *k)
{
    k->feature_moments = feature_moments;
    k->feature_norm = feature_norm;
    k->feature_norm_grad = feature_norm_grad;
}
