#include "norm/batch_policy.h"

#include <math.h>

enum { STATISTIC_MEAN, STATISTIC_VARIANCE, STATISTIC_SQUARE = 0 };

static const nm_batch_norm_policy *policy_of(const nm_norm *norm)
{
    return norm->config;
}

static bool is_centered(const nm_norm *norm)
{
    return norm->shape.n_state == 2;
}

static int32_t groups_of(const nm_norm *norm)
{
    return nm_norm_scaling_groups(policy_of(norm)->scaling, &norm->site);
}

nm_status nm_batch_norm_check(const void *policy, const nm_norm_site *site, nm_error *err)
{
    const nm_batch_norm_policy *p = policy;
    NM_TRY(nm_norm_check_padding(p->count_padding, site, err));
    return nm_norm_check_scaling(p->scaling, site, err);
}

void nm_batch_norm_shape_centered(const void *policy, const nm_norm_site *site, nm_norm_shape *shape)
{
    nm_norm_shape_affine(policy, site, shape);
    nm_norm_shape_state(shape, "running_mean", site->width, 0);
    nm_norm_shape_state(shape, "running_var", site->width, 1);
    nm_norm_shape_statistic(shape, "mean", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "variance", NM_STATISTIC_VARIANCE);
}

void nm_batch_norm_shape_uncentered(const void *policy, const nm_norm_site *site, nm_norm_shape *shape)
{
    nm_norm_shape_affine(policy, site, shape);
    nm_norm_shape_state(shape, "running_var", site->width, 1);
    nm_norm_shape_statistic(shape, "square", NM_STATISTIC_MEAN);
}

/* scale = 1/sqrt(variance + epsilon), or with the clamp */
static void inverse_root(nm_norm_call *call, const void *variance, void *scale)
{
    const nm_batch_norm_policy *policy = policy_of(call->norm);
    NM_CALL(call->backend, vec, .op = policy->clamp ? NM_VEC_RSQRT_CLAMP : NM_VEC_RSQRT,
            .n = call->norm->site.width, .out = scale, .a = variance, .s = policy->epsilon);
}

/* Fraction of tokens in the rows of a batch, padding included. */
static double token_share(const nm_norm_call *call)
{
    return policy_of(call->norm)->count_padding ? 1 - call->padding : 1;
}

bool nm_batch_norm_measure(nm_norm_call *call, nm_batch_norm_measured *m)
{
    const nm_norm *norm = call->norm;
    int32_t width = norm->site.width;
    bool centered = is_centered(norm);
    m->spec = nm_norm_row_scaling(call, groups_of(norm), &m->row_scale);
    m->mean = centered ? nm_norm_publish(call, "batch_mean", width) : NULL;
    m->square = nm_norm_publish(call, centered ? "batch_var" : "batch_square", width);
    m->scale = nm_norm_publish(call, "scale", width);
    for (int i = 0; i < norm->shape.n_state; i++)
        nm_norm_publish_state(call, i);
    if (!m->scale)
        return false;
    NM_CALL(call->backend, feature_moments, .spec = &m->spec, .x = call->x, .row_scale = m->row_scale,
            .center = m->mean, .mean = m->mean, .square = m->square);
    if (token_share(call) < 1)
        NM_NORM_VEC(call, LINEAR, .out = m->square, .a = m->square, .s = token_share(call));
    if (centered)
        nm_norm_collect_moments(call, STATISTIC_MEAN, m->mean, m->square);
    else
        nm_norm_collect(call, STATISTIC_SQUARE, m->square);
    if (centered)
        nm_norm_join_moments(call, m->mean, m->square);
    else
        nm_norm_join_one(call, m->square, NM_STATISTIC_MEAN);
    inverse_root(call, m->square, m->scale);
    m->spec.row_scale_ready = true;
    return true;
}

void nm_batch_norm_train(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    nm_batch_norm_measured m;
    if (nm_batch_norm_measure(call, &m))
        NM_CALL(call->backend, feature_norm, .spec = &m.spec, .x = call->x, .row_scale = m.row_scale,
                .shift = m.mean, .scale = m.scale, .weight = norm->params[0], .bias = norm->params[1],
                .relu = call->relu, .added = call->added, .y = call->y);
}

static void running_scale(nm_norm_call *call, void *scale)
{
    inverse_root(call, call->norm->state[is_centered(call->norm) ? 1 : 0], scale);
}

void nm_batch_norm_infer(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    nm_norm_infer_running(call, groups_of(norm), is_centered(norm) ? norm->state[0] : NULL, running_scale);
}

