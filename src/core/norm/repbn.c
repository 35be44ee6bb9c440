/* RepBN (Guo et al. 2024, "SLAB: Efficient Transformers with Simplified Linear Attention and Progressive
 * Re-parameterized Batch Normalization", section 3.2): BatchNorm plus a multiple of its input.
 *
 * Definition and forward; z, mu, s2 and the running state as in BatchNorm (batch_policy.h, column
 * "centered"); alpha: a learned scalar, one for all features:
 *
 *     sigma  = sqrt(s2 + epsilon)
 *     z      = (x - mu) / sigma
 *     y      = weight z + bias + alpha x
 *
 * It is computed in one pass over x, as BatchNorm is:
 *
 *     y      = (weight + alpha sigma) z + (bias + alpha mu)
 *
 * Backward, q = weight dy:
 *
 *     dx     = (q - mean(q) - z mean(q z)) / sigma + alpha dy
 *     dalpha = sum of dy x over all elements = sum over features of sigma sum(dy z) + mu sum(dy)
 *
 * Inference: running_mean and running_var replace mu and s2, so that y is affine per feature and can be
 * folded.
 *
 * Memory traffic in passes over [rows, width]: training 3, backward 5, inference 2, as BatchNorm. */
#include "norm/repbn.h"

#include "norm/types.h"

typedef struct repbn_config {
    nm_repbn_policy policy;
    const char *preset;
} repbn_config;

/* clang-format off */
static const nm_option repbn_options[] = {
    NM_WORD(repbn_config, preset, "default", "default|llama", "Variant of RepBN."),
    NM_OPTION(nm_batch_norm_policy, decay, "0.9", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_OPTION(nm_batch_norm_policy, epsilon, "1e-5", 0, 1, "Constant added to the variance."),
    NM_OPTION(nm_batch_norm_policy, unbiased_running, "true", 0, 0,
        "Unbiased variance, divisor n - 1, in the running variance."),
    NM_OPTION(nm_repbn_policy, alpha_init, "1", -1e6, 1e6, "Initial value of alpha."),
    NM_OPTION(nm_repbn_policy, weight_init, "1", -1e6, 1e6, "Initial value of the weight."),
    {0}};

static const nm_preset repbn_presets[] = {
    {"default", "", "the released code for image models"},
    {"llama", "epsilon=1e-6 alpha_init=0 weight_init=0", "the released code for LLaMA"},
    {0}};
/* clang-format on */

enum { WEIGHT, BIAS, ALPHA };       /* parameters */
enum { RUNNING_MEAN, RUNNING_VAR }; /* state */

static const nm_repbn_policy *policy_of(const nm_norm *norm)
{
    return norm->config;
}

void nm_repbn_shape(const void *policy, const nm_norm_site *site, nm_norm_shape *shape)
{
    const nm_repbn_policy *p = policy;
    nm_batch_norm_shape_centered(policy, site, shape);
    shape->params[WEIGHT].initial = p->weight_init;
    nm_norm_shape_param(shape, "alpha", 1, p->alpha_init);
}

static void alloc_vectors(nm_norm_call *call, nm_repbn_parts *parts)
{
    int32_t width = call->norm->site.width;
    parts->alpha = nm_norm_publish(call, "alpha", width);
    parts->weight = nm_norm_scratch(call, width);
    parts->bias = nm_norm_scratch(call, width);
    parts->zero = nm_norm_scratch(call, width);
}

bool nm_repbn_measure(nm_norm_call *call, nm_repbn_parts *parts)
{
    alloc_vectors(call, parts);
    return nm_batch_norm_measure(call, &parts->batch);
}

static bool reserve(nm_norm_call *call, int n)
{
    bool reserved = true;
    for (int i = 0; i < n; i++)
        reserved = nm_norm_scratch(call, call->norm->site.width) != NULL;
    return reserved;
}

bool nm_repbn_reserve(nm_norm_call *call)
{
    return reserve(call, 4 + 3);
}

/* weight = factor (weight + alpha sigma), bias = factor (bias + alpha mu) */
static void combine(nm_norm_call *call, const nm_repbn_parts *parts, const void *mean, const void *variance,
                    double factor)
{
    const nm_norm *norm = call->norm;
    const double epsilon = policy_of(norm)->batch.epsilon;
    nm_norm_repeat(call, norm->params[ALPHA], parts->weight, parts->alpha);
    NM_NORM_VEC(call, SQRT, .out = parts->weight, .a = variance, .s = epsilon);
    NM_NORM_VEC(call, MUL_ADD, .out = parts->weight, .a = parts->alpha, .b = parts->weight,
                .c = norm->params[WEIGHT], .s = factor, .t = factor);
    NM_NORM_VEC(call, MUL_ADD, .out = parts->bias, .a = parts->alpha, .b = mean, .c = norm->params[BIAS],
                .s = factor, .t = factor);
}

/* y += bias + weight z is the gradient kernel's dx += a dy + c0 + c1 z with a = 0: it reads x and y, and
 * writes y. */
void nm_repbn_apply(nm_norm_call *call, const nm_repbn_parts *parts, double factor, bool add)
{
    const nm_batch_norm_measured *m = &parts->batch;
    combine(call, parts, m->mean, m->square, factor);
    NM_NORM_VEC(call, FILL, .out = parts->zero);
    if (add)
        NM_CALL(call->backend, feature_norm_grad, .spec = &m->spec, .dy = call->x, .x = call->x,
                .shift = m->mean, .scale = m->scale, .a = parts->zero, .c0 = parts->bias, .c1 = parts->weight,
                .add = true, .dx = call->y);
    else
        NM_CALL(call->backend, feature_norm, .spec = &m->spec, .x = call->x, .shift = m->mean,
                .scale = m->scale, .weight = parts->weight, .bias = parts->bias, .y = call->y);
}

static void repbn_train(nm_norm_call *call)
{
    nm_repbn_parts parts;
    if (nm_repbn_measure(call, &parts))
        nm_repbn_apply(call, &parts, 1, false);
}

void nm_repbn_infer(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    const void *mean = norm->state[RUNNING_MEAN], *variance = norm->state[RUNNING_VAR];
    nm_repbn_parts parts;
    alloc_vectors(call, &parts);
    void *scale = nm_norm_publish(call, "scale", norm->site.width);
    if (!scale)
        return;
    combine(call, &parts, mean, variance, 1);
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = variance, .s = policy_of(norm)->batch.epsilon);
    NM_CALL(call->backend, feature_norm, .spec = &(nm_feature_norm){.sum = call->sum}, .x = call->x,
            .shift = mean, .scale = scale, .weight = parts.weight, .bias = parts.bias, .y = call->y);
}

