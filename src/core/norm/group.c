/* GroupNorm over the features of one token (Wu and He 2018): LayerNorm within each of G groups of d/G
 * features.
 *
 * Definition and forward, per row and group; means over the d/G features of the group:
 *
 *     mu      = mean(x)                                   shift
 *     s2      = mean((x - mu)^2)
 *     z       = (x - mu) / sqrt(s2 + epsilon)             scale = 1 / sqrt(s2 + epsilon)
 *     y       = weight z + bias                           weight, bias: per feature
 *
 * Backward, q = weight dy, within each group:
 *
 *     dx      = (q - mean(q) - z mean(q z)) / sqrt(s2 + epsilon)
 *     dweight = sum over rows of dy z
 *     dbias   = sum over rows of dy
 *
 * The default G is the number of attention heads, the best choice in Shen et al. 2020, Table 4. With the
 * option unbiased, as in the code of Regularized BatchNorm, s2 and mean(q z) have the divisor d/G - 1. */
#include "norm/types.h"

typedef struct group_config {
    double epsilon;
    int64_t groups;
    bool unbiased;
} group_config;

/* clang-format off */
static const nm_option group_options[] = {
    NM_OPTION(group_config, epsilon, "1e-5", 0, 1, "Constant added to the variance."),
    NM_OPTION(group_config, groups, "0", 0, 65536, "Number of groups of features; 0: norm.groups."),
    NM_OPTION(group_config, unbiased, "false", 0, 0,
        "Unbiased variance, divisor d/G - 1, as in the RBN code."),
    {0}};
/* clang-format on */

static int64_t groups_of(const group_config *config, const nm_norm_site *site)
{
    return config->groups ? config->groups : site->groups;
}

static nm_status group_check(const void *config, const nm_norm_site *site, nm_error *err)
{
    return nm_norm_check_groups(groups_of(config, site), site, err);
}

static nm_token_norm group_spec(const nm_norm *norm)
{
    const group_config *config = norm->config;
    return (nm_token_norm){.kind = config->unbiased ? NM_TOKEN_CENTER_UNBIASED : NM_TOKEN_CENTER,
                           .groups = (int32_t)groups_of(config, &norm->site),
                           .eps = config->epsilon,
                           .weight_len = norm->site.width,
                           .bias_len = norm->site.width};
}

const nm_norm_type nm_norm_group = {
    .name = "group",
    .title = "GroupNorm",
    .formula = "LayerNorm within each of G groups of features",
    .source = "Wu and He 2018; Shen et al. 2020, Table 4",
    .traits = NM_SUMS_RESIDUAL,
    .options = group_options,
    .config_size = sizeof(group_config),
    .check = group_check,
    .shape = nm_norm_shape_affine,
    .token_spec = group_spec,
    .train = nm_norm_token_forward,
    .infer = nm_norm_token_forward,
    .backward = nm_norm_token_backward,
};
