/* Normalization of each feature by the numbers of the batch, see batch_policy.h. */
#include "norm/batch_policy.h"

#include <math.h>

void nm_batch_norm_shape(bool centered, const nm_norm_site *place, nm_norm_shape *shape)
{
    nm_norm_shape_affine(NULL, place, shape);
    if (centered)
        nm_norm_shape_state(shape, "running_mean", place->width, 0);
    nm_norm_shape_state(shape, "running_var", place->width, 1);
}

static void inverse_root(nm_norm_call *call, const nm_batch_norm_policy *policy, const void *variance,
                         void *scale)
{
    nm_norm_vec(call, policy->clamp ? NM_VEC_RSQRT_CLAMP : NM_VEC_RSQRT, scale, variance, NULL, NULL,
                policy->epsilon, 0);
}

static void update_running(nm_norm_call *call, const nm_batch_norm_policy *policy, const void *mean,
                           const void *square)
{
    void *const *state = call->norm->state;
    double rows = call->x.rows, fresh = 1 - policy->decay;
    double correction = policy->unbiased_running && rows > 1 ? rows / (rows - 1) : 1;
    if (policy->centered) {
        nm_norm_vec(call, NM_VEC_COPY, nm_norm_find(call, "running_mean"), state[0], NULL, NULL, 0, 0);
        nm_norm_average(call, state[0], policy->decay, mean, fresh);
    }
    void *running = state[policy->centered ? 1 : 0];
    nm_norm_vec(call, NM_VEC_COPY, nm_norm_find(call, "running_var"), running, NULL, NULL, 0, 0);
    nm_norm_average(call, running, policy->decay, square, fresh * correction);
}

bool nm_batch_norm_train(nm_norm_call *call, const nm_batch_norm_policy *policy)
{
    nm_backend *b = call->backend;
    int32_t width = call->norm->place.width;
    void *row_scale;
    nm_feature_norm spec = nm_norm_row_scaling(call, policy->groups, policy->epsilon, &row_scale);
    void *mean = policy->centered ? nm_norm_publish(call, "batch_mean", width) : NULL;
    void *square = nm_norm_publish(call, policy->centered ? "batch_var" : "batch_square", width);
    if (policy->centered)
        nm_norm_publish(call, "running_mean", width);
    nm_norm_publish(call, "running_var", width);
    void *scale = nm_norm_publish(call, "scale", width);
    if (!scale)
        return false;
    NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .row_scale = row_scale, .center = mean,
            .mean = mean, .square = square);
    inverse_root(call, policy, square, scale);
    spec.row_scale_ready = true;
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .shift = mean,
            .scale = scale, .weight = call->norm->params[0], .bias = call->norm->params[1], .y = call->y);
    update_running(call, policy, mean, square);
    return true;
}

void nm_batch_norm_infer(nm_norm_call *call, const nm_batch_norm_policy *policy)
{
    nm_backend *b = call->backend;
    void *const *state = call->norm->state;
    void *row_scale;
    const nm_feature_norm spec = nm_norm_row_scaling(call, policy->groups, policy->epsilon, &row_scale);
    void *scale = nm_norm_publish(call, "scale", call->norm->place.width);
    if (!scale)
        return;
    inverse_root(call, policy, state[policy->centered ? 1 : 0], scale);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale,
            .shift = policy->centered ? state[0] : NULL, .scale = scale, .weight = call->norm->params[0],
            .bias = call->norm->params[1], .y = call->y);
}

bool nm_batch_norm_affine(const nm_norm *norm, nm_backend *backend, const nm_batch_norm_policy *policy,
                          double *scale, double *shift)
{
    if (policy->groups)
        return false;
    nm_norm_numbers(norm, backend, norm->state[policy->centered ? 1 : 0], scale);
    for (int32_t i = 0; i < norm->place.width; i++)
        scale[i] = 1 / sqrt(policy->clamp ? fmax(scale[i], policy->epsilon) : scale[i] + policy->epsilon);
    nm_norm_affine(norm, backend, policy->centered ? norm->state[0] : NULL, scale, shift);
    return true;
}

void nm_batch_norm_backward(nm_norm_call *call, const nm_batch_norm_policy *policy, const void *extra_mean,
                            const void *extra_z)
{
    nm_backend *b = call->backend;
    int32_t width = call->norm->place.width;
    double inverse_rows = 1.0 / call->x.rows;
    const void *mean = policy->centered ? nm_norm_find(call, "batch_mean") : NULL;
    const void *square = nm_norm_find(call, policy->centered ? "batch_var" : "batch_square");
    const void *scale = nm_norm_find(call, "scale");
    const void *row_scale = policy->groups ? nm_norm_find(call, "row_scale") : NULL;
    const nm_feature_norm spec = {.groups = policy->groups, .eps = policy->epsilon, .row_scale_ready = true};
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *a = nm_norm_scratch(call, width), *c0 = nm_norm_scratch(call, width),
         *c1 = nm_norm_scratch(call, width);
    if (!c1)
        return;
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .row_scale = row_scale,
            .shift = mean, .scale = scale, .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    nm_norm_add_grads(call, sum_dy_z, sum_dy);
    nm_norm_vec(call, NM_VEC_MUL, a, call->norm->params[0], scale, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL, c1, a, sum_dy_z, NULL, -inverse_rows, 0);
    if (policy->clamp)
        nm_norm_vec(call, NM_VEC_ABOVE, c1, square, c1, NULL, policy->epsilon, 0);
    if (extra_z)
        nm_norm_vec(call, NM_VEC_LINEAR, c1, c1, extra_z, NULL, 1, 1);
    nm_norm_vec(call, NM_VEC_MUL, c0, a, sum_dy, NULL, policy->centered ? -inverse_rows : 0, 0);
    if (extra_mean)
        nm_norm_vec(call, NM_VEC_LINEAR, c0, c0, extra_mean, NULL, 1, 1);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .row_scale = row_scale,
            .shift = mean, .scale = scale, .a = a, .c0 = policy->centered || extra_mean ? c0 : NULL, .c1 = c1,
            .add = call->add, .dx = call->dx);
}
