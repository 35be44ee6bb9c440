/* PowerNorm (Shen et al. 2020, Definition 3 and Algorithm 2; by default as in its released program).
 *
 * Call t of training, with h = x scaled per row and group, p = mean over rows of h^2, W the warm-up length:
 *     z = h / sqrt(p + epsilon) while t <= W, then z = h / sqrt(phi + epsilon), phi as it was before the call
 *     y = weight z + bias
 *     t < W:  phi = phi (t - 1)/t + p/t;       always, after that:  phi = decay_forward phi + (1 -
 * decay_forward) p Backward, with q = weight dy, e the accumulator and D = p (backward_divisor batch) or the
 * phi used forward (running): a = q - (1 - decay_backward) e z         e = e + mean(a z)         dh = a /
 * sqrt(D + epsilon) e is the paper's nu / (1 - decay_backward). mean(z^2) is p times the forward scale
 * squared, so after the warm-up one pass over the rows is enough in each direction. Inference: z = h /
 * sqrt(phi + epsilon).
 *
 * Deliberately not the derivative: the running phi is a constant and e stands for the mean of q z over
 * batches. */
#include <math.h>
#include <string.h>

#include "norm/types.h"

enum {
    ENCODER_FINAL_WARMUP = 1000
}; /* the program builds this norm without the length and gets its own default */

typedef struct power_config {
    const char *preset, *warmup, *backward_divisor, *scaling;
    double decay_forward, decay_backward, epsilon, clip;
} power_config;

/* clang-format off */
static const nm_option power_options[] = {
    NM_CHOICE(power_config, preset, "official", "official|paper", "as in the released program, or Algorithm 2 as printed"),
    NM_OPTION(power_config, decay_forward, "0.9", 0, 1, "share of the old running mean square kept at each step"),
    NM_OPTION(power_config, decay_backward, "0.9", 0, 1, "the same for the accumulator of the backward pass"),
    NM_OPTION(power_config, epsilon, "1e-5", 0, 1, "added to mean squares"),
    {"warmup", NM_TEXT, offsetof(power_config, warmup), "lr", 0, 0, NULL,
     "training calls that use batch statistics: a number, or lr for the learning-rate warm-up (1000 in the encoder's final norm)"},
    NM_CHOICE(power_config, backward_divisor, "batch", "batch|running", "whose mean square divides the gradient"),
    NM_CHOICE(power_config, scaling, "group", NM_NORM_SCALINGS, "parameter-free scaling of each row first"),
    NM_OPTION(power_config, clip, "0", 0, 1e30, "largest size of the accumulator's elements; 0: no limit"),
    {0}};

static const nm_preset power_presets[] = {
    {"official", "", "the released program"},
    {"paper", "warmup=0 backward_divisor=running scaling=none", "Algorithm 2 as printed"},
    {0}};
/* clang-format on */

enum { PHI, ACCUMULATOR }; /* state */
enum { ITERS };            /* counters */

static nm_status power_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    const power_config *config = settings;
    NM_TRY(nm_norm_check_groups(nm_norm_scaling_groups(config->scaling, place), place, err));
    return nm_norm_check_warmup(config->warmup, err);
}

static void power_shape(const void *config, const nm_norm_site *place, nm_norm_shape *shape)
{
    nm_norm_shape_affine(config, place, shape);
    nm_norm_shape_state(shape, "running_phi", place->width, 1);
    nm_norm_shape_state(shape, "ema_gz", place->width, 0);
    shape->state[shape->n_state - 1].of_gradients = true;
    nm_norm_shape_counter(shape, "iters");
}

static int64_t warmup_of(const nm_norm_call *call)
{
    const power_config *config = call->norm->config;
    const nm_norm_site *place = &call->norm->place;
    return nm_norm_warmup(config->warmup, place->encoder_final ? ENCODER_FINAL_WARMUP : place->warmup_steps);
}

static void update_phi(nm_norm_call *call, const void *square, int64_t t, int64_t warmup)
{
    const power_config *config = call->norm->config;
    void *phi = call->norm->state[PHI];
    if (t < warmup)
        nm_norm_average(call, phi, (double)(t - 1) / (double)t, square, 1 / (double)t);
    nm_norm_average(call, phi, config->decay_forward, square, 1 - config->decay_forward);
}

static void power_train(nm_norm_call *call)
{
    const power_config *config = call->norm->config;
    nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    int32_t width = norm->place.width;
    void *row_scale;
    nm_feature_norm spec = nm_norm_row_scaling(call, nm_norm_scaling_groups(config->scaling, &norm->place),
                                               config->epsilon, &row_scale);
    void *square = nm_norm_publish(call, "batch_square", width);
    void *before = nm_norm_publish(call, "running_phi", width);
    void *scale = nm_norm_publish(call, "scale", width);
    if (!scale)
        return;
    int64_t t = ++norm->counters[ITERS], warmup = warmup_of(call);
    nm_norm_vec(call, NM_VEC_COPY, before, norm->state[PHI], NULL, NULL, 0, 0);
    if (t <= warmup) {
        NM_CALL(b, feature_moments, .spec = &spec, .x = call->x, .row_scale = row_scale, .square = square);
        spec.row_scale_ready = true;
    }
    nm_norm_vec(call, NM_VEC_RSQRT, scale, t <= warmup ? square : before, NULL, NULL, config->epsilon, 0);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .scale = scale,
            .weight = norm->params[0], .bias = norm->params[1], .y = call->y,
            .square = t <= warmup ? NULL : square);
    update_phi(call, square, t, warmup);
}

