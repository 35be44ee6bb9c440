/* Batch Renormalization (Ioffe 2017, Algorithm 1).
 *
 * Definition. Update n (counted from 0) has, with h = x, or x scaled per row and group (option scaling):
 *
 *     mu      = mean(h)                                        batch_mean
 *     s2      = mean((h - mu)^2)                               batch_var
 *     sigma_B = sqrt(s2 + epsilon)                             1 / scale
 *     m, s    = running values of mu and sigma_B               running_mean, running_std
 *
 * Forward, no gradient through r and d:
 *
 *     r       = clip(sigma_B / s, 1/rmax(n), rmax(n))
 *     d       = clip((mu - m) / s, -dmax(n), dmax(n))
 *     z       = (h - mu) / sigma_B
 *     y       = weight (r z + d) + bias
 *
 *     rmax(n) rises linearly from 1 at n = ramp_start to r_max at n = r_ramp_end
 *     dmax(n) rises linearly from 0 at n = ramp_start to d_max at n = d_ramp_end
 *
 * Backward, q = weight r dy:
 *
 *     dh      = (q - mean(q) - z mean(q z)) / sigma_B
 *     dweight = sum(dy (r z + d))
 *     dbias   = sum(dy)
 *
 * Running state, once per update; sigma itself is averaged, not the variance:
 *
 *     m       = decay m + (1 - decay) mu
 *     s       = decay s + (1 - decay) sigma_B
 *
 * Inference: y = weight (h - m) / s + bias.
 *
 * Differences from the paper: in short runs the ramps are shorter (option shorten_ramp). eps_mode = added is
 * a variant of a public implementation:
 *
 *     sigma_B = sqrt(s2) + epsilon
 *     dh      = (q - mean(q) - z mean(q z) sigma_B / sqrt(s2)) / sigma_B */
#include <stdio.h>

#include "norm/types.h"

#define EPSILONS(C) C(EPSILON_INSIDE, "inside") C(EPSILON_ADDED, "added")
NM_CHOICES(renorm_epsilon, EPSILONS);

typedef struct renorm_config {
    renorm_epsilon eps_mode;
    nm_norm_scaling scaling;
    double decay, epsilon, r_max, d_max;
    int64_t ramp_start, r_ramp_end, d_ramp_end;
    bool shorten_ramp;
} renorm_config;

/* clang-format off */
static const nm_option renorm_options[] = {
    NM_OPTION(renorm_config, decay, "0.99", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_CHOICE(renorm_config, eps_mode, "inside", EPSILONS,
        "Constant epsilon added to the variance, or to the standard deviation."),
    NM_OPTION(renorm_config, epsilon, "1e-5", 0, 1,
        "Constant that keeps the divisor above zero; 1e-3 is usual with eps_mode = added."),
    NM_OPTION(renorm_config, r_max, "3", 1, 1e6, "Final limit of the factor r."),
    NM_OPTION(renorm_config, d_max, "5", 0, 1e6, "Final limit of the shift d."),
    NM_OPTION(renorm_config, ramp_start, "5000", 0, 1e15, "Number of first updates with plain BatchNorm."),
    NM_OPTION(renorm_config, r_ramp_end, "40000", 0, 1e15, "Number of updates until r_max is reached."),
    NM_OPTION(renorm_config, d_ramp_end, "25000", 0, 1e15, "Number of updates until d_max is reached."),
    NM_OPTION(renorm_config, shorten_ramp, "true", 0, 0,
              "Shorter ramps in short runs: the three numbers are scaled so that r_max is reached after half "
                  "of the planned updates at the latest."),
    NM_CHOICE(renorm_config, scaling, "none", NM_NORM_SCALINGS, NM_NORM_SCALING_HELP),
    {0}};
/* clang-format on */

enum { RUNNING_MEAN, RUNNING_STD };          /* state */
enum { UPDATES };                            /* counters */
enum { STATISTIC_MEAN, STATISTIC_VARIANCE }; /* statistics of an update */

static const double TINY = 1e-30; /* smaller variances count as zero */

static int32_t groups_of(const nm_norm *norm)
{
    const renorm_config *config = norm->config;
    return nm_norm_scaling_groups(config->scaling, &norm->site);
}

static nm_status renorm_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const renorm_config *config = settings;
    const int64_t ends[] = {config->r_ramp_end, config->d_ramp_end};
    for (int i = 0; i < 2; i++)
        if (config->ramp_start > ends[i])
            return nm_fail(err, NM_USAGE, "norm '%s': ramp_start = %lld is after %s = %lld", site->name,
                           (long long)config->ramp_start, i ? "d_ramp_end" : "r_ramp_end",
                           (long long)ends[i]);
    return nm_norm_check_scaling(config->scaling, site, err);
}

