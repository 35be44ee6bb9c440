/* UnitNorm (Huang, Kümmerle and Zhang 2024, "UnitNorm: Rethinking Normalization for Transformers in Time
 * Series"): every row is scaled to the L2 norm d^(k/2), without parameters. FixNorm is the case k = 0; for k
 * = 1 the root mean square is 1.
 *
 * Definition and forward, per row of d features:
 *
 *     m  = max(|x|, epsilon)                 |x|: L2 norm
 *     y  = d^(k/2) x / m
 *
 * Backward:
 *
 *     dx = d^(k/2) (dy - x <dy, x> / m^2) / m     if |x| > epsilon
 *     dx = d^(k/2) dy / epsilon                   otherwise
 */
#include "norm/types.h"

typedef struct unit_config {
    double k, epsilon;
} unit_config;

/* clang-format off */
static const nm_option unit_options[] = {
    NM_OPTION(unit_config, k, "1", -8, 8,
        "Exponent k of the L2 norm d^(k/2) of the result; 1: root mean square 1, 0: L2 norm 1."),
    NM_OPTION(unit_config, epsilon, "1e-12", 0, 1, "Lower bound of the L2 norm by which a row is divided."),
    {0}};
/* clang-format on */

static nm_token_norm unit_spec(const nm_norm *norm)
{
    const unit_config *config = norm->config;
    return (nm_token_norm){.kind = NM_TOKEN_L2, .groups = 1, .eps = config->epsilon, .power = config->k};
}

const nm_norm_type nm_norm_unit = {
    .name = "unit",
    .title = "UnitNorm",
    .formula = "y = d^(k/2) x / max(L2 norm of x, eps)",
    .source = "Huang, Kümmerle and Zhang 2024",
    .traits = NM_SUMS_RESIDUAL,
    .options = unit_options,
    .config_size = sizeof(unit_config),
    .token_spec = unit_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
