/* Unified Normalization (Yang et al. 2022, "Unified Normalization for Accelerating and Stabilizing
 * Transformers"), as in github.com/hikvision-research/Unified-Normalization: the geometric mean of the last
 * mean squares, and running statistics of the gradient.
 *
 * Definition. Update t (from 1) has n rows (tokens); M = window_forward, B = window_backward, a = decay; W is
 * the length of the warm-up:
 *
 *     p    = mean(x^2)                                                      batch_square
 *     v    = p                                   while t <= M or t < W      used_square
 *     v    = geometric mean of the last M values of p     afterwards        buffer_x2
 *     rv   = moving average of v                                            running_var
 *
 * Forward:
 *
 *     z    = x / sqrt(v + epsilon)
 *     y    = weight z + bias
 *
 * Backward, q = weight r dy; r is a constant that does not enter y:
 *
 *     r    = 1                                   while t <= max(r_hold, W)
 *     r    = clip(sqrt(v + epsilon) / sqrt(rv + epsilon), 1/r_limit, r_limit)     afterwards; rv before the
 *          update
 *     g    = mean(q z)
 *     m    = g                                   while t <= B or t < W
 *     m    = mean of the last B values of g      afterwards                 buffer_gz
 *     e    = a e + (1 - a) m                     before dx is computed      ema_gz
 *     dx   = (q - e z) / sqrt(v + epsilon)
 *     dweight = sum(dy r z)
 *     dbias   = sum(dy)
 *
 * Running state, once per update: the buffers advance by one slot (t mod M, t mod B), e as above, and
 *
 *     rv   = a rv + (1 - a) v
 *
 * Inference: y = weight x / sqrt(rv + epsilon) + bias.
 *
 * With outlier_filtration, which the authors recommend for images and not for text, a batch with t >= W is an
 * outlier if in any feature the arithmetic mean of the last M values of p exceeds their geometric mean by
 * more than M times the unbiased variance of all M d numbers sqrt(buffer_x2) before the update. It is
 * normalized with v = p and r = 1, dx = (q - m z) / sqrt(v + epsilon) with m = g, and the buffers receive rv
 * and e instead of p and g. With M = 1 every batch is treated in this way, but buffer_x2 receives p.
 *
 * Several micro-batches of an update: v of each is computed from its p and the other M - 1 values of the
 * buffer; at the end of the update, p, g, m and the decisions of the filter are averaged over the rows.
 *
 * By design, the backward pass is not the exact gradient. The released code counts padding rows in g; here
 * batches have no padding. The code has W = 4000 by default, the warm-up of its learning rate.
 *
 * Memory traffic in passes over [rows, width]: training 3, backward 5, inference 2, as BatchNorm. */
#include <math.h>

#include "norm/types.h"

typedef struct un_config {
    const char *warmup;
    double decay, epsilon, r_limit;
    int64_t window_forward, window_backward, r_hold;
    bool outlier_filtration;
} un_config;

/* clang-format off */
static const nm_option un_options[] = {
    NM_OPTION(un_config, window_forward, "4", 1, 4096,
        "Number of updates in the geometric mean of mean squares; 1: batch statistics."),
    NM_OPTION(un_config, window_backward, "4", 1, 4096,
        "Number of updates in the moving average of the backward pass."),
    NM_OPTION(un_config, warmup, "lr", 0, 0,
        "Number of updates that use batch statistics; lr: the warm-up of the learning rate."),
    NM_OPTION(un_config, decay, "0.9", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_OPTION(un_config, epsilon, "1e-5", 0, 1, "Constant added to mean squares."),
    NM_OPTION(un_config, r_limit, "5", 1, 1e6,
        "Limit of the correction r, which stays between 1/r_limit and r_limit."),
    NM_OPTION(un_config, r_hold, "1000", 0, 1e15, "Number of updates without the correction r."),
    NM_OPTION(un_config, outlier_filtration, "false", 0, 0,
        "Batch statistics for batches whose mean squares differ from those of the last updates."),
    {0}};
/* clang-format on */

enum { RUNNING_VAR, E, BUFFER_SQUARE, BUFFER_GRAD }; /* state */
enum { UPDATES, SKIPPED };                           /* counters */
/* Statistics of an update; the last one only with outlier_filtration. */
enum { STATISTIC_SQUARE, STATISTIC_SLOT_GRAD, STATISTIC_MEAN_GRAD, STATISTIC_SKIPPED };

static nm_status un_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const un_config *config = settings;
    int64_t window =
        config->window_forward > config->window_backward ? config->window_forward : config->window_backward;
    if (window > INT32_MAX / site->width)
        return nm_fail(err, NM_USAGE, "norm '%s': a window of %lld updates is too long", site->name,
                       (long long)window);
    return nm_norm_check_warmup(&nm_norm_un, config->warmup, err);
}

