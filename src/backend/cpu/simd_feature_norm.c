/* Norms per feature: BatchNorm, PowerNorm and kin, see include/norma/backend.h:
 *     h = x row_scale     z = (h - shift) scale     y = gain z + bias
 * Rows go four at a time through all columns; sums over rows are kept in double per block of rows. */
#include "backend/cpu/norm_parts.h"

typedef struct feature_call {
    const nm_feature_norm *spec;
    nm_mat x, y, dy; /* backward: y is dx */
    float *row_scale;
    const float *shift, *scale, *gain, *bias; /* whole vectors; backward: gain is a, bias is c0 */
    const float *c1;
    int32_t groups, width; /* at least one group: all columns when there is no row scale */
    bool scaled, measured, sums, squares, push, add;
} feature_call;

static feature_call prepare(const nm_feature_norm *spec, nm_mat x, void *row_scale)
{
    NM_ASSERT(spec->groups >= 0 && (spec->groups == 0 || (x.cols % spec->groups == 0 && row_scale)));
    int32_t groups = spec->groups ? spec->groups : 1;
    return (feature_call){.spec = spec,
                          .x = x,
                          .row_scale = row_scale,
                          .groups = groups,
                          .width = x.cols / groups,
                          .scaled = spec->groups > 0,
                          .measured = spec->row_scale_ready};
}

static float measure_scale(const nm_feature_norm *spec, int32_t n, const float *x)
{
    vf sum[2] = {v_set(0), v_set(0)};
    for (int32_t j = 0; j < n; j += NM_W) {
        vf value = v_load_upto(x + j, n - j);
        sum[j / NM_W % 2] = v_fma(value, value, sum[j / NM_W % 2]);
    }
    return (float)(1 / sqrt(v_sum(v_add(sum[0], sum[1])) / n + spec->eps));
}

/* The row scales of `rows` rows for the group that begins at column `first`. */
static void take_scales(const feature_call *call, int32_t row, int32_t rows, int32_t first,
                        float scales[NM_NORM_QUAD])
{
    for (int32_t i = 0; i < rows; i++) {
        scales[i] = 1;
        if (!call->scaled)
            continue;
        float *at =
            call->row_scale + (size_t)(row + i) * (size_t)call->groups + (size_t)(first / call->width);
        if (!call->measured)
            *at = measure_scale(call->spec, call->width, nm_row(call->x, row + i) + first);
        scales[i] = *at;
    }
}

/* What one pass needs for one group of some rows; pointers begin at the group's columns. */
typedef struct group_rows {
    const float *x[NM_NORM_QUAD], *dy[NM_NORM_QUAD];
    float *y[NM_NORM_QUAD]; /* backward: dx */
    vf scales[NM_NORM_QUAD], projection[NM_NORM_QUAD];
    const float *shift, *scale, *gain, *bias, *c1;
    double *sums, *second;
} group_rows;

NM_INLINE vf h_at(const group_rows *g, int i, int32_t j, int32_t count, const bool scaled)
{
    vf x = v_load_upto(g->x[i] + j, count);
    return scaled ? v_mul(x, g->scales[i]) : x;
}

/* Sums of h - shift and of (h - shift)^2. */
NM_INLINE void moments_columns(const group_rows *g, const int rows, const bool scaled, int32_t j,
                               int32_t count)
{
    vf center = v_load_upto(g->shift + j, count), sum = v_set(0), square = v_set(0);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        vf away = v_sub(h_at(g, i, j, count, scaled), center);
        sum = v_add(sum, away);
        square = v_fma(away, away, square);
    }
    v_accumulate(g->sums + j, sum);
    v_accumulate(g->second + j, square);
}

NM_INLINE void norm_columns(const group_rows *g, const int rows, const bool scaled, const bool squares,
                            int32_t j, int32_t count)
{
    vf shift = v_load(g->shift + j), scale = v_load(g->scale + j);
    vf gain = v_load(g->gain + j), bias = v_load(g->bias + j), square = v_set(0);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        vf h = h_at(g, i, j, count, scaled);
        v_store_upto(g->y[i] + j, count, v_fma(gain, v_mul(v_sub(h, shift), scale), bias));
        square = v_fma(h, h, square);
    }
    if (squares)
        v_accumulate(g->second + j, square);
}

