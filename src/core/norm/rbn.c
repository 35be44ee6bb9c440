/* Regularized BatchNorm (Wang et al. 2022, equation 7): BatchNorm (batch_policy.h) with a penalty on the
 * distance between batch statistics and running statistics, which is added to the loss.
 *
 * Definition. mu and sigma^2 are the statistics of the batch, m and s^2 the running statistics, after or
 * before their update with this batch (option reference). Sums are over features; sigma and s have no
 * epsilon:
 *
 *     penalty  = lambda d_mean + nu d_variance
 *
 *     penalty              d_mean                   d_variance
 *     diff2   (paper)      sum (mu - m)^2           sum (sigma - s)^2
 *     diff    (code)       sum (mu - m)^2           sum |sigma^2 - s^2|
 *     reldiff              sum ((mu - m)/s)^2       sum (1 - sigma/s)^2
 *
 * Forward: as BatchNorm.
 *
 * Backward, no gradient through m and s:
 *
 *     penalty              d d_mean / d mu          d d_variance / d sigma^2
 *     diff2                2 (mu - m)               (sigma - s) / sigma
 *     diff                 2 (mu - m)               sign(sigma^2 - s^2)
 *     reldiff              2 (mu - m) / s^2         (sigma - s) / (s^2 sigma)
 *
 *     dh += (lambda d d_mean/d mu) / n + (nu d d_variance/d sigma^2) 2 (h - mu) / n        n rows, h - mu = z
 *     / scale
 *
 * With norm.statistics = update, mu, sigma^2, n and the number of targets are those of all shards, and each
 * shard adds the fraction (rows of the shard) / n of the penalty.
 *
 * The loss is a sum over target tokens, which the trainer divides by their number. The released code adds the
 * penalty to this sum (scale = sum). scale = mean multiplies the penalty by the number of targets, which adds
 * it to the mean loss. */
#include "norm/batch_policy.h"
#include "norm/types.h"

#define PENALTIES(C) C(PENALTY_DIFF, "diff") C(PENALTY_DIFF2, "diff2") C(PENALTY_RELDIFF, "reldiff")
NM_CHOICES(rbn_penalty, PENALTIES);

#define REFERENCES(C) C(REFERENCE_BEFORE, "before") C(REFERENCE_AFTER, "after")
NM_CHOICES(rbn_reference, REFERENCES);

#define SCALES(C) C(SCALE_AUTO, "auto") C(SCALE_SUM, "sum") C(SCALE_MEAN, "mean")
NM_CHOICES(rbn_scale, SCALES);

typedef struct rbn_config {
    nm_batch_norm_policy policy;
    rbn_penalty penalty;
    rbn_reference reference;
    rbn_scale scale;
    double lambda, nu;
} rbn_config;

