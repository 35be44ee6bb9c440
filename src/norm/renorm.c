/* Batch Renormalization (Ioffe 2017). With mean, variance of the batch, sigma_B = sqrt(variance + epsilon),
 * running mean m and running sigma s as they were before the call, n training calls seen before: r =
 * clip(sigma_B/s, 1/rmax, rmax)        d = clip((mean - m)/s, -dmax, dmax)        no gradient through r and d
 *     z = (x - mean)/sigma_B        y = weight (r z + d) + bias
 *     m += (1 - decay)(mean - m)    s += (1 - decay)(sigma_B - s): sigma itself is averaged
 *     dx = (q - mean(q) - z mean(q z)) / sigma_B,   q = weight r dy
 * rmax rises from 1 to r_max and dmax from 0 to d_max, from ramp_start to r_ramp_end and d_ramp_end.
 * Inference: y = weight (x - m)/s + bias. `added` is a public implementation's sigma_B = sqrt(variance) +
 * epsilon; the term z mean(q z) then has the factor sigma_B/sqrt(variance). */
#include <string.h>

#include "norm/types.h"

typedef struct renorm_config {
    const char *eps_mode;
    double decay, epsilon, r_max, d_max;
    int64_t ramp_start, r_ramp_end, d_ramp_end;
} renorm_config;

/* clang-format off */
static const nm_option renorm_options[] = {
    NM_OPTION(renorm_config, decay, "0.99", 0, 1, "share of the old running value kept at each step"),
    NM_CHOICE(renorm_config, eps_mode, "inside", "inside|added", "epsilon joins the variance, or the standard deviation"),
    NM_OPTION(renorm_config, epsilon, "1e-5", 0, 1, "keeps the divisor above zero; 1e-3 goes with added"),
    NM_OPTION(renorm_config, r_max, "3", 1, 1e6, "final limit of the factor"),
    NM_OPTION(renorm_config, d_max, "5", 0, 1e6, "final limit of the shift"),
    NM_OPTION(renorm_config, ramp_start, "5000", 0, 1e15, "training calls that are plain BatchNorm"),
    NM_OPTION(renorm_config, r_ramp_end, "40000", 0, 1e15, "training calls until r_max is reached"),
    NM_OPTION(renorm_config, d_ramp_end, "25000", 0, 1e15, "training calls until d_max is reached"),
    {0}};
/* clang-format on */

enum { RUNNING_MEAN, RUNNING_STD }; /* state */
enum { SEEN };                      /* counters */

static const double TINY = 1e-30; /* squares below are zero */

static void renorm_shape(const void *config, const nm_norm_site *place, nm_norm_shape *shape)
{
    nm_norm_shape_affine(config, place, shape);
    nm_norm_shape_state(shape, "running_mean", place->width, 0);
    nm_norm_shape_state(shape, "running_std", place->width, 1);
    nm_norm_shape_counter(shape, "num_batches_tracked");
}

static double ramp(int64_t n, int64_t start, int64_t end, double from, double to)
{
    if (n >= end)
        return to;
    return n <= start ? from : from + (to - from) * (double)(n - start) / (double)(end - start);
}

static bool adds_to_root(const nm_norm_call *call)
{
    const renorm_config *config = call->norm->config;
    return !strcmp(config->eps_mode, "added");
}

/* sigma_B and its inverse */
static void root(nm_norm_call *call, const void *variance, void *sigma, void *scale)
{
    const renorm_config *config = call->norm->config;
    bool added = adds_to_root(call);
    nm_norm_vec(call, NM_VEC_SQRT, sigma, variance, NULL, NULL, added ? 0 : config->epsilon, 0);
    nm_norm_vec(call, NM_VEC_FILL, scale, NULL, NULL, NULL, 1, 0);
    if (added)
        nm_norm_vec(call, NM_VEC_LINEAR, sigma, sigma, scale, NULL, 1, config->epsilon);
    nm_norm_vec(call, NM_VEC_DIV, scale, scale, sigma, NULL, 1, 0);
}