static void power_infer(nm_norm_call *call)
{
    const power_config *config = call->norm->config;
    const nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    void *row_scale;
    const nm_feature_norm spec = nm_norm_row_scaling(
        call, nm_norm_scaling_groups(config->scaling, &norm->place), config->epsilon, &row_scale);
    void *scale = nm_norm_publish(call, "scale", norm->place.width);
    if (!scale)
        return;
    nm_norm_vec(call, NM_VEC_RSQRT, scale, norm->state[PHI], NULL, NULL, config->epsilon, 0);
    NM_CALL(b, feature_norm, .spec = &spec, .x = call->x, .row_scale = row_scale, .scale = scale,
            .weight = norm->params[0], .bias = norm->params[1], .y = call->y);
}

static bool power_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const power_config *config = norm->config;
    if (nm_norm_scaling_groups(config->scaling, &norm->place))
        return false;
    nm_norm_numbers(norm, backend, norm->state[PHI], scale);
    for (int32_t i = 0; i < norm->place.width; i++)
        scale[i] = 1 / sqrt(scale[i] + config->epsilon);
    nm_norm_affine(norm, backend, NULL, scale, shift);
    return true;
}

/* e += weight sum(dy z)/n - (1 - decay) e mean(z^2), mean(z^2) = square scale^2. Gradients carry grad_scale,
 * e does not. */
static void update_accumulator(nm_norm_call *call, const void *square, const void *scale,
                               const void *sum_dy_z, void *scratch)
{
    const power_config *config = call->norm->config;
    void *e = call->norm->state[ACCUMULATOR];
    nm_norm_vec(call, NM_VEC_MUL, scratch, scale, scale, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL, scratch, scratch, square, NULL, -(1 - config->decay_backward), 1);
    nm_norm_vec(call, NM_VEC_MUL, e, e, scratch, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL_ADD, e, call->norm->params[0], sum_dy_z, e,
                1 / (call->grad_scale * call->x.rows), 1);
    if (config->clip > 0)
        nm_norm_vec(call, NM_VEC_CLIP, e, e, NULL, NULL, -config->clip, config->clip);
}

static void power_backward(nm_norm_call *call)
{
    const power_config *config = call->norm->config;
    const nm_norm *norm = call->norm;
    nm_backend *b = call->backend;
    int32_t width = norm->place.width, groups = nm_norm_scaling_groups(config->scaling, &norm->place);
    const nm_feature_norm spec = {.groups = groups, .eps = config->epsilon, .row_scale_ready = true};
    const void *square = nm_norm_find(call, "batch_square"), *scale = nm_norm_find(call, "scale");
    void *before = nm_norm_publish(call, "ema_gz", width);
    void *nu = nm_norm_publish(call, "nu", width); /* the paper's: (1 - decay_backward) e */
    void *sum_dy = nm_norm_publish(call, "grad_sum", width);
    void *sum_dy_z = nm_norm_publish(call, "grad_sum_z", width);
    void *divisor = nm_norm_scratch(call, width), *a = nm_norm_scratch(call, width);
    void *c1 = nm_norm_scratch(call, width);
    if (!c1)
        return;
    nm_norm_vec(call, NM_VEC_COPY, before, norm->state[ACCUMULATOR], NULL, NULL, 0, 0);
    nm_norm_vec(call, NM_VEC_LINEAR, nu, before, NULL, NULL, 1 - config->decay_backward, 0);
    if (strcmp(config->backward_divisor, "batch"))
        nm_norm_vec(call, NM_VEC_COPY, divisor, scale, NULL, NULL, 0, 0);
    else
        nm_norm_vec(call, NM_VEC_RSQRT, divisor, square, NULL, NULL, config->epsilon, 0);
    nm_norm_vec(call, NM_VEC_MUL, a, norm->params[0], divisor, NULL, 1, 0);
    nm_norm_vec(call, NM_VEC_MUL, c1, before, divisor, NULL, -(1 - config->decay_backward) * call->grad_scale,
                0);
    NM_CALL(b, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x,
            .row_scale = groups ? nm_norm_find(call, "row_scale") : NULL, .scale = scale, .a = a, .c1 = c1,
            .add = call->add, .dx = call->dx, .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    nm_norm_add_grads(call, sum_dy_z, sum_dy);
    update_accumulator(call, square, scale, sum_dy_z, c1);
}

const nm_norm_type nm_norm_power = {
    .name = "power",
    .title = "PowerNorm",
    .source = "Shen et al. 2020, Algorithm 2; github.com/sIncerass/powernorm",
    .traits = NM_USES_BATCH | NM_HAS_STATE | NM_APPROX_GRAD,
    .options = power_options,
    .presets = power_presets,
    .config_size = sizeof(power_config),
    .check = power_check,
    .shape = power_shape,
    .train = power_train,
    .infer = power_infer,
    .backward = power_backward,
    .affine = power_affine,
};
