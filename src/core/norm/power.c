/* PowerNorm (Shen et al. 2020, Definition 3 and Algorithm 2), by default as in the released code.
 *
 * Definition. Update t (from 1) has n rows (tokens); h = x scaled per row and group (option scaling):
 *
 *     p   = mean(h^2)                                              psi_B^2 of the paper; batch_square
 *     phi = running mean of p                                      psi^2 of the paper; running_phi
 *     nu  = (1 - decay_backward) e                                 nu; e is ema_gz
 *
 * Forward, W the length of the warm-up (option warmup):
 *
 *     z   = h / sqrt(p + epsilon)       while t <= W
 *     z   = h / sqrt(phi + epsilon)     afterwards; phi as it was before the update
 *     y   = weight z + bias
 *
 * Backward, q = weight dy; D = p (backward_divisor = batch), or the value that the forward pass used
 * (running):
 *
 *     a       = q - nu z
 *     dh      = a / sqrt(D + epsilon)
 *     dweight = sum(dy z)
 *     dbias   = sum(dy)
 *
 * Running state, once per update:
 *
 *     phi = phi (t - 1)/t + p/t                                    only while t < W, before the next line
 *     phi = decay_forward phi + (1 - decay_forward) p
 *     e   = e + mean(a z) = e (1 - (1 - decay_backward) mean(z^2)) + weight mean(dy z)
 *     e   = min(max(e, -clip), clip)                               only if clip > 0, which is not in the
 *         paper
 *
 *     With count_padding and a fraction f of padding rows, mean(dy z) is multiplied by 1 - f: in the released
 *     code, padding rows enter the mean of a z; they have no dy, and here the mean(z^2) of the tokens.
 *
 *     mean(z^2) = p / (value that the forward pass used + epsilon), so no further pass over the rows is
 *     needed.
 *
 * Inference: y = weight h / sqrt(phi + epsilon) + bias.
 *
 * With norm.statistics = update, p is the mean over all shards. After the warm-up the forward pass uses only
 * phi, and the backward pass uses e instead of means over the batch. Hence no statistic is exchanged between
 * the shards before the end of the update, except p with backward_divisor = batch.
 *
 * By design, the backward pass is not the exact gradient: phi is treated as a constant, and e replaces mean(q
 * z).
 *
 * Differences between the released code (default) and the paper (preset paper):
 *   - The code scales rows per attention head. The paper mentions a layer-scale layer, which is not part of
 *     Algorithm 2.
 *   - The code has the warm-up above, of which the paper has one sentence.
 *   - The code divides by p in the backward pass, the paper by the value that the forward pass used.
 *   - The code stores e, the paper nu, which is the same algorithm. */
#include <math.h>

#include "norm/types.h"

/* The released code creates the encoder's final norm without the warm-up argument, whose default is this. */
enum { ENCODER_FINAL_WARMUP = 1000 };

#define DIVISORS(C) C(DIVISOR_BATCH, "batch") C(DIVISOR_RUNNING, "running")
NM_CHOICES(power_divisor, DIVISORS);

typedef struct power_config {
    const char *preset, *warmup;
    power_divisor backward_divisor;
    nm_norm_scaling scaling;
    double decay_forward, decay_backward, epsilon, clip;
    bool count_padding;
} power_config;

/* clang-format off */
static const nm_option power_options[] = {
    NM_WORD(power_config, preset, "official", "official|paper",
        "Variant of PowerNorm: the released code, or Algorithm 2 as printed."),
    NM_OPTION(power_config, decay_forward, "0.9", 0, 1,
        "Weight of the old value in the running mean square; 1 - momentum of PyTorch."),
    NM_OPTION(power_config, decay_backward, "0.9", 0, 1,
        "Weight of the old value in the running statistic of the backward pass."),
    NM_OPTION(power_config, epsilon, "1e-5", 0, 1, "Constant added to mean squares."),
    NM_OPTION(power_config, warmup, "lr", 0, 0,
              "Number of updates that use batch statistics; lr: the warm-up of the learning rate (1000 in "
                  "the encoder's final norm)."),
    NM_CHOICE(power_config, backward_divisor, "batch", DIVISORS,
        "Mean square by which the gradient is divided: that of the batch, or the one of the forward pass "
        "(running)."),
    NM_CHOICE(power_config, scaling, "group", NM_NORM_SCALINGS, NM_NORM_SCALING_HELP),
    NM_OPTION(power_config, clip, "0", 0, 1e30,
        "Limit of the absolute values of the backward statistic; 0: no limit."),
    NM_OPTION(power_config, count_padding, "false", 0, 0,
        "Mean of dy z over the batch padded to its longest sequence, as in the released code."),
    {0}};