static void renorm_shape(const void *config, const nm_norm_site *site, nm_norm_shape *shape)
{
    nm_norm_shape_affine(config, site, shape);
    nm_norm_shape_state(shape, "running_mean", site->width, 0);
    nm_norm_shape_state(shape, "running_std", site->width, 1);
    nm_norm_shape_counter(shape, "num_batches_tracked");
    nm_norm_shape_statistic(shape, "mean", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "variance", NM_STATISTIC_VARIANCE);
}

typedef struct ramps { /* in updates */
    int64_t start, r_end, d_end;
} ramps;

/* The paper's schedule is for runs of more than 80,000 updates; in a run of fewer than 5,000 updates the norm
 * would be plain BatchNorm throughout. */
static ramps planned_ramps(const nm_norm *norm)
{
    const renorm_config *config = norm->config;
    ramps r = {config->ramp_start, config->r_ramp_end, config->d_ramp_end};
    double half = (double)norm->site.plan.updates / 2, factor = half / (double)config->r_ramp_end;
    if (!config->shorten_ramp || half == 0 || config->r_ramp_end == 0 || factor >= 1)
        return r;
    return (ramps){(int64_t)(factor * (double)r.start), (int64_t)half, (int64_t)(factor * (double)r.d_end)};
}

static bool renorm_follows_length(const void *settings)
{
    const renorm_config *config = settings;
    return config->shorten_ramp;
}

static void renorm_note(const nm_norm *norm, char *text, size_t size)
{
    const ramps r = planned_ramps(norm);
    snprintf(text, size,
             "plain BatchNorm for %lld updates; the limit of r rises until update %lld, that of d until "
             "update %lld",
             (long long)r.start, (long long)r.r_end, (long long)r.d_end);
}

static double ramp(int64_t n, int64_t start, int64_t end, double from, double to)
{
    if (n >= end)
        return to;
    return n <= start ? from : from + (to - from) * (double)(n - start) / (double)(end - start);
}

/* sigma_B; ones: a vector of ones */
static void standard_deviation(nm_norm_call *call, const void *variance, const void *ones, void *sigma)
{
    const renorm_config *config = call->norm->config;
    bool added = config->eps_mode == EPSILON_ADDED;
    NM_NORM_VEC(call, SQRT, .out = sigma, .a = variance, .s = added ? 0 : config->epsilon);
    if (added)
        NM_NORM_VEC(call, LINEAR, .out = sigma, .a = sigma, .b = ones, .s = 1, .t = config->epsilon);
}

static void renorm_train(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const renorm_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width;
    const void *m = norm->state[RUNNING_MEAN], *s = norm->state[RUNNING_STD];
    void *row_scale;
    nm_feature_norm spec = nm_norm_row_scaling(call, groups_of(norm), &row_scale);
    void *mean = nm_norm_publish(call, "batch_mean", width);
    void *variance = nm_norm_publish(call, "batch_var", width);
    void *scale = nm_norm_publish(call, "scale", width);
    void *r = nm_norm_publish(call, "r", width);
    void *d = nm_norm_publish(call, "d", width);
    nm_norm_publish_state(call, RUNNING_MEAN);
    nm_norm_publish_state(call, RUNNING_STD);
    void *sigma = nm_norm_scratch(call, width);
    void *gain = nm_norm_scratch(call, width);
    void *bias = nm_norm_scratch(call, width);
    if (!bias)
        return;
    int64_t n = norm->counters[UPDATES];
    const ramps planned = planned_ramps(norm);
    double r_max = ramp(n, planned.start, planned.r_end, 1, config->r_max);
    double d_max = ramp(n, planned.start, planned.d_end, 0, config->d_max);
    NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .row_scale = row_scale, .center = mean,
            .mean = mean, .square = variance);
    nm_norm_collect_moments(call, STATISTIC_MEAN, mean, variance);
    nm_norm_join_moments(call, mean, variance);
    spec.row_scale_ready = true;
    NM_NORM_VEC(call, FILL, .out = scale, .s = 1);
    standard_deviation(call, variance, scale, sigma);
    NM_NORM_VEC(call, DIV, .out = scale, .a = scale, .b = sigma, .s = 1);
    NM_NORM_VEC(call, DIV, .out = r, .a = sigma, .b = s, .s = 1);
    NM_NORM_VEC(call, CLIP, .out = r, .a = r, .s = 1 / r_max, .t = r_max);
    NM_NORM_VEC(call, LINEAR, .out = d, .a = mean, .b = m, .s = 1, .t = -1);
    NM_NORM_VEC(call, DIV, .out = d, .a = d, .b = s, .s = 1);
    NM_NORM_VEC(call, CLIP, .out = d, .a = d, .s = -d_max, .t = d_max);
    /* y = gain z + bias:  gain = weight r,  bias = weight d + bias */
    NM_NORM_VEC(call, MUL, .out = gain, .a = norm->params[0], .b = r, .s = 1);
    NM_NORM_VEC(call, MUL_ADD, .out = bias, .a = norm->params[0], .b = d, .c = norm->params[1], .s = 1,
                .t = 1);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .shift = mean,
            .scale = scale, .weight = gain, .bias = bias, .y = call->y);
}

