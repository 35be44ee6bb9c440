/* Norms per token and group of features: LayerNorm and kin, see include/norma/backend.h. A row stays in L1
 * between its statistics and its result. Backward takes four rows together; the sums for gain and bias are
 * kept per block of rows. The formulas of the backward pass stand in the plain kernels. */
#include "backend/cpu/norm_parts.h"

typedef struct token_call {
    const nm_token_norm *spec;
    nm_mat x, y, dy, dx;
    const float *gain, *bias; /* whole vectors */
    float *shift, *scale;
    int32_t width; /* of a group */
    bool centered, add, sums;
} token_call;

static double unbiased_divisor(int32_t n)
{
    return n > 1 ? n - 1 : 1;
}

enum { LANES = 4 }; /* sums kept side by side, so that additions need not wait for each other */

static vf join_lanes(const vf sum[LANES])
{
    return v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3]));
}

/* Mean and variance (times n) in two passes; the second corrects the rounding of the first mean. */
static double center_group(int32_t n, const float *x, double *mean)
{
    vf sum[LANES] = {v_set(0), v_set(0), v_set(0), v_set(0)},
       square[LANES] = {sum[0], sum[0], sum[0], sum[0]};
    int32_t whole = n / (LANES * NM_W) * (LANES * NM_W);
    for (int32_t j = 0; j < whole; j += LANES * NM_W)
        for (int32_t i = 0; i < LANES; i++)
            sum[i] = v_add(sum[i], v_load(x + j + i * NM_W));
    for (int32_t j = whole; j < n; j += NM_W)
        sum[0] = v_add(sum[0], v_load_upto(x + j, n - j));
    float first = (float)(v_sum(join_lanes(sum)) / n);
    vf away[LANES] = {v_set(0), v_set(0), v_set(0), v_set(0)};
    for (int32_t j = 0; j < whole; j += LANES * NM_W)
        for (int32_t i = 0; i < LANES; i++) {
            vf d = v_sub(v_load(x + j + i * NM_W), v_set(first));
            away[i] = v_add(away[i], d);
            square[i] = v_fma(d, d, square[i]);
        }
    for (int32_t j = whole; j < n; j += NM_W) {
        vf d = v_first(v_sub(v_load_upto(x + j, n - j), v_set(first)), nm_at_most(n - j, NM_W));
        away[0] = v_add(away[0], d);
        square[0] = v_fma(d, d, square[0]);
    }
    double off = v_sum(join_lanes(away));
    *mean = (double)first + off / n;
    return v_sum(join_lanes(square)) - off * off / n;
}

static double sum_of_squares(int32_t n, const float *x)
{
    vf sum[LANES] = {v_set(0), v_set(0), v_set(0), v_set(0)};
    int32_t whole = n / (LANES * NM_W) * (LANES * NM_W);
    for (int32_t j = 0; j < whole; j += LANES * NM_W)
        for (int32_t i = 0; i < LANES; i++) {
            vf value = v_load(x + j + i * NM_W);
            sum[i] = v_fma(value, value, sum[i]);
        }
    for (int32_t j = whole; j < n; j += NM_W) {
        vf value = v_load_upto(x + j, n - j);
        sum[0] = v_fma(value, value, sum[0]);
    }
    return v_sum(join_lanes(sum));
}

static double scale_of(const nm_token_norm *spec, int32_t n, double squares)
{
    switch (spec->form) {
    case NM_TOKEN_CENTER:
    case NM_TOKEN_RMS:
        return 1 / sqrt(squares / n + spec->eps);
    case NM_TOKEN_CENTER_UNBIASED:
        return 1 / sqrt(squares / unbiased_divisor(n) + spec->eps);
    case NM_TOKEN_RMS_OUTSIDE:
        return 1 / (sqrt(squares / n) + spec->eps);
    case NM_TOKEN_LENGTH:
        return 1 / (sqrt(squares) < spec->eps ? spec->eps : sqrt(squares));
    }
    NM_ASSERT(false);
}

static void forward_group(const token_call *call, int32_t row, int32_t group)
{
    int32_t n = call->width, first = group * n;
    const float *x = nm_row(call->x, row) + first, *gain = call->gain + first, *bias = call->bias + first;
    float *y = nm_row(call->y, row) + first;
    size_t at = (size_t)row * (size_t)call->spec->groups + (size_t)group;
    double mean = 0, squares = call->centered ? center_group(n, x, &mean) : sum_of_squares(n, x);
    double factor = scale_of(call->spec, n, squares);
    if (call->shift && call->centered)
        call->shift[at] = (float)mean;
    if (call->scale)
        call->scale[at] = (float)factor;
    vf shift = v_set((float)mean), scale = v_set((float)factor);
#define STEP(j, count)                                                                                       \
    v_store_upto(                                                                                            \
        y + j, count,                                                                                        \
        v_fma(v_load(gain + j), v_mul(v_sub(v_load_upto(x + j, count), shift), scale), v_load(bias + j)))
    NM_COLUMNS(n, STEP);
#undef STEP
}

