/* Partial RMSNorm, pRMSNorm (Zhang and Sennrich 2019, section 4): RMSNorm whose root mean square is that of
 * the first p of the d features.
 *
 * Definition and forward, per row; p = floor(fraction d), at least 1:
 *
 *     r      = sqrt(mean of x^2 over the first p features)
 *     z      = x / (r + epsilon)                     all d features
 *     y      = g z + o                               g: parameter "scale"; o: parameter "offset" (option
 *            offset), otherwise 0
 *
 * Backward, q = g dy:
 *
 *     dx     = q / (r + epsilon) - x sum(q x) / (p r (r + epsilon)^2)     the first p features; second term 0
 *            if r = 0
 *     dx     = q / (r + epsilon)                                          the others
 *     dg     = sum over rows of dy z
 *     do     = sum over rows of dy
 *
 * The sum over q x is that of all d features. The paper recommends fraction = 1/16. */
#include <math.h>

#include "norm/types.h"

typedef struct prms_config {
    double fraction, epsilon;
    bool offset;
} prms_config;

/* clang-format off */
static const nm_option prms_options[] = {
    NM_OPTION(prms_config, fraction, "0.0625", 0, 1,
        "Fraction of the features that determine the root mean square, at least one feature."),
    NM_OPTION(prms_config, epsilon, "1e-8", 0, 1, "Constant added to the root mean square."),
    NM_OPTION(prms_config, offset, "false", 0, 0, "Learned offset per feature."),
    {0}};
/* clang-format on */

static void prms_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const prms_config *config = settings;
    nm_norm_shape_param(shape, "scale", site->width, 1);
    if (config->offset)
        nm_norm_shape_param(shape, "offset", site->width, 0);
}

static nm_token_norm prms_spec(const nm_norm *norm)
{
    const prms_config *config = norm->config;
    int32_t width = norm->site.width, used = (int32_t)floor(config->fraction * width);
    return (nm_token_norm){.kind = NM_TOKEN_RMS_OUTSIDE,
                           .groups = 1,
                           .eps = config->epsilon,
                           .weight_len = width,
                           .bias_len = config->offset ? width : 0,
                           .n_used = used > 1 ? used : 1};
}

const nm_norm_type nm_norm_prms = {
    .name = "prms",
    .title = "Partial RMSNorm",
    .formula = "y = scale x / (sqrt(mean x^2 of the first d/16 features) + eps)",
    .source = "Zhang and Sennrich 2019, section 4",
    .traits = NM_SUMS_RESIDUAL,
    .options = prms_options,
    .config_size = sizeof(prms_config),
    .shape = prms_shape,
    .token_spec = prms_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