static void un_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const un_config *config = settings;
    nm_norm_shape_affine(settings, site, shape);
    nm_norm_shape_state(shape, "running_var", site->width, 1);
    nm_norm_shape_state(shape, "ema_gz", site->width, 0)->of_gradients = true;
    nm_norm_shape_state(shape, "buffer_x2", (int32_t)config->window_forward * site->width, 0);
    nm_norm_shape_state(shape, "buffer_gz", (int32_t)config->window_backward * site->width, 0)->of_gradients =
        true;
    nm_norm_shape_counter(shape, "iters");
    nm_norm_shape_counter(shape, "skip_counter");
    nm_norm_shape_statistic(shape, "square", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "slot_grad", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "mean_grad", NM_STATISTIC_MEAN);
    if (config->outlier_filtration)
        nm_norm_shape_statistic(shape, "skipped", NM_STATISTIC_MEAN);
}

static int64_t warmup_of(const nm_norm *norm)
{
    const un_config *config = norm->config;
    return nm_norm_warmup(config->warmup, norm->site.plan.warmup_updates);
}

static void un_note(const nm_norm *norm, char *text, size_t size)
{
    nm_norm_note_warmup(warmup_of(norm), text, size);
}

/* Slot i of a buffer. */
static void *slot_of(const nm_norm_call *call, void *buffer, int64_t i)
{
    return (char *)buffer + (size_t)i * (size_t)call->norm->site.width * nm_dtype_bytes(call->backend->dtype);
}

/* out = mean of the buffer with `value` in the slot of update t. */
static void window_mean(nm_norm_call *call, void *buffer, int64_t window, int64_t t, const void *value,
                        void *out)
{
    double part = 1 / (double)window;
    NM_NORM_VEC(call, LINEAR, .out = out, .a = value, .s = part);
    for (int64_t i = 0; i < window; i++)
        if (i != t % window)
            nm_norm_average(call, out, 1, slot_of(call, buffer, i), part);
}

/* out = geometric mean of buffer_x2 with p in the slot of update t; root: memory of [width]. */
static void geometric_mean(nm_norm_call *call, int64_t t, const void *p, void *root, void *out)
{
    const un_config *config = call->norm->config;
    int64_t window = config->window_forward;
    double exponent = 1 / (double)window;
    NM_NORM_VEC(call, POW, .out = out, .a = p, .s = exponent, .t = 1);
    for (int64_t i = 0; i < window; i++) {
        if (i == t % window)
            continue;
        NM_NORM_VEC(call, POW, .out = root, .a = slot_of(call, call->norm->state[BUFFER_SQUARE], i),
                    .s = exponent, .t = 1);
        NM_NORM_VEC(call, MUL, .out = out, .a = out, .b = root, .s = 1);
    }
}

/* out = mask ? b : a, for a mask of zeros or ones; out may be a. Exact also where a and b differ by orders of
 * magnitude:
 *     out = mask b + (a - mask a) */
static void select_by(nm_norm_call *call, const void *mask, const void *a, const void *b, void *rest,
                      void *out)
{
    NM_NORM_VEC(call, MUL_ADD, .out = rest, .a = mask, .b = a, .c = a, .s = -1, .t = 1);
    NM_NORM_VEC(call, MUL_ADD, .out = out, .a = mask, .b = b, .c = rest, .s = 1, .t = 1);
}

typedef struct workspace { /* device; of [width], except roots, [window_forward width] */
    void *mean, *root, *repeated, *roots;
} workspace;

