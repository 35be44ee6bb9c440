/* Norms per feature: BatchNorm, PowerNorm and kin, see include/norma/backend.h:
 *     h = x row_scale     z = (h - shift) scale     y = gain z + bias
 * Rows go four at a time through all columns; sums over rows are kept in double per block of rows. */
#include "backend/cpu/norm_parts.h"

typedef struct feature_call {
    const nm_feature_norm *spec;
    nm_mat x, y, dy, dx;
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

/* Sums of h (when wanted) and of (h - shift)^2 over some rows of one group. */
static void moments_rows(const feature_call *call, int32_t row, int32_t rows, int32_t first,
                         const float *scales, double *sums, double *squares)
{
    int32_t n = call->width;
    for (int32_t j = 0; j < n; j += NM_W) {
        vf center = v_load_upto(call->shift + first + j, n - j), sum = v_set(0), square = v_set(0);
        for (int32_t i = 0; i < rows; i++) {
            vf h = v_mul(v_load_upto(nm_row(call->x, row + i) + first + j, n - j), v_set(scales[i]));
            vf away = v_sub(h, center);
            sum = v_add(sum, h);
            square = v_fma(away, away, square);
        }
        if (call->sums)
            v_accumulate(sums + first + j, sum);
        if (call->squares)
            v_accumulate(squares + first + j, square);
    }
}

static void norm_rows(const feature_call *call, int32_t row, int32_t rows, int32_t first, const float *scales,
                      double *squares)
{
    int32_t n = call->width;
    for (int32_t j = 0; j < n; j += NM_W) {
        vf shift = v_load(call->shift + first + j), scale = v_load(call->scale + first + j);
        vf gain = v_load(call->gain + first + j), bias = v_load(call->bias + first + j), square = v_set(0);
        for (int32_t i = 0; i < rows; i++) {
            vf h = v_mul(v_load_upto(nm_row(call->x, row + i) + first + j, n - j), v_set(scales[i]));
            vf z = v_mul(v_sub(h, shift), scale);
            v_store_upto(nm_row(call->y, row + i) + first + j, n - j, v_fma(gain, z, bias));
            square = v_fma(h, h, square);
        }
        if (call->squares)
            v_accumulate(squares + first + j, square);
    }
}

/* The values at columns j.. of one row in the backward pass. */
typedef struct grad_values {
    vf up, h, z, dh;
} grad_values;

NM_INLINE grad_values values_at(const feature_call *call, int32_t row, float row_scale, int32_t col,
                                int32_t left)
{
    grad_values g;
    g.up = v_load_upto(nm_row(call->dy, row) + col, left);
    g.h = v_mul(v_load_upto(nm_row(call->x, row) + col, left), v_set(row_scale));
    g.z = v_mul(v_sub(g.h, v_load(call->shift + col)), v_load(call->scale + col));
    g.dh =
        v_fma(v_load(call->gain + col), g.up, v_fma(v_load(call->c1 + col), g.z, v_load(call->bias + col)));
    return g;
}

/* mean of dh h over the group: what the row scale's own dependence on x takes away */
static float projection_of(const feature_call *call, int32_t row, int32_t first, float row_scale)
{
    int32_t n = call->width;
    vf sum = v_set(0);
    for (int32_t j = 0; j < n; j += NM_W) {
        grad_values g = values_at(call, row, row_scale, first + j, n - j);
        sum = v_fma(g.dh, g.h, sum);
    }
    return (float)(v_sum(sum) / n);
}

static void grad_rows(const feature_call *call, int32_t row, int32_t rows, int32_t first, const float *scales,
                      double *sums, double *sums_z)
{
    int32_t n = call->width;
    float projection[NM_NORM_QUAD] = {0};
    for (int32_t i = 0; call->push && call->scaled && i < rows; i++)
        projection[i] = projection_of(call, row + i, first, scales[i]);
    for (int32_t j = 0; j < n; j += NM_W) {
        vf sum = v_set(0), sum_z = v_set(0);
        for (int32_t i = 0; i < rows; i++) {
            grad_values g = values_at(call, row + i, scales[i], first + j, n - j);
            sum = v_add(sum, g.up);
            sum_z = v_fma(g.up, g.z, sum_z);
            if (!call->push)
                continue;
            float *dx = nm_row(call->dx, row + i) + first + j;
            vf down = v_mul(v_set(scales[i]), v_sub(g.dh, v_mul(g.h, v_set(projection[i]))));
            v_store_upto(dx, n - j, call->add ? v_add(v_load_upto(dx, n - j), down) : down);
        }
        if (call->sums) {
            v_accumulate(sums + first + j, sum);
            v_accumulate(sums_z + first + j, sum_z);
        }
    }
}

typedef enum feature_work { MOMENTS, NORM, GRAD } feature_work;

/* A block of rows; its partial sums begin at `sums`. */
static void run_block(const feature_call *call, feature_work work, int32_t block, double *sums)
{
    double *second = sums + nm_padded(call->x.cols);
    int32_t end = nm_at_most(call->x.rows, (block + 1) * NM_NORM_ROWS);
    if (call->sums || call->squares)
        memset(sums, 0, 2 * nm_padded(call->x.cols) * sizeof(double));
    for (int32_t row = block * NM_NORM_ROWS; row < end; row += NM_NORM_QUAD)
        for (int32_t first = 0; first < call->x.cols; first += call->width) {
            float scales[NM_NORM_QUAD];
            int32_t rows = nm_at_most(end - row, NM_NORM_QUAD);
            take_scales(call, row, rows, first, scales);
            if (work == MOMENTS)
                moments_rows(call, row, rows, first, scales, sums, second);
            else if (work == NORM)
                norm_rows(call, row, rows, first, scales, second);
            else
                grad_rows(call, row, rows, first, scales, sums, second);
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

/* With center == mean the mean comes first, rounded to float; the squares are taken about that and corrected
 * to the mean itself. */
static void feature_moments(nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale,
                            const void *center, void *mean, void *square)
{
    feature_call call = prepare(spec, x, row_scale);
    float *vector, *means = mean, *squares = square;
    double *partials = take_partials(b, x, 2, &vector), n = x.rows;
    bool two = center && center == mean && square;
    call.shift = whole(two ? NULL : center, x.cols, 0, &vector);
    call.sums = mean != NULL;
    call.squares = square && !two;
    run_blocks(b, &call, MOMENTS, partials);
    for (int32_t j = 0; j < x.cols; j++) {
        if (mean)
            means[j] = (float)(joined(partials, x, 0, j) / n);
        if (call.squares)
            squares[j] = (float)(joined(partials, x, 1, j) / n);
    }
    if (!two)
        return;
    call.shift = whole(means, x.cols, 0, &vector);
    call.squares = call.measured = true; /* the first pass left the row scales */
    run_blocks(b, &call, MOMENTS, partials);
    for (int32_t j = 0; j < x.cols; j++) {
        double off = joined(partials, x, 0, j) / n - (double)means[j];
        squares[j] = (float)(joined(partials, x, 1, j) / n - off * off);
    }
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
    call.dx = dx;
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
