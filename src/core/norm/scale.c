/* ScaleNorm (Nguyen and Salazar 2019, equation 5).
 *
 * Definition and forward, per row:
 *
 *     m  = max(|x|, epsilon)                 |x|: L2 norm
 *     y  = g x / m                           g: parameter "scale", one number, initially sqrt(d)
 *
 * Backward:
 *
 *     dx = g/m (dy - x <dy, x> / m^2)        if |x| > epsilon
 *     dx = g/epsilon dy                      otherwise: m is a constant
 *     dg = sum over rows of <dy, x> / m
 *
 * The paper has no epsilon; the clamp is that of the released code. With trainable = false, g is the constant
 * sqrt(d), except in a decoder's norm before the output projection (Table 7, "fixed g"). */
#include <math.h>

#include "norm/types.h"

typedef struct scale_config {
    double epsilon;
    bool trainable;
} scale_config;

/* clang-format off */
static const nm_option scale_options[] = {
    NM_OPTION(scale_config, epsilon, "1e-5", 0, 1, "Lower bound of the L2 norm by which a row is divided."),
    NM_OPTION(scale_config, trainable, "true", 0, 0,
        "Learned g in every norm; false: only in a decoder's norm before the output projection, which "
        "classification and tagging do not have."),
    {0}};
/* clang-format on */

static void scale_shape(const void *settings, const nm_norm_site *site, nm_norm_shape *shape)
{
    const scale_config *config = settings;
    nm_norm_shape_param(shape, "scale", 1, sqrt((double)site->width))->fixed =
        !config->trainable && site->kind != NM_SITE_BEFORE_OUTPUT;
}

static nm_token_norm scale_spec(const nm_norm *norm)
{
    const scale_config *config = norm->config;
    return (nm_token_norm){.kind = NM_TOKEN_L2, .groups = 1, .eps = config->epsilon, .weight_len = 1};
}

const nm_norm_type nm_norm_scale = {
    .name = "scale",
    .title = "ScaleNorm",
    .formula = "y = g x / max(L2 norm of x, eps)",
    .source = "Nguyen and Salazar 2019, equation 5",
    .traits = NM_SUMS_RESIDUAL,
    .options = scale_options,
    .config_size = sizeof(scale_config),
    .shape = scale_shape,
    .token_spec = scale_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
