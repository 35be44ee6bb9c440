/* Moving Average Batch Normalization (Yan et al. 2020), as in the standalone module of
 * github.com/megvii-model/MABN.
 *
 * Definition. Update t (from 1) has n rows (tokens); h = x, or x scaled per row and group (option scaling); L
 * = window; W is the length of the warm-up:
 *
 *     p    = mean(h^2)                                                 batch_square
 *     v    = p                              while t <= L or t < W      used_square
 *     v    = mean of the last L values of p     afterwards             ring buffer buffer_x2
 *     rv   = moving average of v                                       running_var
 *
 * Forward, no gradient through r:
 *
 *     z    = h / sqrt(v + epsilon)
 *     r    = 1                              while t <= max(r_hold, W)
 *     r    = clip(sqrt(v + epsilon) / sqrt(rv + epsilon), 1/r_limit, r_limit)     afterwards
 *     y    = weight r z + bias                                         gain = weight r
 *
 * Backward, q = weight r dy:
 *
 *     g       = mean(q z)
 *     gbar    = g                           while t <= L or t < W
 *     gbar    = mean of the last L values of g     afterwards          ring buffer buffer_gz
 *     dh      = (q - z gbar) / sqrt(v + epsilon)
 *     dweight = sum(dy r z)
 *     dbias   = sum(dy)
 *
 * Running state, once per update: the ring buffers advance by one slot (t mod L), and
 *
 *     rv      = decay rv + (1 - decay) v
 *
 * Inference: y = weight h / sqrt(rv + epsilon) + bias.
 *
 * By design, the backward pass is not the exact gradient once the ring buffers are full. The released code
 * does not scale rows. It also centers the weights of each convolution: it subtracts from W its mean over the
 * inputs. For the linear layer after a norm (option center_weights)
 *
 *     (W - mean W) y = W (y - mean y)          means over the d features
 *
 * so the rows of y are centered instead. In the backward pass, dy is replaced by dy - mean(dy), the mean over
 * the features. In post-norm this also centers the residual stream. */
#include <math.h>

#include "norm/types.h"

typedef struct mabn_config {
    const char *warmup;
    nm_norm_scaling scaling;
    double decay, epsilon, r_limit;
    int64_t window, r_hold;
    bool center_weights;
} mabn_config;

/* clang-format off */
static const nm_option mabn_options[] = {
    NM_OPTION(mabn_config, window, "16", 1, 4096, "Number of updates in the moving averages."),
    NM_OPTION(mabn_config, warmup, "lr", 0, 0,
        "Number of updates that use batch statistics; lr: the warm-up of the learning rate."),
    NM_OPTION(mabn_config, decay, "0.98", 0, 1,
        "Weight of the old value in the running mean square; 1 - momentum of PyTorch."),
    NM_OPTION(mabn_config, epsilon, "1e-5", 0, 1, "Constant added to mean squares."),
    NM_OPTION(mabn_config, r_limit, "5", 1, 1e6,
        "Limit of the correction r, which stays between 1/r_limit and r_limit."),
    NM_OPTION(mabn_config, r_hold, "1000", 0, 1e15, "Number of updates without the correction r."),
    NM_OPTION(mabn_config, center_weights, "false", 0, 0,
              "Centering of the weights of the linear layer after the norm (pre-norm), computed by centering "
                  "the rows of the norm's output."),
    NM_CHOICE(mabn_config, scaling, "none", NM_NORM_SCALINGS, NM_NORM_SCALING_HELP),
    {0}};
/* clang-format on */

enum { RUNNING_VAR, RING_SQUARE, RING_GRAD }; /* state */
enum { UPDATES };                             /* counters */
enum { STATISTIC_SQUARE, STATISTIC_GRAD };    /* statistics of an update */

static int32_t groups_of(const nm_norm *norm)
{
    const mabn_config *config = norm->config;
    return nm_norm_scaling_groups(config->scaling, &norm->site);
}

static nm_status mabn_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const mabn_config *config = settings;
    if (config->window > INT32_MAX / site->width)
        return nm_fail(err, NM_USAGE, "norm '%s': window = %lld is too long", site->name,
                       (long long)config->window);
    NM_TRY(nm_norm_check_scaling(config->scaling, site, err));
    return nm_norm_check_warmup(&nm_norm_mabn, config->warmup, err);
}

static void mabn_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const mabn_config *config = settings;
    int32_t ring = (int32_t)config->window * site->width;
    nm_norm_shape_affine(settings, site, shape);
    nm_norm_shape_state(shape, "running_var", site->width, 1);
    nm_norm_shape_state(shape, "buffer_x2", ring, 0);
    nm_norm_shape_state(shape, "buffer_gz", ring, 0)->of_gradients = true;
    nm_norm_shape_counter(shape, "iters");
    nm_norm_shape_statistic(shape, "square", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "grad", NM_STATISTIC_MEAN);
}