static void renorm_train(nm_norm_call *call)
{
    const renorm_config *config = call->norm->config;
    nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    int32_t width = norm->place.width;
    const nm_feature_norm spec = {0};
    void *m = norm->state[RUNNING_MEAN], *s = norm->state[RUNNING_STD];
    void *mean = nm_norm_publish(call, "batch_mean", width),
         *variance = nm_norm_publish(call, "batch_var", width);
    void *m_before = nm_norm_publish(call, "running_mean", width);
    void *s_before = nm_norm_publish(call, "running_std", width);
    void *scale = nm_norm_publish(call, "scale", width);
    void *r = nm_norm_publish(call, "r", width), *d = nm_norm_publish(call, "d", width);
    void *sigma = nm_norm_scratch(call, width), *gain = nm_norm_scratch(call, width);
    void *bias = nm_norm_scratch(call, width);
    if (!bias)
        return;
    int64_t n = norm->counters[SEEN]++;
    double r_max = ramp(n, config->ramp_start, config->r_ramp_end, 1, config->r_max);
    double d_max = ramp(n, config->ramp_start, config->d_ramp_end, 0, config->d_max);
    NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .center = mean, .mean = mean,
            .square = variance);
    root(call, variance, sigma, scale);
    nm_norm_vec(call, NM_VEC_DIV, r, sigma, s, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_CLIP, r, r, NULL, NULL, 1 / r_max, r_max);
    nm_norm_vec(call, NM_VEC_LINEAR, d, mean, m, NULL, 1, -1);
    nm_norm_vec(call, NM_VEC_DIV, d, d, s, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_CLIP, d, d, NULL, NULL, -d_max, d_max);
    nm_norm_vec(call, NM_VEC_MUL, gain, norm->params[0], r, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL_ADD, bias, norm->params[0], d, norm->params[1], 1, 1);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .shift = mean, .scale = scale, .weight = gain,
            .bias = bias, .y = call->y);
    nm_norm_vec(call, NM_VEC_COPY, m_before, m, NULL, NULL, 0, 0);
    nm_norm_vec(call, NM_VEC_COPY, s_before, s, NULL, NULL, 0, 0);
    nm_norm_average(call, m, config->decay, mean, 1 - config->decay);
    nm_norm_average(call, s, config->decay, sigma, 1 - config->decay);
}

static void renorm_infer(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    void *scale = nm_norm_publish(call, "scale", norm->place.width);
    if (!scale)
        return;
    nm_norm_vec(call, NM_VEC_FILL, scale, NULL, NULL, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_DIV, scale, scale, norm->state[RUNNING_STD], NULL, 1, 0);
    NM_CALL(b, feature_norm, .spec = &(nm_feature_norm){0}, .x = call->x, .shift = norm->state[RUNNING_MEAN],
            .scale = scale, .weight = norm->params[0], .bias = norm->params[1], .y = call->y);
}

static bool renorm_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    nm_norm_numbers(norm, backend, norm->state[RUNNING_STD], scale);
    for (int32_t i = 0; i < norm->place.width; i++)
        scale[i] = 1 / scale[i];
    nm_norm_affine(norm, backend, norm->state[RUNNING_MEAN], scale, shift);
    return true;
}

static void renorm_backward(nm_norm_call *call)
{
    const renorm_config *config = call->norm->config;
    const nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    int32_t width = norm->place.width;
    double inverse_rows = 1.0 / call->x.rows;
    const nm_feature_norm spec = {0};
    const void *mean = nm_norm_find(call, "batch_mean"), *scale = nm_norm_find(call, "scale");
    const void *r = nm_norm_find(call, "r");
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *a = nm_norm_scratch(call, width), *c0 = nm_norm_scratch(call, width),
         *c1 = nm_norm_scratch(call, width);
    if (!c1)
        return;
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .shift = mean, .scale = scale,
            .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    nm_norm_vec(call, NM_VEC_MUL, c0, r, sum_dy_z, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL_ADD, c0, nm_norm_find(call, "d"), sum_dy, c0, 1, 1);
    nm_norm_add_grads(call, c0, sum_dy);
    nm_norm_vec(call, NM_VEC_MUL, a, norm->params[0], r, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL, a, a, scale, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL, c1, a, sum_dy_z, NULL, -inverse_rows, 0);
    if (adds_to_root(call)) {
        nm_norm_vec(call, NM_VEC_RSQRT_CLAMP, c0, nm_norm_find(call, "batch_var"), NULL, NULL, TINY, 0);
        nm_norm_vec(call, NM_VEC_MUL_ADD, c1, c1, c0, c1, config->epsilon, 1);
    }
    nm_norm_vec(call, NM_VEC_MUL, c0, a, sum_dy, NULL, -inverse_rows, 0);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .shift = mean, .scale = scale,
            .a = a, .c0 = c0, .c1 = c1, .add = call->add, .dx = call->dx);
}

const nm_norm_type nm_norm_renorm = {
    .name = "renorm",
    .title = "Batch Renormalization",
    .source = "Ioffe 2017, Algorithm 1",
    .traits = NM_USES_BATCH | NM_HAS_STATE,
    .options = renorm_options,
    .config_size = sizeof(renorm_config),
    .shape = renorm_shape,
    .train = renorm_train,
    .infer = renorm_infer,
    .backward = renorm_backward,
    .affine = renorm_affine,
};
