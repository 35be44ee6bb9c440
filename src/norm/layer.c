/* LayerNorm (Ba, Kiros and Hinton 2016). Per row, with q = weight dy:
 *     z = (x - mean) / sqrt(variance + epsilon)        y = weight z + bias
 *     dx = (q - mean(q) - z mean(q z)) / sqrt(variance + epsilon)
 * The variance has the divisor d. The Regularized BatchNorm program divides by d - 1: `unbiased`; the last
 * term of dx then has that divisor too. */
#include "norm/types.h"

typedef struct layer_config {
    double epsilon;
    bool unbiased;
} layer_config;

/* clang-format off */
static const nm_option layer_options[] = {
    NM_OPTION(layer_config, epsilon, "1e-5", 0, 1, "added to the variance"),
    NM_OPTION(layer_config, unbiased, "false", 0, 0, "divide the squares by d - 1, as the RBN program does"),
    {0}};
/* clang-format on */

static nm_token_norm layer_spec(const nm_norm_call *call)
{
    const layer_config *config = call->norm->config;
    int32_t width = call->norm->site.width;
    return (nm_token_norm){.kind = config->unbiased ? NM_TOKEN_CENTER_UNBIASED : NM_TOKEN_CENTER,
                           .groups = 1,
                           .eps = config->epsilon,
                           .weight_len = width,
                           .bias_len = width};
}

static void layer_forward(nm_norm_call *call)
{
    const nm_token_norm spec = layer_spec(call);
    nm_norm_token_forward(call, &spec);
}

static void layer_backward(nm_norm_call *call)
{
    const nm_token_norm spec = layer_spec(call);
    nm_norm_token_backward(call, &spec);
}

const nm_norm_type nm_norm_layer = {
    .name = "layer",
    .title = "LayerNorm",
    .source = "Ba, Kiros and Hinton 2016",
    .options = layer_options,
    .config_size = sizeof(layer_config),
    .shape = nm_norm_shape_affine,
    .train = layer_forward,
    .infer = layer_forward,
    .backward = layer_backward,
};
