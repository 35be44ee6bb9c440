/* SeeDNorm (Cai et al. 2025, "SeeDNorm: Self-Rescaled Dynamic Normalization", ICLR 2026): RMSNorm whose
 * weight depends on the row.
 *
 * Definition and forward, per row of d features; gamma: parameter "weight"; alpha and beta: vectors of d
 * features; beta is not a bias:
 *
 *     s      = sqrt(mean(x^2) + epsilon)             scale (published) = 1 / s
 *     t      = tanh(<x, beta>)                       gate
 *     y      = (t alpha + gamma) x / s
 *
 * Backward, z = x / s, q = (t alpha + gamma) dy:
 *
 *     u      = (1 - t^2) sum(dy alpha z)
 *     dx     = (q - z mean(q z)) / s + u beta
 *     dgamma = sum over rows of dy z
 *     dalpha = sum over rows of t dy z
 *     dbeta  = sum over rows of u x
 *
 * Training and inference are the same. Initially beta is 0, so that an untrained layer is RMSNorm; alpha is
 * not 0 then, because the gradients of alpha and beta would both be 0. */
#include "norm/types.h"

typedef struct seed_config {
    double epsilon, alpha_init;
} seed_config;

/* clang-format off */
static const nm_option seed_options[] = {
    NM_OPTION(seed_config, epsilon, "1e-6", 0, 1, "Constant added to the mean square."),
    NM_OPTION(seed_config, alpha_init, "1", -1e6, 1e6, "Initial value of alpha."),
    {0}};
/* clang-format on */

enum { WEIGHT, ALPHA, BETA }; /* parameters */

static void seed_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const seed_config *config = settings;
    nm_norm_shape_param(shape, "weight", site->width, 1);
    nm_norm_shape_param(shape, "alpha", site->width, config->alpha_init);
    nm_norm_shape_param(shape, "beta", site->width, 0);
}

static void seed_forward(nm_norm_call *call)
{
    const seed_config *config = call->norm->config;
    void *const *params = call->norm->params;
    void *gate = nm_norm_publish(call, "gate", call->x.rows);
    void *scale = nm_norm_publish(call, "scale", call->x.rows);
    if (scale)
        NM_CALL(call->backend, seed_norm, .sum = call->sum, .x = call->x, .eps = config->epsilon,
                .weight = params[WEIGHT], .alpha = params[ALPHA], .beta = params[BETA], .y = call->y,
                .scale = scale, .gate = gate);
}

static void seed_backward(nm_norm_call *call)
{
    void *const *params = call->norm->params, *const *grads = call->norm->param_grads;
    NM_CALL(call->backend, seed_norm_grad, .dy = call->dy, .x = call->x, .weight = params[WEIGHT],
            .alpha = params[ALPHA], .beta = params[BETA], .scale = nm_norm_find(call, "scale"),
            .gate = nm_norm_find(call, "gate"), .add = call->add, .dx = call->dx, .d_weight = grads[WEIGHT],
            .d_alpha = grads[ALPHA], .d_beta = grads[BETA], .residual = call->residual);
}

const nm_norm_type nm_norm_seed = {
    .name = "seed",
    .title = "SeeDNorm",
    .formula = "y = (tanh(x . beta) alpha + weight) x / sqrt(mean x^2 + eps)",
    .source = "Cai et al. 2025",
    .traits = NM_SUMS_RESIDUAL | NM_USES_FEATURES,
    .options = seed_options,
    .config_size = sizeof(seed_config),
    .shape = seed_shape,
    .train = seed_forward,
    .infer = seed_forward,
    .backward = seed_backward,
};