/* Returns whether memory is left. */
static bool alloc_workspace(nm_norm_call *call, workspace *w)
{
    const un_config *config = call->norm->config;
    int32_t width = call->norm->site.width;
    w->mean = nm_norm_scratch(call, width);
    w->root = nm_norm_scratch(call, width);
    w->repeated = nm_norm_scratch(call, width);
    w->roots = config->outlier_filtration ? nm_norm_scratch(call, (int32_t)config->window_forward * width)
                                          : w->repeated;
    return w->roots != NULL;
}

/* threshold = M times the unbiased variance of sqrt(buffer_x2), repeated for all features */
static void outlier_threshold(nm_norm_call *call, const workspace *w, void *threshold)
{
    const un_config *config = call->norm->config;
    int32_t n = (int32_t)config->window_forward * call->norm->site.width;
    void *variance = w->mean;
    NM_CALL(call->backend, vec, .op = NM_VEC_SQRT, .n = n, .out = w->roots,
            .a = call->norm->state[BUFFER_SQUARE]);
    NM_CALL(call->backend, feature_moments, .spec = &(nm_feature_norm){0}, .x = nm_mat_of(w->roots, n, 1),
            .center = w->root, .mean = w->root, .square = variance);
    NM_CALL(call->backend, vec, .op = NM_VEC_LINEAR, .n = 1, .out = variance, .a = variance,
            .s = (double)config->window_forward * n / (n > 1 ? n - 1 : 1));
    nm_norm_repeat(call, variance, w->root, threshold);
}

/* mask = 1 if the batch is normalized by its own statistics only, otherwise 0, in all features; v: geometric
 * mean. */
static void find_skipped(nm_norm_call *call, int64_t t, const void *p, const void *v, const workspace *w,
                         void *mask)
{
    const un_config *config = call->norm->config;
    bool filters = config->window_forward > 1 && config->outlier_filtration && t >= warmup_of(call->norm);
    NM_NORM_VEC(call, FILL, .out = mask, .s = config->window_forward == 1);
    if (!filters)
        return;
    outlier_threshold(call, w, w->repeated);
    window_mean(call, call->norm->state[BUFFER_SQUARE], config->window_forward, t, p, w->mean);
    nm_norm_average(call, w->mean, 1, v, -1);
    NM_NORM_VEC(call, SIGN, .out = w->mean, .a = w->mean, .b = w->repeated, .s = 1);
    NM_NORM_VEC(call, CLIP, .out = w->mean, .a = w->mean, .t = 1);
    /* any feature: the sum is positive */
    NM_NORM_VEC(call, FILL, .out = w->root);
    nm_norm_add_sum(call, w->mean, 1, w->repeated, w->root);
    NM_NORM_VEC(call, CLIP, .out = w->root, .a = w->root, .t = 1);
    nm_norm_repeat(call, w->root, w->repeated, mask);
}

/* v and the mask of update t with the mean square p. */
static void measure(nm_norm_call *call, int64_t t, const void *p, const workspace *w, void *v, void *mask)
{
    const un_config *config = call->norm->config;
    geometric_mean(call, t, p, w->root, v);
    find_skipped(call, t, p, v, w, mask);
    if (t <= config->window_forward || t < warmup_of(call->norm))
        NM_NORM_VEC(call, COPY, .out = v, .a = p);
    else
        select_by(call, mask, v, p, w->root, v);
}

static void correction(nm_norm_call *call, int64_t t, const void *v, const void *mask, const workspace *w,
                       void *r)
{
    const nm_norm *norm = call->norm;
    const un_config *config = norm->config;
    NM_NORM_VEC(call, FILL, .out = w->mean, .s = 1);
    if (t <= config->r_hold || t <= warmup_of(norm)) {
        NM_NORM_VEC(call, COPY, .out = r, .a = w->mean);
        return;
    }
    NM_NORM_VEC(call, SQRT, .out = r, .a = v, .s = config->epsilon);
    NM_NORM_VEC(call, RSQRT, .out = w->root, .a = norm->state[RUNNING_VAR], .s = config->epsilon);
    NM_NORM_VEC(call, MUL, .out = r, .a = r, .b = w->root, .s = 1);
    NM_NORM_VEC(call, CLIP, .out = r, .a = r, .s = 1 / config->r_limit, .t = config->r_limit);
    select_by(call, mask, r, w->mean, w->root, r);
}