/* dalpha += factor sum over features of sum(dy z)/scale + mean sum(dy); vector, sum: memory of [width] and
 * [1] */
static void add_alpha_grad(nm_norm_call *call, const void *mean, double factor, void *vector, void *sum)
{
    NM_NORM_VEC(call, DIV, .out = vector, .a = nm_norm_find(call, "grad_sum_z"),
                .b = nm_norm_find(call, "scale"), .s = 1);
    NM_NORM_VEC(call, MUL_ADD, .out = vector, .a = mean, .b = nm_norm_find(call, "grad_sum"), .c = vector,
                .s = 1, .t = 1);
    nm_norm_add_sum(call, vector, factor, sum, call->norm->param_grads[ALPHA]);
}

void nm_repbn_backward_scaled(nm_norm_call *call, double factor)
{
    int32_t width = call->norm->site.width;
    void *vector = nm_norm_scratch(call, width), *sum = nm_norm_scratch(call, 1);
    void *dy = nm_norm_scratch(call, width);
    if (!dy)
        return;
    NM_NORM_VEC(call, LINEAR, .out = dy, .a = nm_norm_find(call, "alpha"), .s = factor);
    nm_batch_norm_backward_with(call, &(nm_batch_norm_terms){.factor = factor, .dy = dy});
    if (nm_norm_find(call, "grad_sum_z"))
        add_alpha_grad(call, nm_norm_find(call, "batch_mean"), factor, vector, sum);
}

bool nm_repbn_reserve_backward(nm_norm_call *call)
{
    return nm_norm_scratch(call, 1) && reserve(call, 2 + 5 + (call->joiner ? 2 : 0));
}

static void repbn_backward(nm_norm_call *call)
{
    nm_repbn_backward_scaled(call, 1);
}

void nm_repbn_infer_backward(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    int32_t width = norm->site.width;
    const void *mean = norm->state[RUNNING_MEAN], *scale = nm_norm_find(call, "scale");
    void *a = nm_norm_scratch(call, width), *sum = nm_norm_scratch(call, 1);
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    if (!sum_dy_z)
        return;
    NM_NORM_VEC(call, MUL_ADD, .out = a, .a = norm->params[WEIGHT], .b = scale,
                .c = nm_norm_find(call, "alpha"), .s = 1, .t = 1);
    NM_CALL(call->backend, feature_norm_grad, .spec = &(nm_feature_norm){0}, .dy = call->dy, .x = call->x,
            .shift = mean, .scale = scale, .a = a, .add = call->add, .dx = call->dx, .sum_dy = sum_dy,
            .sum_dy_z = sum_dy_z);
    nm_norm_add_grads(call, sum_dy_z, sum_dy);
    add_alpha_grad(call, mean, 1, a, sum);
}

bool nm_repbn_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    double alpha;
    nm_batch_norm_affine(norm, backend, scale, shift);
    nm_backend_read(backend, &alpha, norm->params[ALPHA], 1);
    for (int32_t i = 0; i < norm->site.width; i++)
        scale[i] += alpha;
    return true;
}

const nm_norm_type nm_norm_repbn = {
    .name = "repbn",
    .title = "RepBN",
    .formula = "z = (x - mu) / sqrt(s2 + eps), mu and s2 of the batch; y = weight z + bias + alpha x",
    .source = "Guo et al. 2024, section 3.2; github.com/xinghaochen/SLAB",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE,
    .options = repbn_options,
    .presets = repbn_presets,
    .config_size = sizeof(repbn_config),
    .shape = nm_repbn_shape,
    .train = repbn_train,
    .infer = nm_repbn_infer,
    .backward = repbn_backward,
    .infer_backward = nm_repbn_infer_backward,
    .update_state = nm_batch_norm_update_state,
    .affine = nm_repbn_affine,
};
