#include "norm/common.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void *nm_norm_scratch(nm_norm_call *call, int32_t length)
{
    return call->alloc(call->allocator, (size_t)length * nm_dtype_bytes(call->backend->dtype));
}

void *nm_norm_publish(nm_norm_call *call, const char *name, int32_t length)
{
    NM_ASSERT(call->n_published < NM_NORM_MAX_PUBLISHED);
    void *data = nm_norm_scratch(call, length);
    call->published[call->n_published++] = (nm_norm_published){name, data, length};
    return data;
}

void nm_norm_publish_state(nm_norm_call *call, int i)
{
    NM_ASSERT(call->n_published < NM_NORM_MAX_PUBLISHED);
    const nm_norm_vector *vector = &call->norm->shape.state[i];
    call->published[call->n_published++] =
        (nm_norm_published){vector->name, call->norm->state[i], vector->length};
}

void *nm_norm_find(const nm_norm_call *call, const char *name)
{
    for (int i = 0; i < call->n_published; i++)
        if (!strcmp(call->published[i].name, name))
            return call->published[i].data;
    nm_panic(__FILE__, __LINE__, name);
}

void nm_norm_average(nm_norm_call *call, void *running, double old, const void *fresh, double fresh_weight)
{
    NM_NORM_VEC(call, LINEAR, .out = running, .a = running, .b = fresh, .s = old, .t = fresh_weight);
}

void nm_norm_collect(nm_norm_call *call, int i, const void *value)
{
    nm_norm *norm = call->norm;
    double before = norm->collected_rows[i], total = before + call->x.rows;
    if (call->recomputed)
        return;
    norm->collected_rows[i] = total;
    if (before == 0)
        NM_NORM_VEC(call, COPY, .out = norm->statistics[i], .a = value);
    else if (norm->shape.statistics[i].combination == NM_STATISTIC_SUM)
        nm_norm_average(call, norm->statistics[i], 1, value, 1);
    else
        nm_norm_average(call, norm->statistics[i], before / total, value, call->x.rows / total);
}

/* w: fraction of the new rows, whose mean is mu and whose variance is s2:
 *     S2 = (1 - w) S2 + w s2 + w (1 - w) (mu - M)^2
 *     M  = (1 - w) M  + w mu */
void nm_norm_collect_moments(nm_norm_call *call, int i, const void *mean, const void *variance)
{
    nm_norm *norm = call->norm;
    double w = call->x.rows / (norm->collected_rows[i] + call->x.rows);
    bool first = norm->collected_rows[i] == 0;
    void *difference = first || call->recomputed ? NULL : nm_norm_scratch(call, norm->site.width);
    if (difference)
        NM_NORM_VEC(call, LINEAR, .out = difference, .a = mean, .b = norm->statistics[i], .s = 1, .t = -1);
    nm_norm_collect(call, i, mean);
    nm_norm_collect(call, i + 1, variance);
    if (difference)
        NM_NORM_VEC(call, MUL_ADD, .out = norm->statistics[i + 1], .a = difference, .b = difference,
                    .c = norm->statistics[i + 1], .s = w * (1 - w), .t = 1);
    if (difference)
        NM_NORM_VEC(call, CLIP, .out = norm->statistics[i + 1], .a = norm->statistics[i + 1],
                    .t = nm_norm_largest_square(call->backend));
}

double nm_norm_largest_square(const nm_backend *backend)
{
    return (backend->dtype == NM_F64 ? DBL_MAX : (double)FLT_MAX) / 2;
}

static void join_vectors(nm_norm_call *call, int n, void *const *vectors,
                         const nm_norm_combination *combinations)
{
    if (call->joiner)
        call->joiner->join(call->joiner, call, n, vectors, combinations);
}

void nm_norm_join_one(nm_norm_call *call, void *vector, nm_norm_combination combination)
{
    join_vectors(call, 1, &vector, &combination);
}

void nm_norm_join_moments(nm_norm_call *call, void *mean, void *variance)
{
    join_vectors(call, 2, (void *const[]){mean, variance},
                 (const nm_norm_combination[]){NM_STATISTIC_MEAN, NM_STATISTIC_VARIANCE});
}

void nm_norm_join_sums(nm_norm_call *call, int n, void *const *sums, void **out)
{
    static const nm_norm_combination combinations[NM_NORM_CAPACITY] = {
        NM_STATISTIC_SUM, NM_STATISTIC_SUM, NM_STATISTIC_SUM, NM_STATISTIC_SUM,
        NM_STATISTIC_SUM, NM_STATISTIC_SUM, NM_STATISTIC_SUM, NM_STATISTIC_SUM};
    for (int i = 0; i < n; i++)
        out[i] = call->joiner ? nm_norm_scratch(call, call->norm->site.width) : sums[i];
    for (int i = 0; i < n && call->joiner && out[n - 1]; i++)
        NM_NORM_VEC(call, COPY, .out = out[i], .a = sums[i]);
    if (out[n - 1])
        join_vectors(call, n, out, combinations);
}