static void un_train(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const un_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width;
    const nm_feature_norm spec = {.sum = call->sum}, ready = {.row_scale_ready = true};
    workspace w;
    void *p = nm_norm_publish(call, "batch_square", width);
    void *v = nm_norm_publish(call, "used_square", width);
    void *scale = nm_norm_publish(call, "scale", width);
    void *r = nm_norm_publish(call, "r", width);
    void *mask = nm_norm_publish(call, "skipped", width);
    nm_norm_publish_state(call, RUNNING_VAR);
    if (!alloc_workspace(call, &w))
        return;
    int64_t t = call->update = norm->counters[UPDATES] + 1;
    NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .square = p);
    nm_norm_collect(call, STATISTIC_SQUARE, p);
    nm_norm_join_one(call, p, NM_STATISTIC_MEAN);
    measure(call, t, p, &w, v, mask);
    if (config->outlier_filtration)
        nm_norm_collect(call, STATISTIC_SKIPPED, mask);
    correction(call, t, v, mask, &w, r);
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = v, .s = config->epsilon);
    NM_CALL(b, feature_norm, .spec = &ready, .x = call->x, .scale = scale, .weight = norm->params[0],
            .bias = norm->params[1], .y = call->y);
}

static void running_scale(nm_norm_call *call, void *scale)
{
    const un_config *config = call->norm->config;
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = call->norm->state[RUNNING_VAR], .s = config->epsilon);
}

static void un_infer(nm_norm_call *call)
{
    nm_norm_infer_running(call, 0, NULL, running_scale);
}

/* m and the value for buffer_gz, from g of this update. */
static void gradient_statistics(nm_norm_call *call, const void *g, const void *mask, void *difference,
                                void *slot, void *m)
{
    const nm_norm *norm = call->norm;
    const un_config *config = norm->config;
    int64_t t = call->update;
    select_by(call, mask, g, norm->state[E], difference, slot);
    if (t <= config->window_backward || t < warmup_of(norm)) {
        NM_NORM_VEC(call, COPY, .out = m, .a = g);
    } else {
        window_mean(call, norm->state[BUFFER_GRAD], config->window_backward, t, g, m);
        select_by(call, mask, m, g, difference, m);
    }
}

static void un_backward(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const un_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width;
    const nm_feature_norm spec = {.row_scale_ready = true};
    const void *scale = nm_norm_find(call, "scale"), *r = nm_norm_find(call, "r");
    const void *mask = nm_norm_find(call, "skipped");
    void *sum_dy = nm_norm_publish(call, "grad_sum", width),
         *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *gain = nm_norm_scratch(call, width), *g = nm_norm_scratch(call, width);
    void *slot = nm_norm_scratch(call, width), *m = nm_norm_scratch(call, width);
    void *e = nm_norm_scratch(call, width), *difference = nm_norm_scratch(call, width);
    if (!difference)
        return;
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .scale = scale,
            .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    NM_NORM_VEC(call, MUL, .out = gain, .a = norm->params[0], .b = r, .s = 1);
    /* the statistics are those of the loss without grad_scale */
    NM_NORM_VEC(call, MUL, .out = g, .a = gain, .b = sum_dy_z, .s = 1 / (call->grad_scale * call->x.rows));
    gradient_statistics(call, g, mask, difference, slot, m);
    nm_norm_collect(call, STATISTIC_SLOT_GRAD, slot);
    nm_norm_collect(call, STATISTIC_MEAN_GRAD, m);
    if (call->joiner) {
        nm_norm_join_one(call, g, NM_STATISTIC_MEAN);
        gradient_statistics(call, g, mask, difference, slot, m);
    }
    NM_NORM_VEC(call, LINEAR, .out = e, .a = norm->state[E], .b = m, .s = config->decay,
                .t = 1 - config->decay);
    select_by(call, mask, e, m, difference, e);
    /* dx = a dy + c1 z:  a = weight r/sqrt(v + epsilon),  c1 = -e/sqrt(v + epsilon) */
    NM_NORM_VEC(call, MUL, .out = e, .a = e, .b = scale, .s = -call->grad_scale);
    NM_NORM_VEC(call, MUL, .out = gain, .a = gain, .b = scale, .s = 1);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x, .scale = scale, .a = gain,
            .c1 = e, .add = call->add, .dx = call->dx, .residual = call->residual);
    NM_NORM_VEC(call, MUL, .out = g, .a = r, .b = sum_dy_z, .s = 1);
    nm_norm_add_grads(call, g, sum_dy);
}

