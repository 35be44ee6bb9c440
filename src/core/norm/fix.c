/* FixNorm (Nguyen and Chiang 2018): every row is scaled to L2 norm 1. Models apply it to the rows of the
 * embedding matrix.
 *
 * Definition and forward, per row:
 *
 *     m  = max(|x|, epsilon)                 |x|: L2 norm
 *     y  = x / m
 *
 * Backward:
 *
 *     dx = (dy - x <dy, x> / m^2) / m        if |x| > epsilon
 *     dx = dy / epsilon                      otherwise
 */
#include "norm/types.h"

typedef struct fix_config {
    double epsilon;
} fix_config;

static const nm_option fix_options[] = {
    NM_OPTION(fix_config, epsilon, "1e-12", 0, 1, "Lower bound of the L2 norm by which a row is divided."),
    {0}};

static nm_token_norm fix_spec(const nm_norm *norm)
{
    const fix_config *config = norm->config;
    return (nm_token_norm){.kind = NM_TOKEN_L2, .groups = 1, .eps = config->epsilon};
}

const nm_norm_type nm_norm_fix = {
    .name = "fix",
    .title = "FixNorm",
    .formula = "y = x / max(L2 norm of x, eps)",
    .source = "Nguyen and Chiang 2018; Nguyen and Salazar 2019, section 2.3",
    .traits = NM_SUMS_RESIDUAL,
    .options = fix_options,
    .config_size = sizeof(fix_config),
    .token_spec = fix_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
