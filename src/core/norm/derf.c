/* Derf (Chen et al. 2025, "Stronger Normalization-Free Transformers"): a pointwise function instead of a
 * norm.
 *
 * Definition and forward, per element; alpha and shift: learned scalars, initially alpha_init and shift_init:
 *
 *     z       = alpha x + shift
 *     y       = weight erf(z) + bias
 *
 * Backward, q = weight dy 2/sqrt(pi) exp(-z^2):
 *
 *     dx      = alpha q
 *     dalpha  = sum of q x over all elements
 *     dshift  = sum of q over all elements
 *     dweight = sum over rows of dy erf(z)
 *     dbias   = sum over rows of dy
 *
 * Training and inference are the same. */
#include "norm/types.h"

typedef struct derf_config {
    double alpha_init, shift_init;
} derf_config;

static const nm_option derf_options[] = {
    NM_OPTION(derf_config, alpha_init, "0.5", -1e6, 1e6, "Initial value of alpha."),
    NM_OPTION(derf_config, shift_init, "0", -1e6, 1e6, "Initial value of the shift."),
    {0}};

enum { WEIGHT, BIAS, ALPHA, SHIFT }; /* parameters */

static void derf_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const derf_config *config = settings;
    nm_norm_shape_affine(settings, site, shape);
    nm_norm_shape_param(shape, "alpha", 1, config->alpha_init);
    nm_norm_shape_param(shape, "shift", 1, config->shift_init);
}

static nm_map_args derf_map(const nm_norm_call *call)
{
    void *const *params = call->norm->params;
    return (nm_map_args){.op = NM_MAP_ERF,
                         .x = call->x,
                         .alpha = params[ALPHA],
                         .shift = params[SHIFT],
                         .weight = params[WEIGHT],
                         .bias = params[BIAS],
                         .y = call->y};
}

static void derf_forward(nm_norm_call *call)
{
    const nm_map_args map = derf_map(call);
    call->backend->k.map(call->backend, &map);
}

static void derf_backward(nm_norm_call *call)
{
    void *const *grads = call->norm->param_grads;
    NM_CALL(call->backend, map_grad, .forward = derf_map(call), .dy = call->dy, .add = call->add,
            .dx = call->dx, .d_alpha = grads[ALPHA], .d_shift = grads[SHIFT], .d_weight = grads[WEIGHT],
            .d_bias = grads[BIAS]);
}

const nm_norm_type nm_norm_derf = {
    .name = "derf",
    .title = "Derf",
    .formula = "y = weight erf(alpha x + shift) + bias",
    .source = "Chen et al. 2025; github.com/zlab-princeton/Derf",
    .options = derf_options,
    .config_size = sizeof(derf_config),
    .shape = derf_shape,
    .train = derf_forward,
    .infer = derf_forward,
    .backward = derf_backward,
};