static const nm_preset power_presets[] = {
    {"official", "", "the released code"},
    {"paper", "warmup=0 backward_divisor=running scaling=none", "Algorithm 2 as printed"},
    {0}};
/* clang-format on */

enum { PHI, E };                                                   /* state */
enum { UPDATES };                                                  /* counters */
enum { STATISTIC_SQUARE, STATISTIC_E_FACTOR, STATISTIC_SUM_DY_Z }; /* statistics of an update */

static int32_t groups_of(const nm_norm *norm)
{
    const power_config *config = norm->config;
    return nm_norm_scaling_groups(config->scaling, &norm->site);
}

static nm_status power_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const power_config *config = settings;
    NM_TRY(nm_norm_check_padding(config->count_padding, site, err));
    NM_TRY(nm_norm_check_scaling(config->scaling, site, err));
    return nm_norm_check_warmup(&nm_norm_power, config->warmup, err);
}

static void power_shape(const void *config, const nm_norm_site *site, nm_norm_shape *shape)
{
    nm_norm_shape_affine(config, site, shape);
    nm_norm_shape_state(shape, "running_phi", site->width, 1);
    nm_norm_shape_state(shape, "ema_gz", site->width, 0)->of_gradients = true;
    nm_norm_shape_counter(shape, "iters");
    nm_norm_shape_statistic(shape, "square", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "e_factor", NM_STATISTIC_MEAN);
    nm_norm_shape_statistic(shape, "sum_dy_z", NM_STATISTIC_SUM);
}

static int64_t warmup_of(const nm_norm *norm)
{
    const power_config *config = norm->config;
    const nm_norm_site *site = &norm->site;
    return nm_norm_warmup(config->warmup, site->kind == NM_SITE_ENCODER_FINAL ? ENCODER_FINAL_WARMUP
                                                                              : site->plan.warmup_updates);
}

static void power_note(const nm_norm *norm, char *text, size_t size)
{
    nm_norm_note_warmup(warmup_of(norm), text, size);
}

static void power_train(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const power_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width;
    void *row_scale;
    nm_feature_norm spec = nm_norm_row_scaling(call, groups_of(norm), &row_scale);
    void *p = nm_norm_publish(call, "batch_square", width);
    void *scale = nm_norm_publish(call, "scale", width);
    nm_norm_publish_state(call, PHI);
    if (!scale)
        return;
    call->update = norm->counters[UPDATES] + 1;
    bool warming_up = call->update <= warmup_of(norm);
    if (warming_up) {
        NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .row_scale = row_scale, .square = p);
        spec.row_scale_ready = true;
        nm_norm_collect(call, STATISTIC_SQUARE, p);
        nm_norm_join_one(call, p, NM_STATISTIC_MEAN);
    }
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = warming_up ? p : norm->state[PHI], .s = config->epsilon);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .scale = scale,
            .weight = norm->params[0], .bias = norm->params[1], .y = call->y,
            .square = warming_up ? NULL : p);
    if (!warming_up)
        nm_norm_collect(call, STATISTIC_SQUARE, p);
}

/* scale = 1/sqrt(phi + epsilon) */
static void running_scale(nm_norm_call *call, void *scale)
{
    const power_config *config = call->norm->config;
    NM_NORM_VEC(call, RSQRT, .out = scale, .a = call->norm->state[PHI], .s = config->epsilon);
}

static void power_infer(nm_norm_call *call)
{
    nm_norm_infer_running(call, groups_of(call->norm), NULL, running_scale);
}