double nm_norm_rows(const nm_norm_call *call)
{
    return call->joined_rows > 0 ? call->joined_rows : call->x.rows;
}

void nm_norm_repeat(nm_norm_call *call, const void *scalar, void *rows, void *vector)
{
    nm_backend *b = call->backend;
    int32_t width = call->norm->site.width;
    nm_backend_zero(b, rows, (size_t)width * sizeof(int32_t));
    NM_CALL(b, gather, .rows = rows, .x = nm_mat_of((void *)(uintptr_t)scalar, 1, 1),
            .out = nm_mat_of(vector, width, 1));
}

void nm_norm_add_sum(nm_norm_call *call, const void *vector, double factor, void *sum, void *scalar)
{
    int32_t width = call->norm->site.width;
    NM_CALL(call->backend, feature_moments, .spec = &(nm_feature_norm){0},
            .x = nm_mat_of((void *)(uintptr_t)vector, width, 1), .mean = sum);
    NM_CALL(call->backend, vec, .op = NM_VEC_LINEAR, .n = 1, .out = scalar, .a = scalar, .b = sum, .s = 1,
            .t = factor * width);
}

void nm_norm_add_grads(nm_norm_call *call, const void *sum_dy_z, const void *sum_dy)
{
    const void *const sums[] = {sum_dy_z, sum_dy};
    for (int i = 0; i < 2; i++) {
        void *grad = call->norm->param_grads[i];
        if (grad)
            NM_NORM_VEC(call, LINEAR, .out = grad, .a = grad, .b = sums[i], .s = 1, .t = 1);
    }
}

void nm_norm_read_vector(const nm_norm *norm, nm_backend *backend, const void *vector, double *out)
{
    nm_backend_read(backend, out, vector, (size_t)norm->site.width);
}

void nm_norm_affine(const nm_norm *norm, nm_backend *backend, const void *mean, double *scale, double *shift)
{
    size_t n = (size_t)norm->site.width;
    double *weight = nm_allocate(2 * n * sizeof *weight), *center = weight + n;
    nm_norm_read_vector(norm, backend, norm->params[0], weight);
    nm_norm_read_vector(norm, backend, norm->params[1], shift);
    if (mean)
        nm_norm_read_vector(norm, backend, mean, center);
    for (size_t i = 0; i < n; i++) {
        scale[i] *= weight[i];
        shift[i] -= center[i] * scale[i];
    }
    free(weight);
}

static nm_norm_vector *append(nm_norm_vector *list, int *n, const char *name, int32_t length, double initial)
{
    NM_ASSERT(*n < NM_NORM_CAPACITY);
    list[*n] = (nm_norm_vector){.name = name, .length = length, .initial = initial};
    return &list[(*n)++];
}

nm_norm_vector *nm_norm_shape_param(nm_norm_shape *shape, const char *name, int32_t length, double initial)
{
    return append(shape->params, &shape->n_params, name, length, initial);
}

nm_norm_vector *nm_norm_shape_state(nm_norm_shape *shape, const char *name, int32_t length, double initial)
{
    return append(shape->state, &shape->n_state, name, length, initial);
}

void nm_norm_shape_counter(nm_norm_shape *shape, const char *name)
{
    NM_ASSERT(shape->n_counters < NM_NORM_CAPACITY);
    shape->counters[shape->n_counters++] = name;
}

void nm_norm_shape_statistic(nm_norm_shape *shape, const char *name, nm_norm_combination combination)
{
    NM_ASSERT(shape->n_statistics < NM_NORM_CAPACITY);
    shape->statistics[shape->n_statistics++] = (nm_norm_statistic){name, combination};
}

void nm_norm_shape_affine(const void *config, const nm_norm_site *site, nm_norm_shape *shape)
{
    (void)config;
    nm_norm_shape_param(shape, "weight", site->width, 1);
    nm_norm_shape_param(shape, "bias", site->width, 0);
}

int32_t nm_norm_scaling_groups(nm_norm_scaling scaling, const nm_norm_site *site)
{
    return scaling == NM_SCALING_GROUP ? site->groups : scaling == NM_SCALING_LAYER ? 1 : 0;
}

nm_status nm_norm_check_groups(int64_t groups, const nm_norm_site *site, nm_error *err)
{
    if (groups < 1 || groups > site->width || site->width % groups)
        return nm_fail(err, NM_USAGE, "norm '%s': %lld groups do not divide %d features", site->name,
                       (long long)groups, site->width);
    return NM_OK;
}