static int64_t warmup_of(const nm_norm *norm)
{
    const mabn_config *config = norm->config;
    return nm_norm_warmup(config->warmup, norm->site.plan.warmup_updates);
}

/* average = the moving average at update t with `value` in slot t mod L. No later update reads the previous
 * contents of this slot, the value of update t - L, so every micro-batch may overwrite it, and finally the
 * value of the update does. */
static void ring_average(nm_norm_call *call, void *ring, int64_t t, const void *value, void *average)
{
    const mabn_config *config = call->norm->config;
    nm_backend *b = call->backend;
    int32_t width = call->norm->site.width;
    size_t bytes = (size_t)width * nm_dtype_bytes(b->dtype);
    nm_backend_copy(b, (char *)ring + (size_t)((uint64_t)t % (uint64_t)config->window) * bytes, value, bytes);
    if (t > config->window && t >= warmup_of(call->norm))
        NM_CALL(b, feature_moments, .spec = &(nm_feature_norm){0},
                .x = nm_mat_of(ring, (int32_t)config->window, width), .mean = average);
    else if (average != value)
        NM_NORM_VEC(call, COPY, .out = average, .a = value);
}

static void mabn_note(const nm_norm *norm, char *text, size_t size)
{
    nm_norm_note_warmup(warmup_of(norm), text, size);
}

/* m = m - row means of m */
static void center_rows(nm_norm_call *call, nm_mat m, void *means, void *ones)
{
    nm_backend *b = call->backend;
    NM_NORM_VEC(call, FILL, .out = ones, .s = 1);
    const nm_mat column = nm_mat_of(ones, m.cols, 1), row = nm_mat_of(ones, 1, m.cols);
    const nm_mat mean = nm_mat_of(means, m.rows, 1);
    NM_CALL(b, gemm, .alpha = 1.0 / m.cols, .a = m, .b = column, .c = mean);
    NM_CALL(b, gemm, .alpha = -1, .beta = 1, .a = mean, .b = row, .c = m);
}

/* r and gain = weight r */
static void correction(nm_norm_call *call, int64_t t, const void *v, void *r, void *gain)
{
    const nm_norm *norm = call->norm;
    const mabn_config *config = norm->config;
    if (t <= config->r_hold || t <= warmup_of(norm)) {
        NM_NORM_VEC(call, FILL, .out = r, .s = 1);
    } else {
        NM_NORM_VEC(call, SQRT, .out = r, .a = v, .s = config->epsilon);
        NM_NORM_VEC(call, RSQRT, .out = gain, .a = norm->state[RUNNING_VAR], .s = config->epsilon);
        NM_NORM_VEC(call, MUL, .out = r, .a = r, .b = gain, .s = 1);
        NM_NORM_VEC(call, CLIP, .out = r, .a = r, .s = 1 / config->r_limit, .t = config->r_limit);
    }
    NM_NORM_VEC(call, MUL, .out = gain, .a = norm->params[0], .b = r, .s = 1);
}

static void mabn_train(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const mabn_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width;
    int64_t t = call->update = norm->counters[UPDATES] + 1;
    void *row_scale;
    nm_feature_norm spec = nm_norm_row_scaling(call, groups_of(norm), &row_scale);
    void *p = nm_norm_publish(call, "batch_square", width);
    void *v = nm_norm_publish(call, "used_square", width);
    void *scale = nm_norm_publish(call, "scale", width);
    void *r = nm_norm_publish(call, "r", width);
    void *gain = nm_norm_publish(call, "gain", width);
    nm_norm_publish_state(call, RUNNING_VAR);
    void *ones = nm_norm_scratch(call, width), *means = nm_norm_scratch(call, call->x.rows);
    if (!means)
        return;
    NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .row_scale = row_scale, .square = p);
    spec.row_scale_ready = true;
    nm_norm_collect(call, STATISTIC_SQUARE, p);
    nm_norm_join_one(call, p, NM_STATISTIC_MEAN);
    ring_average(call, norm->state[RING_SQUARE], t, p, v);
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = v, .s = config->epsilon);
    correction(call, t, v, r, gain);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .scale = scale,
            .weight = gain, .bias = norm->params[1], .y = call->y);
    if (config->center_weights)
        center_rows(call, call->y, means, ones);
}