static void power_backward(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const power_config *config = norm->config;
    nm_backend *b = call->backend;
    int32_t width = norm->site.width, groups = groups_of(norm);
    double fresh = 1 - config->decay_backward;
    const nm_feature_norm spec = {.groups = groups, .eps = NM_NORM_SCALING_EPSILON, .row_scale_ready = true};
    void *p = nm_norm_find(call, "batch_square");
    const void *scale = nm_norm_find(call, "scale");
    const void *e = norm->state[E];
    nm_norm_publish_state(call, E);
    void *nu = nm_norm_publish(call, "nu", width);
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *divisor = nm_norm_scratch(call, width);
    void *a = nm_norm_scratch(call, width);
    void *c1 = nm_norm_scratch(call, width);
    if (!c1)
        return;
    if (config->backward_divisor == DIVISOR_BATCH && call->update > warmup_of(norm))
        nm_norm_join_one(call, p, NM_STATISTIC_MEAN);
    NM_NORM_VEC(call, LINEAR, .out = nu, .a = e, .s = fresh);
    if (config->backward_divisor == DIVISOR_RUNNING)
        NM_NORM_VEC(call, COPY, .out = divisor, .a = scale);
    else
        NM_NORM_VEC(call, RSQRT, .out = divisor, .a = p, .s = config->epsilon);
    /* dh = a dy + c1 z:  a = weight/sqrt(D + epsilon),  c1 = -nu/sqrt(D + epsilon); dy contains grad_scale, e
     *                    does not */
    NM_NORM_VEC(call, MUL, .out = a, .a = norm->params[0], .b = divisor, .s = 1);
    NM_NORM_VEC(call, MUL, .out = c1, .a = e, .b = divisor, .s = -fresh * call->grad_scale);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x,
            .row_scale = groups ? nm_norm_find(call, "row_scale") : NULL, .scale = scale, .a = a, .c1 = c1,
            .add = call->add, .dx = call->dx, .residual = call->residual, .sum_dy = sum_dy,
            .sum_dy_z = sum_dy_z);
    nm_norm_add_grads(call, sum_dy_z, sum_dy);
    /* factor of e: 1 - (1 - decay_backward) mean(z^2) */
    NM_NORM_VEC(call, MUL, .out = c1, .a = scale, .b = scale, .s = 1);
    NM_NORM_VEC(call, MUL, .out = c1, .a = c1, .b = p, .s = -fresh, .t = 1);
    nm_norm_collect(call, STATISTIC_E_FACTOR, c1);
    if (config->count_padding) {
        NM_NORM_VEC(call, LINEAR, .out = c1, .a = sum_dy_z, .s = 1 - call->padding);
        sum_dy_z = c1;
    }
    nm_norm_collect(call, STATISTIC_SUM_DY_Z, sum_dy_z);
}

static void power_update_state(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const power_config *config = norm->config;
    void *phi = norm->state[PHI], *e = norm->state[E];
    if (norm->collected_rows[STATISTIC_SQUARE] > 0) {
        const void *p = norm->statistics[STATISTIC_SQUARE];
        int64_t t = ++norm->counters[UPDATES];
        if (t < warmup_of(norm))
            nm_norm_average(call, phi, (double)(t - 1) / (double)t, p, 1 / (double)t);
        nm_norm_average(call, phi, config->decay_forward, p, 1 - config->decay_forward);
    }
    if (norm->collected_rows[STATISTIC_SUM_DY_Z] > 0) {
        double rows = norm->collected_rows[STATISTIC_SUM_DY_Z];
        NM_NORM_VEC(call, MUL, .out = e, .a = e, .b = norm->statistics[STATISTIC_E_FACTOR], .s = 1);
        NM_NORM_VEC(call, MUL_ADD, .out = e, .a = norm->params[0], .b = norm->statistics[STATISTIC_SUM_DY_Z],
                    .c = e, .s = 1 / (call->grad_scale * rows), .t = 1);
        if (config->clip > 0)
            NM_NORM_VEC(call, CLIP, .out = e, .a = e, .s = -config->clip, .t = config->clip);
    }
}

static bool power_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const power_config *config = norm->config;
    if (config->scaling != NM_SCALING_NONE)
        return false;
    nm_norm_read_vector(norm, backend, norm->state[PHI], scale);
    for (int32_t i = 0; i < norm->site.width; i++)
        scale[i] = 1 / sqrt(scale[i] + config->epsilon);
    nm_norm_affine(norm, backend, NULL, scale, shift);
    return true;
}

const nm_norm_type nm_norm_power = {
    .name = "power",
    .title = "PowerNorm",
    .formula = "z = h / sqrt(phi + eps), phi = running mean of mean h^2; y = weight z + bias",
    .source = "Shen et al. 2020, Algorithm 2; github.com/sIncerass/powernorm",
    .remedy = "a larger norm.power.decay_backward, or a limit, norm.power.clip",
    .traits = NM_SUMS_RESIDUAL | NM_USES_BATCH | NM_HAS_STATE | NM_APPROX_GRAD,
    .options = power_options,
    .presets = power_presets,
    .config_size = sizeof(power_config),
    .check = power_check,
    .note = power_note,
    .shape = power_shape,
    .train = power_train,
    .infer = power_infer,
    .backward = power_backward,
    .update_state = power_update_state,
    .affine = power_affine,
};
