/* Moving Average Batch Normalization (Yan et al. 2020; github.com/megvii-model/MABN, its stand-alone
 * program).
 *
 * Call t, with p = mean over rows of x^2, rings of the last L values of p and of g, W the warm-up length:
 *     v = p while t <= L or t < W, then the mean of the ring of p          z = x / sqrt(v + epsilon)
 *     r = sqrt(v + epsilon) / sqrt(rv + epsilon), clipped to [1/r_limit, r_limit]; 1 while t <= max(r_hold,
 * W) y = weight r z + bias            rv = decay rv + (1 - decay) v, after r was formed Backward, with q =
 * weight r dy and g = mean(q z), no gradient through r: gbar = g while t <= L or t < W, then the mean of the
 * ring of g           dx = (q - z gbar) / sqrt(v + epsilon) Inference: y = weight x / sqrt(rv + epsilon) +
 * bias. Not the derivative once the rings are in use. */
#include <math.h>

#include "norm/types.h"

typedef struct mabn_config {
    const char *warmup;
    double decay, epsilon, r_limit;
    int64_t window, r_hold;
} mabn_config;

/* clang-format off */
static const nm_option mabn_options[] = {
    NM_OPTION(mabn_config, window, "16", 1, 4096, "batches averaged over"),
    {"warmup", NM_TEXT, offsetof(mabn_config, warmup), "lr", 0, 0, NULL,
     "training calls that use batch statistics: a number, or lr for the learning-rate warm-up"},
    NM_OPTION(mabn_config, decay, "0.98", 0, 1, "share of the old running mean square kept at each step"),
    NM_OPTION(mabn_config, epsilon, "1e-5", 0, 1, "added to mean squares"),
    NM_OPTION(mabn_config, r_limit, "5", 1, 1e6, "the correction stays between 1/r_limit and r_limit"),
    NM_OPTION(mabn_config, r_hold, "1000", 0, 1e15, "training calls without the correction"),
    {0}};
/* clang-format on */

enum { RUNNING_VAR, RING_SQUARE, RING_GRAD }; /* state */
enum { ITERS };                               /* counters */

static nm_status mabn_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    const mabn_config *config = settings;
    if (config->window > INT32_MAX / place->width)
        return nm_fail(err, NM_USAGE, "norm '%s': window = %lld is too long", place->name,
                       (long long)config->window);
    return nm_norm_check_warmup(config->warmup, err);
}

static void mabn_shape(const void *settings, const nm_norm_site *place, nm_norm_shape *shape)
{
    const mabn_config *config = settings;
    int32_t ring = (int32_t)config->window * place->width;
    nm_norm_shape_affine(settings, place, shape);
    nm_norm_shape_state(shape, "running_var", place->width, 1);
    nm_norm_shape_state(shape, "buffer_x2", ring, 0);
    nm_norm_shape_state(shape, "buffer_gz", ring, 0);
    shape->state[shape->n_state - 1].of_gradients = true;
    nm_norm_shape_counter(shape, "iters");
}

static int64_t warmup_of(const nm_norm_call *call)
{
    const mabn_config *config = call->norm->config;
    return nm_norm_warmup(config->warmup, call->norm->place.warmup_steps);
}

/* Stores the newest value in its ring; unless early, average = mean of the ring, otherwise average = newest.
 */
static void push(nm_norm_call *call, void *ring, const void *newest, void *average)
{
    const mabn_config *config = call->norm->config;
    nm_backend *b = call->backend;
    int64_t t = call->norm->counters[ITERS];
    int32_t width = call->norm->place.width;
    size_t bytes = (size_t)width * nm_dtype_bytes(b->dtype);
    nm_backend_copy(b, (char *)ring + (size_t)((uint64_t)t % (uint64_t)config->window) * bytes, newest,
                    bytes);
    if (t <= config->window || t < warmup_of(call))
        nm_norm_vec(call, NM_VEC_COPY, average, newest, NULL, NULL, 0, 0);
    else
        NM_CALL(b, feature_moments, .spec = &(nm_feature_norm){0},
                .x = nm_mat_of(ring, (int32_t)config->window, width), .mean = average);
}

