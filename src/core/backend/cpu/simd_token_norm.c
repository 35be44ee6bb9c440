/* Normalization over the features of a token: LayerNorm and related norms, see nm_token_norm; formulas in
 * ref_token_norm.inc. A row is in L1 when its result is computed after its statistics. Gradients of
 * weight and bias are accumulated per block of rows. */
#include "backend/cpu/norm_parts.h"

/* scale = numerator / max(sqrt(squares / divisor + inside) + outside, least) */
typedef struct scale_rule {
    double numerator, divisor, inside, outside, least;
} scale_rule;

typedef struct token_call {
    const nm_token_norm *spec;
    nm_mat x, y, dy, dx;
    const float *weight, *bias; /* padded vectors */
    float *shift, *scale;
    int32_t width; /* of a group */
    int32_t used;  /* its first features, which determine the statistics */
    bool centered, adaptive, add, sums, stream;
    scale_rule rule;
    nm_norm_residual residual;
} token_call;

static double unbiased_divisor(int32_t n)
{
    return n > 1 ? n - 1 : 1;
}

/* n of the width features of a group determine its statistics. */
static scale_rule rule_of(const nm_token_norm *spec, int32_t n, int32_t width)
{
    switch (spec->kind) {
    case NM_TOKEN_CENTER:
    case NM_TOKEN_RMS:
        return (scale_rule){.numerator = 1, .divisor = n, .inside = spec->eps};
    case NM_TOKEN_CENTER_UNBIASED:
        return (scale_rule){.numerator = 1, .divisor = unbiased_divisor(n), .inside = spec->eps};
    case NM_TOKEN_RMS_OUTSIDE:
        return (scale_rule){.numerator = 1, .divisor = n, .outside = spec->eps};
    case NM_TOKEN_CENTER_OUTSIDE:
        return (scale_rule){.numerator = 1, .divisor = unbiased_divisor(n), .outside = spec->eps};
    case NM_TOKEN_L2:
        return (scale_rule){.numerator = pow(width, spec->power / 2), .divisor = 1, .least = spec->eps};
    }
    NM_ASSERT(false);
}

/* Scale of a group with this sum of squares, about the mean if the norm centers. */
NM_INLINE double scale_of(const scale_rule rule, double squares)
{
    double root = sqrt(squares / rule.divisor + rule.inside) + rule.outside;
    return rule.numerator / (root < rule.least ? rule.least : root);
}

/* Sums of x - center and of its squares, as vectors for vd_sum. */
NM_INLINE void folded_sums_about(int32_t n, const float *x, float center, vd *sum, vd *sum_square)
{
    vf sums[NM_SUM_VECTORS], squares[NM_SUM_VECTORS];
    for (int32_t lane = 0; lane < NM_LANES; lane += NM_W) {
        vf away[NM_ACCUMULATORS] = {v_set(0), v_set(0), v_set(0), v_set(0)},
           square[NM_ACCUMULATORS] = {v_set(0), v_set(0), v_set(0), v_set(0)};
#define STEP(i, j, count)                                                                                    \
    do {                                                                                                     \
        vf d = v_sub(v_load_upto(x + (j), count), v_set(center));                                            \
        d = (count) < NM_W ? v_first(d, count) : d;                                                          \
        away[i] = v_add(away[i], d);                                                                         \
        square[i] = v_fma(d, d, square[i]);                                                                  \
    } while (0)
        NM_SUM_LANE(n, lane, STEP);
#undef STEP
        sums[lane / NM_W] = n < NM_SUM_BLOCK ? away[0] : nm_sum_accumulators(away);
        squares[lane / NM_W] = n < NM_SUM_BLOCK ? square[0] : nm_sum_accumulators(square);
    }
    *sum = v_fold_lanes(sums);
    *sum_square = v_fold_lanes(squares);
}

NM_INLINE void sums_about(int32_t n, const float *x, float center, double *sum, double *sum_square)
{
    vd folded, folded_square;
    folded_sums_about(n, x, center, &folded, &folded_square);
    *sum = vd_sum(folded);
    *sum_square = vd_sum(folded_square);
}