/* Sums of dh h for every row: what the row scale's own dependence on x takes away, times the width. */
NM_INLINE void project_columns(group_rows *g, const int rows, int32_t j, int32_t count)
{
    vf shift = v_load(g->shift + j), scale = v_load(g->scale + j);
    vf gain = v_load(g->gain + j), bias = v_load(g->bias + j), c1 = v_load(g->c1 + j);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        vf h = h_at(g, i, j, count, true), z = v_mul(v_sub(h, shift), scale);
        vf dh = v_fma(gain, v_load_upto(g->dy[i] + j, count), v_fma(c1, z, bias));
        g->projection[i] = v_fma(dh, h, g->projection[i]);
    }
}

NM_INLINE void grad_columns(const group_rows *g, const int rows, const bool scaled, const bool sums,
                            const bool push, const bool add, int32_t j, int32_t count)
{
    vf shift = v_load(g->shift + j), scale = v_load(g->scale + j), sum = v_set(0), sum_z = v_set(0);
    vf gain = v_load(g->gain + j), bias = v_load(g->bias + j), c1 = v_load(g->c1 + j);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        vf up = v_load_upto(g->dy[i] + j, count), h = h_at(g, i, j, count, scaled);
        vf z = v_mul(v_sub(h, shift), scale);
        sum = v_add(sum, up);
        sum_z = v_fma(up, z, sum_z);
        if (!push)
            continue;
        vf down = v_fma(gain, up, v_fma(c1, z, bias));
        if (scaled)
            down = v_mul(g->scales[i], v_sub(down, v_mul(h, g->projection[i])));
        if (add)
            down = v_add(v_load_upto(g->y[i] + j, count), down);
        v_store_upto(g->y[i] + j, count, down);
    }
    if (sums) {
        v_accumulate(g->sums + j, sum);
        v_accumulate(g->second + j, sum_z);
    }
}

typedef enum feature_work { MOMENTS, NORM, GRAD } feature_work;

/* One group of `rows` rows. Everything constant where it matters: whole fours of rows, with or without row
 * scales. */
NM_INLINE void run_rows(const feature_call *call, feature_work work, const int rows, const bool scaled,
                        group_rows *g)
{
    const int32_t n = call->width;
#define MOMENTS_STEP(j, count) moments_columns(g, rows, scaled, j, count)
#define NORM_STEP(j, count)    norm_columns(g, rows, scaled, call->squares, j, count)
#define PROJECT_STEP(j, count) project_columns(g, rows, j, count)
#define SUMS_STEP(j, count)    grad_columns(g, rows, scaled, true, false, false, j, count)
#define PUSH_STEP(j, count)    grad_columns(g, rows, scaled, false, true, false, j, count)
#define GRAD_STEP(j, count)    grad_columns(g, rows, scaled, call->sums, call->push, call->add, j, count)
    if (work == MOMENTS) {
        NM_COLUMNS(n, MOMENTS_STEP);
        return;
    }
    if (work == NORM) {
        NM_COLUMNS(n, NORM_STEP);
        return;
    }
    if (scaled && call->push) {
        NM_COLUMNS(n, PROJECT_STEP);
        for (int i = 0; i < rows; i++)
            g->projection[i] = v_set((float)(v_sum(g->projection[i]) / n));
    }
    if (!call->push)
        NM_COLUMNS(n, SUMS_STEP);
    else if (!call->sums && !call->add)
        NM_COLUMNS(n, PUSH_STEP);
    else
        NM_COLUMNS(n, GRAD_STEP);
}

