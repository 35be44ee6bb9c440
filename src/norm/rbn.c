/* Regularized BatchNorm (Wang et al. 2022, equation 6): BatchNorm (batch_policy.h) whose distance from its
 * running values joins the objective, summed over features, with no gradient through the running values:
 *     penalty = lambda d_mean + nu d_variance
 *     diff2 (paper)     d_mean = (mean - m)^2          d_variance = (sigma - s)^2
 *     diff (program)    d_mean = (mean - m)^2          d_variance = |sigma^2 - s^2|
 *     reldiff           d_mean = ((mean - m)/s)^2      d_variance = (1 - sigma/s)^2
 * with mean, sigma^2 of the batch and m, s^2 running, after this call's update (the program) or before; sigma
 * has no epsilon. A derivative g by the batch mean enters dx as g/n, one by the batch variance as 2 g (x -
 * mean)/n. */
#include <string.h>

#include "norm/batch_policy.h"
#include "norm/types.h"

typedef struct rbn_config {
    const char *penalty, *reference, *scaling;
    enum { SCALE_AUTO, SCALE_SUM, SCALE_MEAN } scale;
    double lambda, nu, decay, epsilon;
    bool clamp, unbiased_running;
} rbn_config;

/* clang-format off */
static const nm_option rbn_options[] = {
    NM_CHOICE(rbn_config, penalty, "diff", "diff|diff2|reldiff", "distance: the released commands', the paper's, or relative"),
    NM_OPTION(rbn_config, lambda, "0.1", 0, 1e6, "weight of the distance of means"),
    NM_OPTION(rbn_config, nu, "0.01", 0, 1e6, "weight of the distance of variances"),
    NM_CHOICE(rbn_config, reference, "after", "before|after", "running values before or after this step's update"),
    NM_CHOICE(rbn_config, scale, "auto", "auto|sum|mean",
              "Loss that the penalty is added to: the sum over tokens (as in the released translation program) or the mean; "
              "auto: mean in classification and tagging, sum otherwise."),
    NM_OPTION(rbn_config, decay, "0.95", 0, 1, "share of the old running value kept at each step"),
    NM_OPTION(rbn_config, epsilon, "1e-5", 0, 1, "keeps the divisor above zero"),
    NM_OPTION(rbn_config, clamp, "true", 0, 0, "divide by sqrt(max(variance, epsilon)) rather than add epsilon"),
    NM_OPTION(rbn_config, unbiased_running, "false", 0, 0, "n/(n-1) on the variance that enters the running value"),
    NM_CHOICE(rbn_config, scaling, "none", NM_NORM_SCALINGS, "parameter-free scaling of each row first"),
    {0}};
/* clang-format on */

enum { RUNNING_MEAN, RUNNING_VAR }; /* state */

static const double TINY =
    1e-30; /* squares below are zero: keeps 1/sigma finite for a feature that never varies */

static nm_batch_norm_policy rbn_policy(const rbn_config *config, const nm_norm_site *place)
{
    return (nm_batch_norm_policy){.centered = true,
                                  .clamp = config->clamp,
                                  .unbiased_running = config->unbiased_running,
                                  .groups = nm_norm_scaling_groups(config->scaling, place),
                                  .decay = config->decay,
                                  .epsilon = config->epsilon};
}

static nm_status rbn_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    return nm_norm_check_groups(rbn_policy(settings, place).groups, place, err);
}

static void rbn_shape(const void *config, const nm_norm_site *place, nm_norm_shape *shape)
{
    (void)config;
    nm_batch_norm_shape(true, place, shape);
}

static double inner(nm_norm_call *call, const void *a, const void *b)
{
    double sum = 0;
    NM_CALL(call->backend, dot, .n = (size_t)call->norm->place.width, .a = a, .b = b, .out = &sum);
    return sum;
}

/* by_mean = derivative of d_mean; its value is returned. */
static double mean_distance(nm_norm_call *call, bool relative, const void *m, const void *s2, void *by_mean)
{
    nm_norm_vec(call, NM_VEC_LINEAR, by_mean, nm_norm_find(call, "batch_mean"), m, NULL, 1, -1);
    if (!relative) {
        double value = inner(call, by_mean, by_mean);
        nm_norm_vec(call, NM_VEC_LINEAR, by_mean, by_mean, NULL, NULL, 2, 0);
        return value;
    }
    void *scaled = nm_norm_find(call, "penalty_z"); /* free until the variance's turn */
    nm_norm_vec(call, NM_VEC_DIV, scaled, by_mean, s2, NULL, 1, 0);
    double value = inner(call, scaled, by_mean);
    nm_norm_vec(call, NM_VEC_LINEAR, by_mean, scaled, NULL, NULL, 2, 0);
    return value;
}