static token_call prepare(const nm_token_norm *spec, nm_mat x)
{
    NM_ASSERT(spec->groups > 0 && x.cols % spec->groups == 0);
    NM_ASSERT(spec->gain_length == 0 || spec->gain_length == 1 || spec->gain_length == x.cols);
    NM_ASSERT(spec->bias_length == 0 || spec->bias_length == 1 || spec->bias_length == x.cols);
    return (token_call){.spec = spec,
                        .x = x,
                        .width = x.cols / spec->groups,
                        .centered = spec->form == NM_TOKEN_CENTER || spec->form == NM_TOKEN_CENTER_UNBIASED};
}

static void token_norm(nm_backend *b, const nm_token_norm *spec, nm_mat x, const void *gain, const void *bias,
                       nm_mat y, void *shift, void *scale)
{
    token_call call = prepare(spec, x);
    NM_ASSERT(nm_same_shape(x, y));
    float *vectors = nm_backend_scratch(b, NM_CPU_PARTIALS, 2 * nm_padded(x.cols) * sizeof(float));
    call.gain = nm_whole_vector(gain, spec->gain_length, x.cols, 1, vectors);
    call.bias = nm_whole_vector(bias, spec->bias_length, x.cols, 0, vectors + nm_padded(x.cols));
    call.y = y;
    call.shift = shift;
    call.scale = scale;
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t row = 0; row < x.rows; row++)
        for (int32_t group = 0; group < spec->groups; group++)
            forward_group(&call, row, group);
}

/* The factor of xhat sum(q xhat) in dx. */
static double projection_weight(const nm_token_norm *spec, int32_t n, const float *x)
{
    double root;
    switch (spec->form) {
    case NM_TOKEN_CENTER:
    case NM_TOKEN_RMS:
        return 1.0 / n;
    case NM_TOKEN_CENTER_UNBIASED:
        return 1 / unbiased_divisor(n);
    case NM_TOKEN_RMS_OUTSIDE:
        root = sqrt(sum_of_squares(n, x) / n);
        return root > 0 ? (root + spec->eps) / (root * n) : 0;
    case NM_TOKEN_LENGTH:
        return sqrt(sum_of_squares(n, x)) > spec->eps ? 1 : 0;
    }
    NM_ASSERT(false);
}

/* One group of one row: dx = scale (q - mean - xhat projection). */
typedef struct group_grad {
    const float *x, *dy;
    float *dx;
    vf shift, scale, mean, projection, sum_q, sum_q_xhat;
} group_grad;

NM_INLINE void measure_columns(const int rows, group_grad *g, const float *gain, int32_t j, int32_t count)
{
    vf weight = v_load(gain + j);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        vf q = v_mul(weight, v_load_upto(g[i].dy + j, count));
        vf xhat = v_mul(v_sub(v_load_upto(g[i].x + j, count), g[i].shift), g[i].scale);
        g[i].sum_q = v_add(g[i].sum_q, q);
        g[i].sum_q_xhat = v_fma(q, xhat, g[i].sum_q_xhat);
    }
}

/* The numbers of `rows` rows from `row` on, for the group that begins at column `first`. */
NM_INLINE void measure_groups(const token_call *call, const int rows, int32_t row, int32_t first,
                              group_grad *g)
{
    const int32_t n = call->width;
    const float *gain = call->gain + first;
    for (int i = 0; i < rows; i++) {
        size_t at = (size_t)(row + i) * (size_t)call->spec->groups + (size_t)(first / n);
        g[i] = (group_grad){.x = nm_row(call->x, row + i) + first,
                            .dy = nm_row(call->dy, row + i) + first,
                            .dx = nm_row(call->dx, row + i) + first,
                            .shift = v_set(call->centered ? call->shift[at] : 0),
                            .scale = v_set(call->scale[at]),
                            .sum_q = v_set(0),
                            .sum_q_xhat = v_set(0)};
    }
#define STEP(j, count) measure_columns(rows, g, gain, j, count)
    NM_COLUMNS(n, STEP);
#undef STEP
    for (int i = 0; i < rows; i++) {
        g[i].mean = v_set(call->centered ? (float)(v_sum(g[i].sum_q) / n) : 0);
        g[i].projection = v_set((float)(v_sum(g[i].sum_q_xhat) * projection_weight(call->spec, n, g[i].x)));
    }
}