static group_rows group_at(const feature_call *call, int32_t row, int32_t rows, int32_t first, double *sums)
{
    float scales[NM_NORM_QUAD];
    group_rows g = {.shift = call->shift + first,
                    .scale = call->scale + first,
                    .gain = call->gain + first,
                    .bias = call->bias + first,
                    .c1 = call->c1 + first,
                    .sums = sums + first,
                    .second = sums + nm_padded(call->x.cols) + first};
    take_scales(call, row, rows, first, scales);
    for (int32_t i = 0; i < rows; i++) {
        g.x[i] = nm_row(call->x, row + i) + first;
        g.dy[i] = call->dy.data ? nm_row(call->dy, row + i) + first : NULL;
        g.y[i] = call->y.data ? nm_row(call->y, row + i) + first : NULL;
        g.scales[i] = v_set(scales[i]);
        g.projection[i] = v_set(0);
    }
    return g;
}

/* A block of rows; its partial sums begin at `sums`. */
static void run_block(const feature_call *call, feature_work work, int32_t block, double *sums)
{
    int32_t row = block * NM_NORM_ROWS, end = nm_at_most(call->x.rows, row + NM_NORM_ROWS);
    memset(sums, 0, 2 * nm_padded(call->x.cols) * sizeof(double));
    for (int32_t rows; row < end; row += rows) {
        rows = end - row >= NM_NORM_QUAD ? NM_NORM_QUAD : 1;
        for (int32_t first = 0; first < call->x.cols; first += call->width) {
            group_rows g = group_at(call, row, rows, first, sums);
            if (rows == NM_NORM_QUAD && call->scaled)
                run_rows(call, work, NM_NORM_QUAD, true, &g);
            else if (rows == NM_NORM_QUAD)
                run_rows(call, work, NM_NORM_QUAD, false, &g);
            else
                run_rows(call, work, 1, call->scaled, &g);
        }
    }
}

static void run_blocks(nm_backend *b, const feature_call *call, feature_work work, double *partials)
{
    int32_t blocks = nm_pieces(call->x.rows, NM_NORM_ROWS);
    int32_t threads = nm_threads_for(b, (size_t)call->x.rows * (size_t)call->x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++)
        run_block(call, work, i, partials + (size_t)(2 * i) * nm_padded(call->x.cols));
}

/* Scratch: two partial sums per block, then `vectors` whole vectors from *vector on. */
static double *take_partials(nm_backend *b, nm_mat x, int32_t vectors, float **vector)
{
    size_t doubles = (size_t)(2 * nm_pieces(x.rows, NM_NORM_ROWS)) * nm_padded(x.cols);
    double *partials = nm_backend_scratch(
        b, NM_CPU_PARTIALS, doubles * sizeof(double) + (size_t)vectors * nm_padded(x.cols) * sizeof(float));
    *vector = (float *)(void *)(partials + doubles);
    return partials;
}

static const float *whole(const void *given, int32_t d, float otherwise, float **vector)
{
    const float *made = nm_whole_vector(given, d, d, otherwise, *vector);
    *vector += nm_padded(d);
    return made;
}

static double joined(const double *partials, nm_mat x, int32_t which, int32_t j)
{
    size_t padded = nm_padded(x.cols);
    return nm_join(partials + (size_t)which * padded, nm_pieces(x.rows, NM_NORM_ROWS), 2 * padded, j);
}

enum { GUESS_ROWS = 16, FAR = 64 };

/* A center near the mean: the mean of the first rows, so that one pass can give mean and variance. */
static void guess_center(const feature_call *call, float *center)
{
    int32_t rows = nm_at_most(call->x.rows, GUESS_ROWS), d = call->x.cols;
    for (int32_t first = 0; first < d; first += call->width)
        for (int32_t i = 0; i < rows; i++) {
            float scale[NM_NORM_QUAD];
            take_scales(call, i, 1, first, scale);
            for (int32_t j = first; j < first + call->width; j++)
                center[j] += nm_row(call->x, i)[j] * scale[0] / (float)rows;
        }
}

/* mean = center + mean(h - center), and the mean square about the mean or about the center. Returns whether a
 * center was too far from the mean for a difference of squares, in standard deviations. */
