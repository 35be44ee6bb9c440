/* LayerNorm (Ba, Kiros and Hinton 2016).
 *
 * Definition and forward, per row; means over the d features:
 *
 *     mu      = mean(x)                                   shift
 *     s2      = mean((x - mu)^2)
 *     z       = (x - mu) / sqrt(s2 + epsilon)             scale = 1 / sqrt(s2 + epsilon)
 *     y       = weight z + bias
 *
 * Backward, q = weight dy:
 *
 *     dx      = (q - mean(q) - z mean(q z)) / sqrt(s2 + epsilon)
 *     dweight = sum over rows of dy z
 *     dbias   = sum over rows of dy
 *
 * With the option unbiased, as in the code of Regularized BatchNorm, s2 and mean(q z) have the divisor d -
 * 1. */
#include "norm/types.h"

typedef struct layer_config {
    double epsilon;
    bool unbiased;
} layer_config;

/* clang-format off */
static const nm_option layer_options[] = {
    NM_OPTION(layer_config, epsilon, "1e-5", 0, 1, "Constant added to the variance."),
    NM_OPTION(layer_config, unbiased, "false", 0, 0, "Unbiased variance, divisor d - 1, as in the RBN code."),
    {0}};
/* clang-format on */

static nm_token_norm layer_spec(const nm_norm *norm)
{
    const layer_config *config = norm->config;
    return (nm_token_norm){.kind = config->unbiased ? NM_TOKEN_CENTER_UNBIASED : NM_TOKEN_CENTER,
                           .groups = 1,
                           .eps = config->epsilon,
                           .weight_len = norm->site.width,
                           .bias_len = norm->site.width};
}

const nm_norm_type nm_norm_layer = {
    .name = "layer",
    .title = "LayerNorm",
    .formula = "z = (x - mean x) / sqrt(var x + eps), y = weight z + bias",
    .source = "Ba, Kiros and Hinton 2016",
    .traits = NM_SUMS_RESIDUAL,
    .options = layer_options,
    .config_size = sizeof(layer_config),
    .shape = nm_norm_shape_affine,
    .token_spec = layer_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