/* r and gain = weight r */
static void correct(nm_norm_call *call, const void *v, void *r, void *gain)
{
    const mabn_config *config = call->norm->config;
    const nm_norm *norm = call->norm;
    int64_t t = norm->counters[ITERS];
    if (t <= config->r_hold || t <= warmup_of(call)) {
        nm_norm_vec(call, NM_VEC_FILL, r, NULL, NULL, NULL, 1, 0);
    } else {
        nm_norm_vec(call, NM_VEC_SQRT, r, v, NULL, NULL, config->epsilon, 0);
        nm_norm_vec(call, NM_VEC_RSQRT, gain, norm->state[RUNNING_VAR], NULL, NULL, config->epsilon, 0);
        nm_norm_vec(call, NM_VEC_MUL, r, r, gain, NULL, 1, 0);
        nm_norm_vec(call, NM_VEC_CLIP, r, r, NULL, NULL, 1 / config->r_limit, config->r_limit);
    }
    nm_norm_vec(call, NM_VEC_MUL, gain, norm->params[0], r, NULL, 1, 0);
}

static void mabn_train(nm_norm_call *call)
{
    const mabn_config *config = call->norm->config;
    nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    int32_t width = norm->place.width;
    const nm_feature_norm spec = {0};
    void *square = nm_norm_publish(call, "batch_square", width),
         *v = nm_norm_publish(call, "used_square", width);
    void *before = nm_norm_publish(call, "running_var", width),
         *scale = nm_norm_publish(call, "scale", width);
    void *r = nm_norm_publish(call, "r", width), *gain = nm_norm_publish(call, "gain", width);
    if (!gain)
        return;
    norm->counters[ITERS]++;
    NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .square = square);
    push(call, norm->state[RING_SQUARE], square, v);
    nm_norm_vec(call, NM_VEC_RSQRT, scale, v, NULL, NULL, config->epsilon, 0);
    correct(call, v, r, gain);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .scale = scale, .weight = gain,
            .bias = norm->params[1], .y = call->y);
    nm_norm_vec(call, NM_VEC_COPY, before, norm->state[RUNNING_VAR], NULL, NULL, 0, 0);
    nm_norm_average(call, norm->state[RUNNING_VAR], config->decay, v, 1 - config->decay);
}

static void mabn_infer(nm_norm_call *call)
{
    const mabn_config *config = call->norm->config;
    const nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    void *scale = nm_norm_publish(call, "scale", norm->place.width);
    if (!scale)
        return;
    nm_norm_vec(call, NM_VEC_RSQRT, scale, norm->state[RUNNING_VAR], NULL, NULL, config->epsilon, 0);
    NM_CALL(b, feature_norm, .spec = &(nm_feature_norm){0}, .x = call->x, .scale = scale,
            .weight = norm->params[0], .bias = norm->params[1], .y = call->y);
}

static bool mabn_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const mabn_config *config = norm->config;
    nm_norm_numbers(norm, backend, norm->state[RUNNING_VAR], scale);
    for (int32_t i = 0; i < norm->place.width; i++)
        scale[i] = 1 / sqrt(scale[i] + config->epsilon);
    nm_norm_affine(norm, backend, NULL, scale, shift);
    return true;
}

static void mabn_backward(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    int32_t width = norm->place.width;
    const nm_feature_norm spec = {0};
    const void *scale = nm_norm_find(call, "scale"), *gain = nm_norm_find(call, "gain");
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *a = nm_norm_scratch(call, width), *c1 = nm_norm_scratch(call, width);
    if (!c1)
        return;
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .scale = scale,
            .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    /* the ring holds gradients of the unscaled loss */
    nm_norm_vec(call, NM_VEC_MUL, a, gain, sum_dy_z, NULL, 1 / (call->grad_scale * call->x.rows), 0);
    push(call, norm->state[RING_GRAD], a, c1);
    nm_norm_vec(call, NM_VEC_MUL, c1, c1, scale, NULL, -call->grad_scale, 0);
    nm_norm_vec(call, NM_VEC_MUL, a, gain, scale, NULL, 1, 0);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .scale = scale, .a = a,
            .c1 = c1, .add = call->add, .dx = call->dx);
    nm_norm_vec(call, NM_VEC_MUL, a, nm_norm_find(call, "r"), sum_dy_z, NULL, 1, 0);
    nm_norm_add_grads(call, a, sum_dy);
}

const nm_norm_type nm_norm_mabn = {
    .name = "mabn",
    .title = "Moving Average BatchNorm",
    .source = "Yan et al. 2020; github.com/megvii-model/MABN",
    .traits = NM_USES_BATCH | NM_HAS_STATE | NM_APPROX_GRAD,
    .options = mabn_options,
    .config_size = sizeof(mabn_config),
    .check = mabn_check,
    .shape = mabn_shape,
    .train = mabn_train,
    .infer = mabn_infer,
    .backward = mabn_backward,
    .affine = mabn_affine,
};
