/* RMSNorm (Zhang and Sennrich 2019, equation 4).
 *
 * Definition and forward, per row; means over the d features, or over each group of features (option groups):
 *
 *     r      = sqrt(mean(x^2))
 *     z      = x / (r + epsilon)                     scale (published) = 1 / (r + epsilon)
 *     y      = g z                                   g: parameter "scale"
 *
 * Backward, q = g dy:
 *
 *     dx     = q / (r + epsilon) - x mean(q x) / (r (r + epsilon)^2)       second term 0 if r = 0
 *     dg     = sum over rows of dy z
 *
 * epsilon is outside the root, as in the authors' code. With epsilon_inside, as in PyTorch's RMSNorm:
 *
 *     z      = x / s                                 s = sqrt(mean(x^2) + epsilon)
 *     dx     = (q - z mean(q z)) / s
 *
 * Without g (option gain) and with epsilon_inside this is PowerNorm's layer or group scaling as a norm. */
#include "norm/types.h"

typedef struct rms_config {
    double epsilon;
    bool epsilon_inside, gain, decay_to_one;
    int64_t groups;
} rms_config;

/* clang-format off */
static const nm_option rms_options[] = {
    NM_OPTION(rms_config, epsilon, "1e-8", 0, 1, "Constant added to the root mean square."),
    NM_OPTION(rms_config, epsilon_inside, "false", 0, 0,
        "Constant epsilon added to the mean square instead of its root."),
    NM_OPTION(rms_config, groups, "1", 1, 65536, "Number of groups of features with separate mean squares."),
    NM_OPTION(rms_config, gain, "true", 0, 0, "Learned gain per feature."),
    NM_OPTION(rms_config, decay_to_one, "false", 0, 0,
        "Weight decay of the gain towards 1 instead of 0, as of models whose gain is 1 plus a weight "
        "(Gemma)."),
    {0}};
/* clang-format on */

static nm_status rms_check(const void *settings, const nm_norm_site *site, nm_error *err)
{
    const rms_config *config = settings;
    return nm_norm_check_groups(config->groups, site, err);
}

static void rms_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const rms_config *config = settings;
    if (config->gain)
        nm_norm_shape_param(shape, "scale", site->width, 1)->decay_to = config->decay_to_one ? 1 : 0;
}

static nm_token_norm rms_spec(const nm_norm *norm)
{
    const rms_config *config = norm->config;
    return (nm_token_norm){.kind = config->epsilon_inside ? NM_TOKEN_RMS : NM_TOKEN_RMS_OUTSIDE,
                           .groups = (int32_t)config->groups,
                           .eps = config->epsilon,
                           .weight_len = config->gain ? norm->site.width : 0};
}

const nm_norm_type nm_norm_rms = {
    .name = "rms",
    .title = "RMSNorm",
    .formula = "y = scale x / (sqrt(mean x^2) + eps)",
    .source = "Zhang and Sennrich 2019, equation 4",
    .traits = NM_SUMS_RESIDUAL,
    .options = rms_options,
    .config_size = sizeof(rms_config),
    .check = rms_check,
    .shape = rms_shape,
    .token_spec = rms_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