NM_INLINE void push_columns(const int rows, const group_grad *g, const float *gain, const bool add,
                            const bool sums, double *gain_sums, double *bias_sums, int32_t j, int32_t count)
{
    vf weight = v_load(gain + j), up_xhat = v_set(0), up_sum = v_set(0);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        vf up = v_load_upto(g[i].dy + j, count);
        vf xhat = v_mul(v_sub(v_load_upto(g[i].x + j, count), g[i].shift), g[i].scale);
        vf inner = v_sub(v_mul(weight, up), v_fma(xhat, g[i].projection, g[i].mean));
        vf down = v_mul(g[i].scale, inner);
        if (add)
            down = v_add(v_load_upto(g[i].dx + j, count), down);
        v_store_upto(g[i].dx + j, count, down);
        up_xhat = v_fma(up, xhat, up_xhat);
        up_sum = v_add(up_sum, up);
    }
    if (sums) {
        v_accumulate(gain_sums + j, up_xhat);
        v_accumulate(bias_sums + j, up_sum);
    }
}

/* dx of one group of `rows` rows; gain_sums and bias_sums begin at the group's columns and may be skipped */
NM_INLINE void grad_groups(const token_call *call, const int rows, const bool add, const bool sums,
                           int32_t row, int32_t first, double *gain_sums, double *bias_sums)
{
    const float *gain = call->gain + first;
    group_grad g[NM_NORM_QUAD];
    measure_groups(call, rows, row, first, g);
#define STEP(j, count) push_columns(rows, g, gain, add, sums, gain_sums, bias_sums, j, count)
    NM_COLUMNS(call->width, STEP);
#undef STEP
}

static void grad_quad(const token_call *call, int32_t row, int32_t first, double *gain_sums,
                      double *bias_sums)
{
    if (call->add && call->sums)
        grad_groups(call, NM_NORM_QUAD, true, true, row, first, gain_sums, bias_sums);
    else if (call->sums)
        grad_groups(call, NM_NORM_QUAD, false, true, row, first, gain_sums, bias_sums);
    else
        grad_groups(call, NM_NORM_QUAD, call->add, false, row, first, gain_sums, bias_sums);
}

static void backward_block(const token_call *call, int32_t first_row, int32_t end_row, double *gain_sums,
                           double *bias_sums)
{
    int32_t n = call->width;
    for (size_t j = 0; call->sums && j < nm_padded(call->x.cols); j++)
        gain_sums[j] = bias_sums[j] = 0;
    int32_t row = first_row;
    for (; row + NM_NORM_QUAD <= end_row; row += NM_NORM_QUAD)
        for (int32_t first = 0; first < call->x.cols; first += n)
            grad_quad(call, row, first, gain_sums + first, bias_sums + first);
    for (; row < end_row; row++)
        for (int32_t first = 0; first < call->x.cols; first += n)
            grad_groups(call, 1, call->add, call->sums, row, first, gain_sums + first, bias_sums + first);
}

/* to += sums over the blocks, in the order of the blocks; a parameter of length 1 gets the sum of all columns
 */
static void join_sums(const double *partials, int32_t blocks, size_t stride, int32_t cols, int32_t length,
                      float *to)
{
    double all = 0;
    if (!to || length == 0)
        return;
    for (int32_t j = 0; j < cols; j++) {
        double sum = nm_join(partials, blocks, stride, j);
        all += sum;
        if (length > 1)
            to[j] = (float)((double)to[j] + sum);
    }
    if (length == 1)
        to[0] = (float)((double)to[0] + all);
}

static void token_norm_grad(nm_backend *b, const nm_token_norm *spec, nm_mat dy, nm_mat x, const void *gain,
                            const void *shift, const void *scale, bool add, nm_mat dx, void *d_gain,
                            void *d_bias)
{
    NM_ASSERT(nm_same_shape(x, dy) && nm_same_shape(x, dx));
    token_call call = prepare(spec, x);
    size_t padded = nm_padded(x.cols);
    int32_t blocks = nm_pieces(x.rows, NM_NORM_ROWS);
    double *partials =
        nm_backend_scratch(b, NM_CPU_PARTIALS, (size_t)(2 * blocks + 1) * padded * sizeof(double));
    float *vector = (float *)(void *)(partials + (size_t)(2 * blocks) * padded);
    call.gain = nm_whole_vector(gain, spec->gain_length, x.cols, 1, vector);
    call.dy = dy;
    call.dx = dx;
    call.shift = (float *)(uintptr_t)shift; /* only read */
    call.scale = (float *)(uintptr_t)scale;
    call.add = add;
    call.sums = (d_gain && spec->gain_length) || (d_bias && spec->bias_length);
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++) {
        double *sums = partials + (size_t)(2 * i) * padded;
        backward_block(&call, i * NM_NORM_ROWS, nm_at_most(x.rows, (i + 1) * NM_NORM_ROWS), sums,
                       sums + padded);
    }
    join_sums(partials, blocks, 2 * padded, x.cols, spec->gain_length, d_gain);
    join_sums(partials + padded, blocks, 2 * padded, x.cols, spec->bias_length, d_bias);
}

void NM_SIMD(nm_cpu_token_norm)(nm_kernels *k)
{
    k->token_norm = token_norm;
    k->token_norm_grad = token_norm_grad;
}