static bool store_moments(const feature_call *call, const double *partials, bool about_mean, float *mean,
                          float *square)
{
    bool far = false;
    double n = call->x.rows;
    for (int32_t j = 0; j < call->x.cols; j++) {
        double off = joined(partials, call->x, 0, j) / n, about_center = joined(partials, call->x, 1, j) / n;
        double own = about_mean ? about_center - off * off : about_center;
        far |= about_mean && off * off > FAR * own;
        if (mean)
            mean[j] = (float)((double)call->shift[j] + off);
        if (square)
            square[j] = (float)(own < 0 ? 0 : own);
    }
    return far;
}

/* With center == mean the variance is taken about a guess of the mean and corrected, in a second pass where
 * the guess was bad. */
static void feature_moments(nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale,
                            const void *center, void *mean, void *square)
{
    feature_call call = prepare(spec, x, row_scale);
    float *vector;
    double *partials = take_partials(b, x, 1, &vector);
    bool about_mean = center && center == mean;
    float *shift = vector;
    call.shift = whole(about_mean ? NULL : center, x.cols, 0, &vector);
    if (about_mean)
        guess_center(&call, shift);
    run_blocks(b, &call, MOMENTS, partials);
    if (!store_moments(&call, partials, about_mean, mean, square) || !square)
        return;
    memcpy(shift, mean, (size_t)x.cols * sizeof(float));
    call.measured = true; /* the first pass left the row scales */
    run_blocks(b, &call, MOMENTS, partials);
    store_moments(&call, partials, about_mean, mean, square);
}

static void feature_norm(nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale,
                         const void *shift, const void *scale, const void *gain, const void *bias, nm_mat y,
                         void *square)
{
    NM_ASSERT(nm_same_shape(x, y));
    feature_call call = prepare(spec, x, row_scale);
    float *vector, *squares = square;
    double *partials = take_partials(b, x, 4, &vector);
    call.y = y;
    call.shift = whole(shift, x.cols, 0, &vector);
    call.scale = whole(scale, x.cols, 1, &vector);
    call.gain = whole(gain, x.cols, 1, &vector);
    call.bias = whole(bias, x.cols, 0, &vector);
    call.squares = square != NULL;
    run_blocks(b, &call, NORM, partials);
    for (int32_t j = 0; square && j < x.cols; j++)
        squares[j] = (float)(joined(partials, x, 1, j) / x.rows);
}

static void feature_norm_grad(nm_backend *b, const nm_feature_norm *spec, nm_mat dy, nm_mat x,
                              const void *row_scale, const void *shift, const void *scale, const void *a,
                              const void *c0, const void *c1, bool add, nm_mat dx, void *sum_dy,
                              void *sum_dy_z)
{
    NM_ASSERT(nm_same_shape(x, dy) && (!dx.data || nm_same_shape(x, dx)));
    feature_call call = prepare(spec, x, (float *)(uintptr_t)row_scale); /* only read */
    float *vector, *sums = sum_dy, *sums_z = sum_dy_z;
    double *partials = take_partials(b, x, 5, &vector);
    call.measured = true;
    call.dy = dy;
    call.y = dx;
    call.shift = whole(shift, x.cols, 0, &vector);
    call.scale = whole(scale, x.cols, 1, &vector);
    call.gain = whole(a, x.cols, 1, &vector);
    call.bias = whole(c0, x.cols, 0, &vector);
    call.c1 = whole(c1, x.cols, 0, &vector);
    call.sums = sum_dy || sum_dy_z;
    call.push = dx.data != NULL;
    call.add = add;
    run_blocks(b, &call, GRAD, partials);
    for (int32_t j = 0; call.sums && j < x.cols; j++) {
        if (sum_dy)
            sums[j] = (float)joined(partials, x, 0, j);
        if (sum_dy_z)
            sums_z[j] = (float)joined(partials, x, 1, j);
    }
}

void NM_SIMD(nm_cpu_feature_norm)(nm_kernels *k)
{
    k->feature_moments = feature_moments;
    k->feature_norm = feature_norm;
    k->feature_norm_grad = feature_norm_grad;
}