enum { FAR = 4 }; /* mean^2/variance above which a difference of squares is not accurate enough */

/* Returns n times the variance and sets *mean: in one pass, and in a second one about the mean if the mean is
 * far from 0. The center is not estimated from the row first, because all sums and the loads of the next rows
 * would wait for the estimate. */
static double center_group(int32_t n, const float *x, double *mean)
{
    double sum, square;
    sums_about(n, x, 0, &sum, &square);
    *mean = sum / n;
    if (!(square < INFINITY)) {
        *mean = 0;
        for (int32_t j = 0; j < n; j++)
            *mean += (double)x[j] / n;
        return nm_wide_sum_of_squares(n, x, *mean);
    }
    if (sum * *mean <= FAR * (square - sum * *mean))
        return square - sum * *mean;
    const float center = (float)*mean;
    sums_about(n, x, center, &sum, &square);
    *mean = (double)center + sum / n;
    return fmax(0, square - sum * sum / n);
}

/* Groups of a row whose statistics are computed together, to hide the latency of their sums, divisions and
 * square roots. */
enum { GROUPS = 8 };

/* sums[i]: sum of the lanes of folded[i]; overwrites folded[n] and the following vectors. */
NM_INLINE void sums_of_folded(vd folded[GROUPS], int32_t n, double sums[GROUPS])
{
    for (int32_t i = n; i < GROUPS; i++)
        folded[i] = vd_set(0);
    for (int32_t i = 0; i < GROUPS; i += NM_W / 2)
        vd_store(sums + i, vd_sums(folded + i));
}

/* center_group for n groups; bitwise identical. */
NM_INLINE void center_groups(const token_call *call, const float *x, int32_t n, double means[GROUPS],
                             double squares[GROUPS])
{
    const int32_t width = call->width;
    vd folded[GROUPS], folded_square[GROUPS];
    NM_ALIGNED double sums[GROUPS];
    int64_t near = 1;
    for (int32_t i = 0; i < n; i++)
        folded_sums_about(width, x + (size_t)i * (size_t)width, 0, &folded[i], &folded_square[i]);
    sums_of_folded(folded, n, sums);
    sums_of_folded(folded_square, n, squares);
    for (int32_t i = 0; i < GROUPS; i++) {
        double square = squares[i], off = sums[i] * (sums[i] / width);
        means[i] = sums[i] / width;
        squares[i] = square - off;
        near &= (int64_t)(square < INFINITY) & (int64_t)(off <= FAR * squares[i]);
    }
    for (int32_t i = 0; !near && i < n; i++)
        squares[i] = center_group(width, x + (size_t)i * (size_t)width, &means[i]);
}

/* Columns first .. first + n - 1 of a row, all of one group. */
NM_INLINE void write_columns(const token_call *call, int32_t row, int32_t first, int32_t n, float mean,
                             float factor)
{
    const float *x = nm_row(call->x, row) + first, *weight = call->weight + first, *bias = call->bias + first;
    float *y = nm_row(call->y, row) + first;
    vf shift = v_set(mean), scale = v_set(factor);
    const vf ada_c = v_set((float)call->spec->ada_c),
             bend = v_set((float)(-call->spec->ada_c * call->spec->ada_k));
#define XHAT(j, count) v_mul(v_sub(v_load_upto(x + j, count), shift), scale)
#define STEP(j, count, stream)                                                                               \
    nm_store(y + j, count, stream, v_fma(v_load(weight + j), XHAT(j, count), v_load(bias + j)))
#define STREAM(j, count) STEP(j, count, true)
#define STORE(j, count)  STEP(j, count, false)
#define ADAPT(j, count)                                                                                      \
    do {                                                                                                     \
        vf xhat = XHAT(j, count);                                                                            \
        nm_store(y + j, count, call->stream, v_mul(v_fma(bend, xhat, ada_c), xhat));                         \
    } while (0)
    if (call->adaptive)
        NM_COLUMNS(n, ADAPT);
    else if (call->stream)
        NM_COLUMNS(n, STREAM);
    else
        NM_COLUMNS(n, STORE);
#undef ADAPT
#undef STORE
#undef STREAM
#undef STEP
#undef XHAT
}