void nm_batch_norm_next_state(nm_norm_call *call, int i, const void *statistic, double rows, void *out)
{
    const nm_batch_norm_policy *policy = policy_of(call->norm);
    bool variance = i == call->norm->shape.n_state - 1;
    double correction = variance && policy->unbiased_running && rows > 1 ? rows / (rows - 1) : 1;
    NM_NORM_VEC(call, LINEAR, .out = out, .a = call->norm->state[i], .b = statistic, .s = policy->decay,
                .t = (1 - policy->decay) * correction);
}

void nm_batch_norm_update_state(nm_norm_call *call)
{
    const nm_norm *norm = call->norm;
    for (int i = 0; i < norm->shape.n_state && norm->collected_rows[i] > 0; i++)
        nm_batch_norm_next_state(call, i, norm->statistics[i], norm->collected_rows[i], norm->state[i]);
}

void nm_batch_norm_backward(nm_norm_call *call)
{
    nm_batch_norm_backward_with(call, &(nm_batch_norm_terms){.factor = 1});
}

void nm_batch_norm_backward_with(nm_norm_call *call, const nm_batch_norm_terms *terms)
{
    const nm_norm *norm = call->norm;
    const nm_batch_norm_policy *policy = policy_of(norm);
    nm_backend *b = call->backend;
    int32_t width = norm->site.width, groups = groups_of(norm);
    bool centered = is_centered(norm);
    double inverse_rows = 1 / nm_norm_rows(call);
    const void *mean = centered ? nm_norm_find(call, "batch_mean") : NULL;
    const void *square = nm_norm_find(call, centered ? "batch_var" : "batch_square");
    const void *scale = nm_norm_find(call, "scale");
    const void *row_scale = groups ? nm_norm_find(call, "row_scale") : NULL;
    const nm_feature_norm spec = {.groups = groups, .eps = NM_NORM_SCALING_EPSILON, .row_scale_ready = true};
    void *sums[2], *joined[2];
    bool summed = nm_norm_grad_sums(call, &spec, row_scale, mean, scale, sums);
    void *a = nm_norm_scratch(call, width);
    void *c0 = nm_norm_scratch(call, width);
    void *c1 = nm_norm_scratch(call, width);
    if (!summed || !c1)
        return;
    for (int i = 0; i < 2; i++)
        nm_norm_average(call, norm->param_grads[i], 1, sums[1 - i], terms->factor);
    nm_norm_join_sums(call, 2, sums, joined);
    if (!joined[1])
        return;
    /* dh = a dy + c0 + c1 z:  a = factor weight/sigma,  c0 = -a mean(dy),  c1 = -a mean(dy z) */
    NM_NORM_VEC(call, MUL, .out = a, .a = norm->params[0], .b = scale, .s = terms->factor);
    NM_NORM_VEC(call, MUL, .out = c1, .a = a, .b = joined[1], .s = -inverse_rows * token_share(call));
    if (policy->clamp)
        NM_NORM_VEC(call, ABOVE, .out = c1, .a = square, .b = c1, .s = policy->epsilon);
    if (terms->z)
        NM_NORM_VEC(call, LINEAR, .out = c1, .a = c1, .b = terms->z, .s = 1, .t = 1);
    NM_NORM_VEC(call, MUL, .out = c0, .a = a, .b = joined[0], .s = centered ? -inverse_rows : 0);
    if (terms->mean)
        NM_NORM_VEC(call, LINEAR, .out = c0, .a = c0, .b = terms->mean, .s = 1, .t = 1);
    if (terms->dy)
        NM_NORM_VEC(call, LINEAR, .out = a, .a = a, .b = terms->dy, .s = 1, .t = 1);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .row_scale = row_scale,
            .shift = mean, .scale = scale, .a = a, .c0 = centered ? c0 : NULL, .c1 = c1, .add = call->add,
            .dx = call->dx, .residual = call->residual);
}

bool nm_batch_norm_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const nm_batch_norm_policy *policy = policy_of(norm);
    bool centered = is_centered(norm);
    if (policy->scaling != NM_SCALING_NONE)
        return false;
    nm_norm_read_vector(norm, backend, norm->state[centered ? 1 : 0], scale);
    for (int32_t i = 0; i < norm->site.width; i++)
        scale[i] = 1 / sqrt(policy->clamp ? fmax(scale[i], policy->epsilon) : scale[i] + policy->epsilon);
    nm_norm_affine(norm, backend, centered ? norm->state[0] : NULL, scale, shift);
    return true;
}