static void mabn_infer(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    const mabn_config *config = norm->config;
    nm_backend *b = call->backend;
    void *row_scale;
    const nm_feature_norm spec = nm_norm_row_scaling(call, groups_of(norm), &row_scale);
    void *scale = nm_norm_publish(call, "scale", norm->site.width);
    void *ones = nm_norm_scratch(call, norm->site.width);
    void *means = config->center_weights ? nm_norm_publish(call, "output_mean", call->x.rows) : ones;
    if (!means)
        return;
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = norm->state[RUNNING_VAR], .s = config->epsilon);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .scale = scale,
            .weight = norm->params[0], .bias = norm->params[1], .y = call->y);
    if (config->center_weights)
        center_rows(call, call->y, means, ones);
}

static void mabn_backward(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const mabn_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width, groups = groups_of(norm);
    const nm_feature_norm spec = {.groups = groups, .eps = NM_NORM_SCALING_EPSILON, .row_scale_ready = true};
    const void *row_scale = groups ? nm_norm_find(call, "row_scale") : NULL;
    const void *scale = nm_norm_find(call, "scale"), *gain = nm_norm_find(call, "gain");
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *a = nm_norm_scratch(call, width);
    void *c1 = nm_norm_scratch(call, width);
    void *ones = nm_norm_scratch(call, width), *means = nm_norm_scratch(call, call->x.rows);
    nm_mat dy = call->dy;
    if (config->center_weights)
        dy = nm_mat_of(nm_norm_scratch(call, dy.rows * width), dy.rows, width);
    if (!means || (config->center_weights && !dy.data))
        return;
    if (config->center_weights) {
        NM_CALL(b, scale, .alpha = 1, .x = call->dy, .y = dy);
        center_rows(call, dy, means, ones);
    }
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = dy, .x = call->x, .row_scale = row_scale,
            .scale = scale, .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    /* g; the ring buffer has gradients of the loss without grad_scale */
    NM_NORM_VEC(call, MUL, .out = a, .a = gain, .b = sum_dy_z, .s = 1 / (call->grad_scale * call->x.rows));
    nm_norm_collect(call, STATISTIC_GRAD, a);
    nm_norm_join_one(call, a, NM_STATISTIC_MEAN);
    ring_average(call, norm->state[RING_GRAD], call->update, a, c1);
    /* dh = a dy + c1 z:  a = gain/sqrt(v + epsilon),  c1 = -gbar/sqrt(v + epsilon) */
    NM_NORM_VEC(call, MUL, .out = c1, .a = c1, .b = scale, .s = -call->grad_scale);
    NM_NORM_VEC(call, MUL, .out = a, .a = gain, .b = scale, .s = 1);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = dy, .x = call->x, .row_scale = row_scale,
            .scale = scale, .a = a, .c1 = c1, .add = call->add, .dx = call->dx, .residual = call->residual);
    NM_NORM_VEC(call, MUL, .out = a, .a = nm_norm_find(call, "r"), .b = sum_dy_z, .s = 1);
    nm_norm_add_grads(call, a, sum_dy);
}

static void mabn_update_state(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const mabn_config *config = norm->config;
    if (norm->collected_rows[STATISTIC_SQUARE] > 0) {
        void *v = norm->statistics[STATISTIC_SQUARE];
        ring_average(call, norm->state[RING_SQUARE], ++norm->counters[UPDATES], v, v);
        nm_norm_average(call, norm->state[RUNNING_VAR], config->decay, v, 1 - config->decay);
    }
    if (norm->collected_rows[STATISTIC_GRAD] > 0) {
        void *g = norm->statistics[STATISTIC_GRAD];
        ring_average(call, norm->state[RING_GRAD], call->update ? call->update : norm->counters[UPDATES], g,
                     g);
    }
}

static bool mabn_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const mabn_config *config = norm->config;
    if (config->scaling != NM_SCALING_NONE || config->center_weights)
        return false;
    nm_norm_read_vector(norm, backend, norm->state[RUNNING_VAR], scale);
    for (int32_t i = 0; i < norm->site.width; i++)
        scale[i] = 1 / sqrt(scale[i] + config->epsilon);
    nm_norm_affine(norm, backend, NULL, scale, shift);
    return true;
}

const nm_norm_type nm_norm_mabn = {
    .name = "mabn",
    .title = "Moving Average BatchNorm",
    .formula = "z = x / sqrt(v + eps), v = mean of the last 16 mean squares; y = weight r z + bias",
    .source = "Yan et al. 2020; github.com/megvii-model/MABN",
    .remedy = "a lower learning rate, or a longer warm-up, norm.mabn.warmup",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE | NM_APPROX_GRAD,
    .options = mabn_options,
    .config_size = sizeof(mabn_config),
    .check = mabn_check,
    .note = mabn_note,
    .shape = mabn_shape,
    .train = mabn_train,
    .infer = mabn_infer,
    .backward = mabn_backward,
    .update_state = mabn_update_state,
    .affine = mabn_affine,
};