/* Stores the statistics of n groups from number `at` of the batch on. */
NM_INLINE void store_statistics(const token_call *call, size_t at, int32_t n, const float *means,
                                const float *factors)
{
    if (call->shift && call->centered)
        memcpy(call->shift + at, means, (size_t)n * sizeof *means);
    if (call->scale)
        memcpy(call->scale + at, factors, (size_t)n * sizeof *factors);
}

static void forward_row(const token_call *call, int32_t row)
{
    const int32_t n = call->width;
    const float *x = nm_row(call->x, row);
    double center = 0,
           squares = call->centered ? center_group(n, x, &center) : nm_sum_of_squares(call->used, x);
    const float mean = (float)center, factor = (float)scale_of(call->rule, squares);
    store_statistics(call, (size_t)row, 1, &mean, &factor);
    write_columns(call, row, 0, n, mean, factor);
}

/* Groups first .. first + n - 1 of a row, at most GROUPS. */
static void forward_groups(const token_call *call, int32_t row, int32_t first, int32_t n)
{
    const int32_t width = call->width;
    const float *x = nm_row(call->x, row) + (size_t)first * (size_t)width;
    NM_ALIGNED double centers[GROUPS] = {0}, squares[GROUPS] = {0};
    NM_ALIGNED float means[GROUPS], factors[GROUPS];
    if (call->centered)
        center_groups(call, x, n, centers, squares);
    for (int32_t i = 0; !call->centered && i < n; i++)
        squares[i] = nm_sum_of_squares(call->used, x + (size_t)i * (size_t)width);
    for (int32_t i = 0; i < GROUPS; i++) { /* not only n, so that the compiler vectorizes the square roots */
        means[i] = (float)centers[i];
        factors[i] = (float)scale_of(call->rule, squares[i]);
    }
    store_statistics(call, (size_t)row * (size_t)call->spec->groups + (size_t)first, n, means, factors);
    for (int32_t i = 0; i < n; i++)
        write_columns(call, row, (first + i) * width, width, means[i], factors[i]);
}

static token_call prepare_token_norm(const nm_token_norm *spec, nm_mat x)
{
    NM_ASSERT(spec->groups > 0 && x.cols % spec->groups == 0);
    NM_ASSERT(spec->weight_len == 0 || spec->weight_len == 1 || spec->weight_len == x.cols);
    NM_ASSERT(spec->bias_len == 0 || spec->bias_len == 1 || spec->bias_len == x.cols);
    const int32_t width = x.cols / spec->groups, used = spec->n_used ? spec->n_used : width;
    const bool centered = nm_token_norm_centers(spec->kind);
    const bool adaptive = spec->ada_c > 0;
    NM_ASSERT(spec->n_used >= 0 && used <= width && (used == width || !centered));
    NM_ASSERT(!adaptive || (spec->weight_len == 0 && spec->bias_len == 0));
    return (token_call){.spec = spec,
                        .x = x,
                        .width = width,
                        .used = used,
                        .rule = rule_of(spec, used, width),
                        .centered = centered,
                        .adaptive = adaptive};
}

static void token_norm(nm_backend *b, const nm_token_norm_args *args)
{
    const nm_mat x = args->x, y = args->y;
    token_call call = prepare_token_norm(args->spec, x);
    NM_ASSERT(nm_same_shape(x, y));
    float *vectors = nm_backend_scratch(b, NM_CPU_PARTIALS, 2 * nm_padded(x.cols) * sizeof(float));
    call.weight = nm_padded_vector(args->weight, args->spec->weight_len, x.cols, 1, vectors);
    call.bias = nm_padded_vector(args->bias, args->spec->bias_len, x.cols, 0, vectors + nm_padded(x.cols));
    call.y = y;
    call.stream = nm_use_streaming(y) && call.width % NM_W == 0;
    call.shift = args->shift;
    call.scale = args->scale;
    call.residual = nm_residual_of_sum(args->sum, x);
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
    int32_t blocks = nm_ceil_div(x.rows, NM_NORM_ROWS), groups = args->spec->groups;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++) {
        int32_t end = nm_min_i32(x.rows, (i + 1) * NM_NORM_ROWS);
        for (int32_t row = i * NM_NORM_ROWS; row < end; row++) {
            if (call.residual.on)
                nm_residual_rows(&call.residual, x, row, row + 1);
            if (groups == 1)
                forward_row(&call, row);
            else
                for (int32_t first = 0; first < groups; first += GROUPS)
                    forward_groups(&call, row, first, nm_min_i32(groups - first, GROUPS));
        }
        if (call.stream)
            v_stream_end();
    }
}

