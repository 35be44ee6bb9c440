/* Dynamic Tanh, DyT (Zhu et al. 2025, "Transformers without Normalization", equation 1): a pointwise function
 * instead of a norm.
 *
 * Definition and forward, per element; alpha: a learned scalar, initially alpha_init:
 *
 *     y       = weight tanh(alpha x) + bias
 *
 * Backward, q = weight dy (1 - tanh(alpha x)^2):
 *
 *     dx      = alpha q
 *     dalpha  = sum of q x over all elements
 *     dweight = sum over rows of dy tanh(alpha x)
 *     dbias   = sum over rows of dy
 *
 * Training and inference are the same. For large language models the paper uses other values of alpha_init,
 * which depend on the site. */
#include "norm/types.h"

typedef struct dyt_config {
    double alpha_init;
} dyt_config;

static const nm_option dyt_options[] = {
    NM_OPTION(dyt_config, alpha_init, "0.5", -1e6, 1e6, "Initial value of alpha."), {0}};

enum { WEIGHT, BIAS, ALPHA }; /* parameters */

static void dyt_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const dyt_config *config = settings;
    nm_norm_shape_affine(settings, site, shape);
    nm_norm_shape_param(shape, "alpha", 1, config->alpha_init);
}

static nm_map_args dyt_map(const nm_norm_call *call)
{
    void *const *params = call->norm->params;
    return (nm_map_args){.op = NM_MAP_TANH,
                         .x = call->x,
                         .alpha = params[ALPHA],
                         .weight = params[WEIGHT],
                         .bias = params[BIAS],
                         .y = call->y};
}

static void dyt_forward(nm_norm_call *call)
{
    const nm_map_args map = dyt_map(call);
    call->backend->k.map(call->backend, &map);
}

static void dyt_backward(nm_norm_call *call)
{
    void *const *grads = call->norm->param_grads;
    NM_CALL(call->backend, map_grad, .forward = dyt_map(call), .dy = call->dy, .add = call->add,
            .dx = call->dx, .d_alpha = grads[ALPHA], .d_weight = grads[WEIGHT], .d_bias = grads[BIAS]);
}

const nm_norm_type nm_norm_dyt = {
    .name = "dyt",
    .title = "DyT",
    .formula = "y = weight tanh(alpha x) + bias",
    .source = "Zhu et al. 2025, equation 1",
    .options = dyt_options,
    .config_size = sizeof(dyt_config),
    .shape = dyt_shape,
    .train = dyt_forward,
    .infer = dyt_forward,
    .backward = dyt_backward,
};