nm_status nm_norm_check_scaling(nm_norm_scaling scaling, const nm_norm_site *site, nm_error *err)
{
    return scaling == NM_SCALING_NONE
               ? NM_OK
               : nm_norm_check_groups(nm_norm_scaling_groups(scaling, site), site, err);
}

nm_status nm_norm_check_padding(bool count_padding, const nm_norm_site *site, nm_error *err)
{
    const char *name = site->name ? site->name : "norm";
    return !count_padding || site->sequences
               ? NM_OK
               : nm_fail(err, NM_USAGE, "%s: count_padding needs sequences of different lengths", name);
}

nm_feature_norm nm_norm_row_scaling(nm_norm_call *call, int32_t groups, void **row_scale)
{
    *row_scale = groups > 0 ? nm_norm_publish(call, "row_scale", call->x.rows * groups) : NULL;
    return (nm_feature_norm){.groups = groups, .eps = NM_NORM_SCALING_EPSILON, .sum = call->sum};
}

void nm_norm_infer_running(nm_norm_call *call, int32_t groups, const void *shift,
                           void (*set_scale)(nm_norm_call *call, void *scale))
{
    const nm_norm *norm = call->norm;
    void *row_scale;
    const nm_feature_norm spec = nm_norm_row_scaling(call, groups, &row_scale);
    void *scale = nm_norm_publish(call, "scale", norm->site.width);
    if (!scale)
        return;
    set_scale(call, scale);
    NM_CALL(call->backend, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .shift = shift,
            .scale = scale, .weight = norm->params[0], .bias = norm->params[1], .y = call->y);
}

bool nm_norm_grad_sums(nm_norm_call *call, const nm_feature_norm *spec, const void *row_scale,
                       const void *shift, const void *scale, void *sums[2])
{
    sums[0] = nm_norm_publish(call, "grad_sum", call->norm->site.width);
    sums[1] = nm_norm_publish(call, "grad_sum_z", call->norm->site.width);
    if (!sums[1])
        return false;
    NM_CALL(call->backend, feature_norm_grad, .spec = spec, .dy = call->dy, .x = call->x,
            .relu = call->relu ? call->y : (nm_mat){0}, .row_scale = row_scale, .shift = shift,
            .scale = scale, .sum_dy = sums[0], .sum_dy_z = sums[1]);
    return true;
}

nm_status nm_norm_check_warmup(const nm_norm_type *type, const char *warmup, nm_error *err)
{
    size_t length = strlen(warmup);
    if (strcmp(warmup, "lr") && (!length || length > 12 || strspn(warmup, "0123456789") != length))
        return nm_fail(err, NM_USAGE, "norm.%s.warmup = %.100s: expected lr or a number of updates",
                       type->name, warmup);
    return NM_OK;
}

int64_t nm_norm_warmup(const char *warmup, int64_t lr_updates)
{
    return strcmp(warmup, "lr") ? strtoll(warmup, NULL, 10) : lr_updates;
}

void nm_norm_note_warmup(int64_t updates, char *text, size_t size)
{
    if (updates)
        snprintf(text, size, "batch statistics during the first %lld update%s", (long long)updates,
                 updates == 1 ? "" : "s");
    else
        snprintf(text, size, "no warm-up with batch statistics");
}

static const void *param_of(const nm_norm_call *call, int index, int32_t length)
{
    return length ? call->norm->params[index] : NULL;
}

void nm_norm_token_forward(nm_norm_call *call)
{
    const nm_token_norm spec = call->norm->type->token_spec(call->norm);
    int32_t count = call->x.rows * spec.groups;
    void *shift = nm_token_norm_centers(spec.kind) ? nm_norm_publish(call, "shift", count) : NULL;
    void *scale = nm_norm_publish(call, "scale", count);
    if (!scale)
        return;
    NM_CALL(call->backend, token_norm, .spec = &spec, .sum = call->sum, .x = call->x,
            .weight = param_of(call, 0, spec.weight_len), .bias = param_of(call, 1, spec.bias_len),
            .y = call->y, .shift = shift, .scale = scale);
}

void nm_norm_token_backward(nm_norm_call *call)
{
    const nm_token_norm spec = call->norm->type->token_spec(call->norm);
    NM_CALL(call->backend, token_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x,
            .weight = param_of(call, 0, spec.weight_len),
            .shift = nm_token_norm_centers(spec.kind) ? nm_norm_find(call, "shift") : NULL,
            .scale = nm_norm_find(call, "scale"), .add = call->add, .dx = call->dx,
            .residual = call->residual, .d_weight = spec.weight_len ? call->norm->param_grads[0] : NULL,
            .d_bias = spec.bias_len ? call->norm->param_grads[1] : NULL);
}