/* Factor of xhat sum(q xhat) in dx, for x in the columns whose features determine the statistics. Below eps
 * the scale of an L2 norm is a constant. */
static double projection_weight(const token_call *call, const float *x, float shift, float scale)
{
    const scale_rule rule = call->rule;
    double root, scale_eps = (double)scale * call->spec->eps;
    switch (call->spec->kind) {
    case NM_TOKEN_CENTER:
    case NM_TOKEN_RMS:
    case NM_TOKEN_CENTER_UNBIASED:
        return 1 / rule.divisor;
    /* (root + eps)/root = 1/(1 - eps scale), inaccurate if the root is much below eps */
    case NM_TOKEN_RMS_OUTSIDE:
    case NM_TOKEN_CENTER_OUTSIDE:
        if (scale_eps < 0.5)
            return 1 / (rule.divisor * (1 - scale_eps));
        root = sqrt((call->centered ? nm_wide_sum_of_squares(call->used, x, (double)shift)
                                    : nm_sum_of_squares(call->used, x)) /
                    rule.divisor);
        return root > 0 ? (root + rule.outside) / (root * rule.divisor) : 0;
    case NM_TOKEN_L2:
        return scale_eps < (1 - 1e-6) * rule.numerator ? 1 / (rule.numerator * rule.numerator) : 0;
    }
    NM_ASSERT(false);
}

/* One group of one row:
 *     dx = scale (q - mean(q) - xhat weight sum(q xhat)) = scale q + xhat along + offset */
typedef struct group_grad {
    const float *x, *dy, *weight;
    float *dx, *weight_sums, *bias_sums;
    vf shift, scale, offset, along;
    vf ada_c, bend; /* weight of AdaNorm: ada_c + bend xhat */
} group_grad;

NM_INLINE vf xhat_at(const group_grad *g, int32_t j, int32_t count)
{
    return v_mul(v_sub(v_load_upto(g->x + j, count), g->shift), g->scale);
}

/* q = weight dy */
NM_INLINE vf weighted(const group_grad *g, const bool adaptive, int32_t j, vf up, vf xhat)
{
    return v_mul(adaptive ? v_fma(g->bend, xhat, g->ada_c) : v_load(g->weight + j), up);
}

NM_INLINE void group_sums(const token_call *call, const bool adaptive, float shift, float scale,
                          group_grad *g)
{
    int32_t n = call->width;
    vf sums_q[NM_SUM_VECTORS], sums_q_xhat[NM_SUM_VECTORS];
    for (int32_t lane = 0; lane < NM_LANES; lane += NM_W) {
        vf sum_q[NM_ACCUMULATORS] = {v_set(0), v_set(0), v_set(0), v_set(0)},
           sum_q_xhat[NM_ACCUMULATORS] = {v_set(0), v_set(0), v_set(0), v_set(0)};
#define STEP(i, j, count)                                                                                    \
    do {                                                                                                     \
        vf xhat = xhat_at(g, j, count), q = weighted(g, adaptive, j, v_load_upto(g->dy + (j), count), xhat); \
        sum_q[i] = v_add(sum_q[i], q);                                                                       \
        sum_q_xhat[i] = v_fma(q, xhat, sum_q_xhat[i]);                                                       \
    } while (0)
        NM_SUM_LANE(n, lane, STEP);
#undef STEP
        sums_q[lane / NM_W] = nm_sum_accumulators(sum_q);
        sums_q_xhat[lane / NM_W] = nm_sum_accumulators(sum_q_xhat);
    }
    double mean = call->centered ? v_sum_lanes(sums_q) / n : 0;
    double projection = v_sum_lanes(sums_q_xhat) * projection_weight(call, g->x, shift, scale);
    g->offset = v_set((float)(-mean * (double)scale));
    g->along = v_set((float)(-projection * (double)scale));
}