/* scale = 1/sigma */
static void running_scale(nm_norm_call *call, void *scale)
{
    NM_NORM_VEC(call, FILL, .out = scale, .s = 1);
    NM_NORM_VEC(call, DIV, .out = scale, .a = scale, .b = call->norm->state[RUNNING_STD], .s = 1);
}

static void renorm_infer(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    nm_norm_infer_running(call, groups_of(norm), norm->state[RUNNING_MEAN], running_scale);
}

static void renorm_backward(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    const renorm_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width, groups = groups_of(norm);
    double inverse_rows = 1 / nm_norm_rows(call);
    const nm_feature_norm spec = {.groups = groups, .eps = NM_NORM_SCALING_EPSILON, .row_scale_ready = true};
    const void *row_scale = groups ? nm_norm_find(call, "row_scale") : NULL;
    const void *mean = nm_norm_find(call, "batch_mean"), *scale = nm_norm_find(call, "scale");
    const void *r = nm_norm_find(call, "r");
    void *sums[2], *joined[2];
    bool summed = nm_norm_grad_sums(call, &spec, row_scale, mean, scale, sums);
    void *a = nm_norm_scratch(call, width);
    void *c0 = nm_norm_scratch(call, width);
    void *c1 = nm_norm_scratch(call, width);
    if (!summed || !c1)
        return;
    NM_NORM_VEC(call, MUL, .out = c0, .a = r, .b = sums[1], .s = 1);
    NM_NORM_VEC(call, MUL_ADD, .out = c0, .a = nm_norm_find(call, "d"), .b = sums[0], .c = c0, .s = 1,
                .t = 1);
    nm_norm_add_grads(call, c0, sums[0]);
    nm_norm_join_sums(call, 2, sums, joined);
    if (!joined[1])
        return;
    /* dh = a dy + c0 + c1 z:  a = weight r/sigma_B,  c0 = -a mean(dy),  c1 = -a mean(dy z) */
    NM_NORM_VEC(call, MUL, .out = a, .a = norm->params[0], .b = r, .s = 1);
    NM_NORM_VEC(call, MUL, .out = a, .a = a, .b = scale, .s = 1);
    NM_NORM_VEC(call, MUL, .out = c1, .a = a, .b = joined[1], .s = -inverse_rows);
    if (config->eps_mode == EPSILON_ADDED) {
        NM_NORM_VEC(call, RSQRT_CLAMP, .out = c0, .a = nm_norm_find(call, "batch_var"), .s = TINY);
        NM_NORM_VEC(call, MUL_ADD, .out = c1, .a = c1, .b = c0, .c = c1, .s = config->epsilon, .t = 1);
    }
    NM_NORM_VEC(call, MUL, .out = c0, .a = a, .b = joined[0], .s = -inverse_rows);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .row_scale = row_scale,
            .shift = mean, .scale = scale, .a = a, .c0 = c0, .c1 = c1, .add = call->add, .dx = call->dx,
            .residual = call->residual);
}

static void renorm_update_state(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const renorm_config *config = norm->config;
    void *mean = norm->statistics[STATISTIC_MEAN], *sigma = norm->statistics[STATISTIC_VARIANCE];
    if (!(norm->collected_rows[STATISTIC_MEAN] > 0))
        return;
    norm->counters[UPDATES]++;
    nm_norm_average(call, norm->state[RUNNING_MEAN], config->decay, mean, 1 - config->decay);
    void *ones = mean; /* no longer needed */
    NM_NORM_VEC(call, FILL, .out = ones, .s = 1);
    standard_deviation(call, sigma, ones, sigma);
    nm_norm_average(call, norm->state[RUNNING_STD], config->decay, sigma, 1 - config->decay);
}

static bool renorm_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const renorm_config *config = norm->config;
    if (config->scaling != NM_SCALING_NONE)
        return false;
    nm_norm_read_vector(norm, backend, norm->state[RUNNING_STD], scale);
    for (int32_t i = 0; i < norm->site.width; i++)
        scale[i] = 1 / scale[i];
    nm_norm_affine(norm, backend, norm->state[RUNNING_MEAN], scale, shift);
    return true;
}

const nm_norm_type nm_norm_renorm = {
    .name = "renorm",
    .title = "Batch Renormalization",
    .formula = "z = (x - mu) / sigma; y = weight (r z + d) + bias, r and d within limits that grow",
    .source = "Ioffe 2017, Algorithm 1",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE,
    .options = renorm_options,
    .config_size = sizeof(renorm_config),
    .check = renorm_check,
    .note = renorm_note,
    .shape = renorm_shape,
    .train = renorm_train,
    .infer = renorm_infer,
    .backward = renorm_backward,
    .update_state = renorm_update_state,
    .affine = renorm_affine,
    .follows_length = renorm_follows_length,
};