/* clang-format off */
static const nm_option rbn_options[] = {
    NM_CHOICE(rbn_config, penalty, "diff", PENALTIES,
        "Distance in the penalty: that of the released commands (diff), that of the paper (diff2), or "
        "relative distances (reldiff)."),
    NM_OPTION(rbn_config, lambda, "0.1", 0, 1e6, "Weight of the distance of means."),
    NM_OPTION(rbn_config, nu, "0.01", 0, 1e6, "Weight of the distance of variances."),
    NM_CHOICE(rbn_config, reference, "after", REFERENCES,
        "Running statistics in the penalty: before or after their update with the batch."),
    NM_CHOICE(rbn_config, scale, "auto", SCALES,
              "Loss that the penalty is added to: the sum over tokens (as in the released translation code) "
                  "or the mean; "
              "auto: sum in translation, mean in the other tasks."),
    NM_OPTION(nm_batch_norm_policy, decay, "0.95", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_OPTION(nm_batch_norm_policy, epsilon, "1e-5", 0, 1, "Constant that keeps the divisor above zero."),
    NM_OPTION(nm_batch_norm_policy, clamp, "true", 0, 0,
        "Division by sqrt(max(variance, epsilon)) instead of sqrt(variance + epsilon)."),
    NM_OPTION(nm_batch_norm_policy, unbiased_running, "false", 0, 0,
        "Unbiased variance, divisor n - 1, in the running variance."),
    NM_CHOICE(nm_batch_norm_policy, scaling, "none", NM_NORM_SCALINGS, NM_NORM_SCALING_HELP),
    {0}};
/* clang-format on */

enum { RUNNING_MEAN, RUNNING_VAR }; /* state */

static const double TINY = 1e-30; /* smaller variances count as zero, so that 1/sigma stays finite */

/* penalty = keep penalty + factor a . b, on the device: the host does not wait for it. */
static void add_product(nm_norm_call *call, double keep, double factor, const void *a, const void *b)
{
    NM_CALL(call->backend, dot, .n = (size_t)call->norm->site.width, .a = a, .b = b, .keep = keep,
            .factor = factor, .total = call->penalty);
}

/* penalty = nu penalty + lambda d_mean; grad = derivative of d_mean with respect to mu. */
static void mean_distance(nm_norm_call *call, const void *m, const void *s2, void *grad, void *scratch)
{
    const rbn_config *config = call->norm->config;
    NM_NORM_VEC(call, LINEAR, .out = grad, .a = nm_norm_find(call, "batch_mean"), .b = m, .s = 1, .t = -1);
    if (config->penalty != PENALTY_RELDIFF) {
        add_product(call, config->nu, config->lambda, grad, grad);
        NM_NORM_VEC(call, LINEAR, .out = grad, .a = grad, .s = 2);
        return;
    }
    NM_NORM_VEC(call, DIV, .out = scratch, .a = grad, .b = s2, .s = 1);
    add_product(call, config->nu, config->lambda, scratch, grad);
    NM_NORM_VEC(call, LINEAR, .out = grad, .a = scratch, .s = 2);
}

/* penalty = d_variance; grad = its derivative with respect to sigma^2. */
static void variance_distance(nm_norm_call *call, const void *s2, void *grad, void *scratch)
{
    const rbn_config *config = call->norm->config;
    const void *variance = nm_norm_find(call, "batch_var");
    if (config->penalty == PENALTY_DIFF) {
        NM_NORM_VEC(call, SIGN, .out = grad, .a = variance, .b = s2, .s = 1);
        add_product(call, 0, 1, grad, variance);
        add_product(call, 1, -1, grad, s2);
        return;
    }
    void *s = grad;
    NM_NORM_VEC(call, SQRT, .out = scratch, .a = variance);
    NM_NORM_VEC(call, SQRT, .out = s, .a = s2);
    NM_NORM_VEC(call, LINEAR, .out = scratch, .a = scratch, .b = s, .s = 1, .t = -1); /* sigma - s */
    if (config->penalty == PENALTY_RELDIFF)
        NM_NORM_VEC(call, DIV, .out = scratch, .a = scratch, .b = s, .s = 1);
    add_product(call, 0, 1, scratch, scratch);
    if (config->penalty == PENALTY_RELDIFF)
        NM_NORM_VEC(call, DIV, .out = scratch, .a = scratch, .b = s, .s = 1);
    NM_NORM_VEC(call, RSQRT_CLAMP, .out = grad, .a = variance, .s = TINY);
    NM_NORM_VEC(call, MUL, .out = grad, .a = grad, .b = scratch, .s = 1);
}

static void rbn_train(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    const rbn_config *config = norm->config;
    int32_t width = norm->site.width;
    void *grad_mean = nm_norm_publish(call, "penalty_mean", width);
    void *grad_z = nm_norm_publish(call, "penalty_z", width);
    void *m = nm_norm_scratch(call, width);
    void *s2 = nm_norm_scratch(call, width);
    void *scratch = nm_norm_scratch(call, width);
    call->penalty = call->alloc(call->allocator, sizeof(double));
    nm_batch_norm_train(call);
    const void *scale = nm_norm_find(call, "scale");
    if (!scale)
        return;
    if (config->reference == REFERENCE_AFTER) {
        nm_batch_norm_next_state(call, RUNNING_MEAN, nm_norm_find(call, "batch_mean"), nm_norm_rows(call), m);
        nm_batch_norm_next_state(call, RUNNING_VAR, nm_norm_find(call, "batch_var"), nm_norm_rows(call), s2);
    } else {
        m = norm->state[RUNNING_MEAN];
        s2 = norm->state[RUNNING_VAR];
    }
    bool mean_loss = config->scale == SCALE_MEAN || (config->scale == SCALE_AUTO && call->mean_loss);
    double weight = mean_loss ? call->n_targets : 1;
    variance_distance(call, s2, grad_z, scratch);
    mean_distance(call, m, s2, grad_mean, scratch);
    NM_CALL(call->backend, dot, .keep = weight * (call->x.rows / nm_norm_rows(call)), .total = call->penalty);
    /* additions to dh, without grad_scale: penalty_mean, and penalty_z times z */
    double per_row = weight / nm_norm_rows(call);
    NM_NORM_VEC(call, LINEAR, .out = grad_mean, .a = grad_mean, .s = config->lambda * per_row);
    NM_NORM_VEC(call, DIV, .out = grad_z, .a = grad_z, .b = scale, .s = 2 * config->nu * per_row);
}

static void rbn_backward(nm_norm_call *call)
{
    void *mean = nm_norm_scratch(call, call->norm->site.width);
    void *z = nm_norm_scratch(call, call->norm->site.width);
    if (!z)
        return;
    NM_NORM_VEC(call, LINEAR, .out = mean, .a = nm_norm_find(call, "penalty_mean"), .s = call->grad_scale);
    NM_NORM_VEC(call, LINEAR, .out = z, .a = nm_norm_find(call, "penalty_z"), .s = call->grad_scale);
    nm_batch_norm_backward_with(call, &(nm_batch_norm_terms){.factor = 1, .mean = mean, .z = z});
}

const nm_norm_type nm_norm_rbn = {
    .name = "rbn",
    .title = "Regularized BatchNorm",
    .formula = "BatchNorm; lambda d(mu, running mu) + nu d(s2, running s2) is added to the loss",
    .source = "Wang et al. 2022, equation 7; github.com/wjxts/RegularizedBN",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE | NM_HAS_PENALTY,
    .options = rbn_options,
    .config_size = sizeof(rbn_config),
    .check = nm_batch_norm_check,
    .shape = nm_batch_norm_shape_centered,
    .train = rbn_train,
    .infer = nm_batch_norm_infer,
    .backward = rbn_backward,
    .update_state = nm_batch_norm_update_state,
    .affine = nm_batch_norm_affine,
};