NM_INLINE void grad_columns(const group_grad *g, const bool adaptive, const bool add, const bool sums,
                            const bool stream, int32_t j, int32_t count)
{
    vf up = v_load_upto(g->dy + j, count), xhat = xhat_at(g, j, count);
    vf q = weighted(g, adaptive, j, up, xhat), down = v_fma(q, g->scale, v_fma(xhat, g->along, g->offset));
    if (add)
        down = v_add(v_load_upto(g->dx + j, count), down);
    nm_store(g->dx + j, count, stream, down);
    if (sums) {
        nm_fma_to(g->weight_sums + j, up, xhat);
        nm_add_to(g->bias_sums + j, up);
    }
}

/* dx of the next n columns of a group, and their contribution to the sums. */
NM_INLINE void write_grads(const token_call *call, const bool adaptive, const group_grad *g, int32_t n)
{
#define WITH_SUMS(j, count)        grad_columns(g, false, false, true, false, j, count)
#define STREAM_WITH_SUMS(j, count) grad_columns(g, false, false, true, true, j, count)
#define ADD_WITH_SUMS(j, count)    grad_columns(g, false, true, true, false, j, count)
#define WITHOUT(j, count)          grad_columns(g, false, call->add, false, false, j, count)
#define ADAPTIVE(j, count)         grad_columns(g, true, call->add, false, false, j, count)
    if (adaptive)
        NM_COLUMNS(n, ADAPTIVE);
    else if (!call->sums)
        NM_COLUMNS(n, WITHOUT);
    else if (call->add)
        NM_COLUMNS(n, ADD_WITH_SUMS);
    else if (call->stream)
        NM_COLUMNS(n, STREAM_WITH_SUMS);
    else
        NM_COLUMNS(n, WITH_SUMS);
#undef ADAPTIVE
#undef WITHOUT
#undef ADD_WITH_SUMS
#undef STREAM_WITH_SUMS
#undef WITH_SUMS
}

/* Continues n columns later, where the statistics do not depend on x: dx = scale q. */
NM_INLINE void skip_columns(group_grad *g, int32_t n)
{
    g->x += n;
    g->dy += n;
    g->dx += n;
    g->weight += n;
    g->weight_sums += n;
    g->bias_sums += n;
    g->along = v_set(0);
}

/* dx of one group of a row, and its contribution to the sums of the block: [weight, bias], padded vectors. */
NM_INLINE void grad_group(const token_call *call, const bool adaptive, const bool partial, int32_t row,
                          int32_t group, float *sums)
{
    int32_t first = group * call->width;
    size_t at = (size_t)row * (size_t)call->spec->groups + (size_t)group;
    const float shift = call->centered ? call->shift[at] : 0, scale = call->scale[at];
    group_grad g = {.x = nm_row(call->x, row) + first,
                    .dy = nm_row(call->dy, row) + first,
                    .dx = nm_row(call->dx, row) + first,
                    .weight = call->weight + first,
                    .weight_sums = sums + first,
                    .bias_sums = sums + nm_padded(call->x.cols) + first,
                    .shift = v_set(shift),
                    .scale = v_set(scale)};
    if (adaptive) {
        g.ada_c = v_set((float)call->spec->ada_c);
        g.bend = v_set((float)(-call->spec->ada_c * call->spec->ada_k));
    }
    group_sums(call, adaptive, shift, scale, &g);
    write_grads(call, adaptive, &g, partial ? call->used : call->width);
    if (partial) {
        skip_columns(&g, call->used);
        write_grads(call, adaptive, &g, call->width - call->used);
    }
}