/* by_variance = derivative of d_variance by the batch variance; its value is returned. */
static double variance_distance(nm_norm_call *call, const char *penalty, const void *s2, void *by_variance,
                                void *scratch)
{
    const void *variance = nm_norm_find(call, "batch_var");
    if (!strcmp(penalty, "diff")) {
        nm_norm_vec(call, NM_VEC_SIGN, by_variance, variance, s2, NULL, 1, 0);
        return inner(call, by_variance, variance) - inner(call, by_variance, s2);
    }
    bool relative = !strcmp(penalty, "reldiff");
    void *s = by_variance;
    nm_norm_vec(call, NM_VEC_SQRT, scratch, variance, NULL, NULL, 0, 0);
    nm_norm_vec(call, NM_VEC_SQRT, s, s2, NULL, NULL, 0, 0);
    nm_norm_vec(call, NM_VEC_LINEAR, scratch, scratch, s, NULL, 1, -1); /* sigma - s */
    if (relative)
        nm_norm_vec(call, NM_VEC_DIV, scratch, scratch, s, NULL, 1, 0);
    double value = inner(call, scratch, scratch);
    if (relative)
        nm_norm_vec(call, NM_VEC_DIV, scratch, scratch, s, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_RSQRT_CLAMP, by_variance, variance, NULL, NULL, TINY, 0);
    nm_norm_vec(call, NM_VEC_MUL, by_variance, by_variance, scratch, NULL, 1, 0);
    return value;
}

/* The penalty's value goes to call->penalty; its gradient, as additions to dx per feature and per feature
 * times z, to "penalty_mean" and "penalty_z". */
static void add_penalty(nm_norm_call *call, void *scratch)
{
    const rbn_config *config = call->norm->config;
    bool after = !strcmp(config->reference, "after");
    const void *m = after ? call->norm->state[RUNNING_MEAN] : nm_norm_find(call, "running_mean");
    const void *s2 = after ? call->norm->state[RUNNING_VAR] : nm_norm_find(call, "running_var");
    void *by_mean = nm_norm_find(call, "penalty_mean"), *by_variance = nm_norm_find(call, "penalty_z");
    bool mean = config->scale == SCALE_MEAN || (config->scale == SCALE_AUTO && call->mean_loss);
    double weight = mean ? call->n_targets : 1;
    double value = config->lambda * mean_distance(call, !strcmp(config->penalty, "reldiff"), m, s2, by_mean);
    value += config->nu * variance_distance(call, config->penalty, s2, by_variance, scratch);
    value *= weight;
    nm_backend_upload(call->backend, call->penalty, &value, sizeof value);
    double per_row = weight * call->grad_scale / call->x.rows;
    nm_norm_vec(call, NM_VEC_LINEAR, by_mean, by_mean, NULL, NULL, config->lambda * per_row, 0);
    nm_norm_vec(call, NM_VEC_DIV, by_variance, by_variance, nm_norm_find(call, "scale"), NULL,
                2 * config->nu * per_row, 0); /* x - mean = z / scale */
}

static void rbn_train(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = rbn_policy(call->norm->config, &call->norm->place);
    int32_t width = call->norm->place.width;
    nm_norm_publish(call, "penalty_mean", width);
    nm_norm_publish(call, "penalty_z", width);
    void *scratch = nm_norm_scratch(call, width);
    call->penalty = call->take(call->from, sizeof(double));
    if (call->penalty && nm_batch_norm_train(call, &policy))
        add_penalty(call, scratch);
}

static void rbn_infer(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = rbn_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_infer(call, &policy);
}

static bool rbn_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const nm_batch_norm_policy policy = rbn_policy(norm->config, &norm->place);
    return nm_batch_norm_affine(norm, backend, &policy, scale, shift);
}

static void rbn_backward(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = rbn_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_backward(call, &policy, nm_norm_find(call, "penalty_mean"),
                           nm_norm_find(call, "penalty_z"));
}

const nm_norm_type nm_norm_rbn = {
    .name = "rbn",
    .title = "Regularized BatchNorm",
    .source = "Wang et al. 2022, equation 6; github.com/wjxts/RegularizedBN",
    .traits = NM_USES_BATCH | NM_HAS_STATE | NM_HAS_PENALTY,
    .options = rbn_options,
    .config_size = sizeof(rbn_config),
    .check = rbn_check,
    .shape = rbn_shape,
    .train = rbn_train,
    .infer = rbn_infer,
    .backward = rbn_backward,
    .affine = rbn_affine,
};