/* There is no allocator: the vectors of the statistics are the memory, those of the gradient first. */

static void update_gradients(nm_norm_call *call, int64_t t)
{
    nm_norm *norm = call->norm;
    const un_config *config = norm->config;
    void *slot = slot_of(call, norm->state[BUFFER_GRAD], t % config->window_backward);
    NM_NORM_VEC(call, COPY, .out = slot, .a = norm->statistics[STATISTIC_SLOT_GRAD]);
    nm_norm_average(call, norm->state[E], config->decay, norm->statistics[STATISTIC_MEAN_GRAD],
                    1 - config->decay);
}

/* With the filter, the mask may be a fraction: that of the rows in micro-batches that are outliers. */
static void update_squares(nm_norm_call *call, int64_t t)
{
    nm_norm *norm = call->norm;
    const un_config *config = norm->config;
    void *p = norm->statistics[STATISTIC_SQUARE], *v = norm->statistics[STATISTIC_SLOT_GRAD];
    void *scratch = norm->statistics[STATISTIC_MEAN_GRAD], *rv = norm->state[RUNNING_VAR];
    void *mask = config->outlier_filtration ? norm->statistics[STATISTIC_SKIPPED] : NULL;
    double skipped = 0;
    geometric_mean(call, t, p, scratch, v);
    if (t <= config->window_forward || t < warmup_of(norm))
        NM_NORM_VEC(call, COPY, .out = v, .a = p);
    else if (mask)
        select_by(call, mask, v, p, scratch, v);
    if (mask && config->window_forward > 1) {
        select_by(call, mask, p, rv, scratch, p);
        nm_backend_read(call->backend, &skipped, mask, 1);
        norm->counters[SKIPPED] += skipped > 0;
    }
    NM_NORM_VEC(call, COPY, .out = slot_of(call, norm->state[BUFFER_SQUARE], t % config->window_forward),
                .a = p);
    nm_norm_average(call, rv, config->decay, v, 1 - config->decay);
}

static void un_update_state(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    bool forward = norm->collected_rows[STATISTIC_SQUARE] > 0;
    int64_t t = norm->counters[UPDATES] + forward;
    if (norm->collected_rows[STATISTIC_MEAN_GRAD] > 0)
        update_gradients(call, call->update ? call->update : t);
    if (forward)
        update_squares(call, t);
    norm->counters[UPDATES] = t;
}

static bool un_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const un_config *config = norm->config;
    nm_norm_read_vector(norm, backend, norm->state[RUNNING_VAR], scale);
    for (int32_t i = 0; i < norm->site.width; i++)
        scale[i] = 1 / sqrt(scale[i] + config->epsilon);
    nm_norm_affine(norm, backend, NULL, scale, shift);
    return true;
}

const nm_norm_type nm_norm_un = {
    .name = "un",
    .title = "Unified Normalization",
    .formula = "z = x / sqrt(v + eps), v = geometric mean of the last 4 mean squares; y = weight z + bias",
    .source = "Yang et al. 2022; github.com/hikvision-research/Unified-Normalization",
    .remedy = "a lower learning rate, or a longer warm-up, norm.un.warmup",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE | NM_APPROX_GRAD,
    .options = un_options,
    .config_size = sizeof(un_config),
    .check = un_check,
    .note = un_note,
    .shape = un_shape,
    .train = un_train,
    .infer = un_infer,
    .backward = un_backward,
    .update_state = un_update_state,
    .affine = un_affine,
};
