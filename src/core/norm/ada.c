/* AdaNorm (Xu et al. 2019, "Understanding and Improving Layer Normalization", section 4): LayerNorm whose
 * weight is a function of the normalized value, without parameters.
 *
 * Definition and forward, per row of d features:
 *
 *     z  = (x - mean(x)) / s
 *     y  = C (1 - k z) z
 *
 *     s  = sqrt(variance over d - 1) + epsilon      variant official (released code)
 *     s  = sqrt(variance over d + epsilon)          variant paper (the z of LayerNorm)
 *
 * Backward: the factor C (1 - k z) is a constant, mean and s are not; q = C (1 - k z) dy:
 *
 *     dx = (q - mean(q) - z sum(q z) / (d - 1) s / (s - epsilon)) / s     official; third term 0 if s =
 *     epsilon
 *     dx = (q - mean(q) - z mean(q z)) / s                                paper
 *
 * By design, this is not the gradient of y. The paper has k = 0.1; C is a hyperparameter. */
#include "norm/types.h"

#define VARIANTS(C) C(VARIANT_OFFICIAL, "official") C(VARIANT_PAPER, "paper")
NM_CHOICES(ada_variant, VARIANTS);

typedef struct ada_config {
    ada_variant variant;
    double c, k, epsilon;
} ada_config;

/* clang-format off */
static const nm_option ada_options[] = {
    NM_CHOICE(ada_config, variant, "official", VARIANTS,
              "Standard deviation: the root of the unbiased variance, plus epsilon, as in the released code; "
                  "or that of LayerNorm, as in the paper."),
    NM_OPTION(ada_config, c, "1", 1e-6, 1e6, "Constant C by which the result is multiplied."),
    NM_OPTION(ada_config, k, "0.1", -10, 10, "Constant k of the factor 1 - k z."),
    NM_OPTION(ada_config, epsilon, "1e-5", 0, 1,
        "Constant added to the standard deviation (official), or to the variance (paper)."),
    {0}};
/* clang-format on */

static nm_token_norm ada_spec(const nm_norm *norm)
{
    const ada_config *config = norm->config;
    return (nm_token_norm){.kind =
                               config->variant == VARIANT_PAPER ? NM_TOKEN_CENTER : NM_TOKEN_CENTER_OUTSIDE,
                           .groups = 1,
                           .eps = config->epsilon,
                           .ada_c = config->c,
                           .ada_k = config->k};
}

const nm_norm_type nm_norm_ada = {
    .name = "ada",
    .title = "AdaNorm",
    .formula = "z = (x - mean x) / (std x + eps), y = C (1 - k z) z",
    .source = "Xu et al. 2019, section 4; github.com/lancopku/AdaNorm",
    .traits = NM_SUMS_RESIDUAL | NM_APPROX_GRAD,
    .options = ada_options,
    .config_size = sizeof(ada_config),
    .token_spec = ada_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