/* Three functions, so that the usual norms do not have the branches and registers of the others. */
static void grad_plain(const token_call *call, int32_t row, int32_t group, float *sums)
{
    grad_group(call, false, false, row, group, sums);
}

static void grad_partial(const token_call *call, int32_t row, int32_t group, float *sums)
{
    grad_group(call, false, true, row, group, sums);
}

static void grad_adaptive(const token_call *call, int32_t row, int32_t group, float *sums)
{
    grad_group(call, true, false, row, group, sums);
}

/* to += sums; for a parameter of length 1, the sum over all columns is added */
static void add_sums(const double *sums, int32_t cols, int32_t length, float *to)
{
    double all = 0;
    if (!to || length == 0)
        return;
    for (int32_t j = 0; j < cols; j++) {
        all += sums[j];
        if (length > 1)
            to[j] = (float)((double)to[j] + sums[j]);
    }
    if (length == 1)
        to[0] = (float)((double)to[0] + all);
}

static void run_grad(nm_backend *b, const token_call *call, int32_t blocks, float *partials)
{
    size_t size = 2 * nm_padded(call->x.cols);
    void (*const grad)(const token_call *call, int32_t row, int32_t group, float *sums) =
        call->adaptive             ? grad_adaptive
        : call->used < call->width ? grad_partial
                                   : grad_plain;
    int32_t threads = nm_threads_for(b, (size_t)call->x.rows * (size_t)call->x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++) {
        float *sums = partials + (size_t)i * size;
        int32_t end = nm_min_i32(call->x.rows, (i + 1) * NM_NORM_ROWS);
        memset(sums, 0, size * sizeof(float));
        for (int32_t row = i * NM_NORM_ROWS; row < end; row++) {
            for (int32_t group = 0; group < call->spec->groups; group++)
                grad(call, row, group, sums);
            if (call->residual.on)
                nm_residual_grad_rows(&call->residual, call->dx, row, row + 1);
        }
        if (call->stream)
            v_stream_end();
    }
}

static void token_norm_grad(nm_backend *b, const nm_token_norm_grad_args *args)
{
    const nm_mat dy = args->dy, x = args->x, dx = args->dx;
    void *d_weight = args->d_weight, *d_bias = args->d_bias;
    NM_ASSERT(nm_same_shape(x, dy) && nm_same_shape(x, dx));
    token_call call = prepare_token_norm(args->spec, x);
    size_t padded = nm_padded(x.cols);
    int32_t blocks = nm_ceil_div(x.rows, NM_NORM_ROWS);
    double *sums =
        nm_backend_scratch(b, NM_CPU_PARTIALS,
                           2 * padded * sizeof(double) + ((size_t)(2 * blocks) + 1) * padded * sizeof(float));
    float *vector = (float *)(void *)(sums + 2 * padded), *partials = vector + padded;
    call.weight = nm_padded_vector(args->weight, args->spec->weight_len, x.cols, 1, vector);
    call.dy = dy;
    call.dx = dx;
    call.shift = (float *)(uintptr_t)args->shift; /* only read */
    call.scale = (float *)(uintptr_t)args->scale;
    call.add = args->add;
    call.residual = nm_residual_of_grad(args->residual, dx);
    call.stream =
        nm_use_streaming(dx) && call.width % NM_W == 0 && call.used % NM_W == 0 && !call.residual.on;
    call.sums = (d_weight && args->spec->weight_len) || (d_bias && args->spec->bias_len);
    run_grad(b, &call, blocks, partials);
    if (!call.sums)
        return;
    nm_sum_blocks(b, partials, blocks, (int32_t)(2 * padded), sums);
    add_sums(sums, x.cols, args->spec->weight_len, d_weight);
    add_sums(sums + padded, x.cols, args->spec->bias_len, d_bias);
}

void NM_SIMD(nm_cpu_token_norm)(nm_kernels *k)
{
    k->token_norm = token_norm;
    k->token_norm_grad = token_norm_grad;
}
