/* GroupNorm over the features of one token (Wu and He 2018): LayerNorm within each of G groups of d/G
 * features, then weight and bias per feature. G is the number of attention heads unless said otherwise
 * (PowerNorm's Table 4: best). The Regularized BatchNorm program divides the squares by d/G - 1: `unbiased`.
 */
#include "norm/types.h"

typedef struct group_config {
    double epsilon;
    int64_t groups;
    bool unbiased;
} group_config;

/* clang-format off */
static const nm_option group_options[] = {
    NM_OPTION(group_config, epsilon, "1e-5", 0, 1, "added to the variance"),
    NM_OPTION(group_config, groups, "0", 0, 65536, "groups of features; 0: as many as attention heads"),
    NM_OPTION(group_config, unbiased, "false", 0, 0, "divide the squares by one less, as the RBN program does"),
    {0}};
/* clang-format on */

static int64_t groups_of(const group_config *config, const nm_norm_site *place)
{
    return config->groups ? config->groups : place->groups;
}

static nm_status group_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    return nm_norm_check_groups(groups_of(settings, place), place, err);
}

static nm_token_norm group_spec(const nm_norm_call *call)
{
    const group_config *config = call->norm->config;
    const nm_norm_site *place = &call->norm->site;
    return (nm_token_norm){.kind = config->unbiased ? NM_TOKEN_CENTER_UNBIASED : NM_TOKEN_CENTER,
                           .groups = (int32_t)groups_of(config, place),
                           .eps = config->epsilon,
                           .weight_len = place->width,
                           .bias_len = place->width};
}

static void group_forward(nm_norm_call *call)
{
    const nm_token_norm spec = group_spec(call);
    nm_norm_token_forward(call, &spec);
}

static void group_backward(nm_norm_call *call)
{
    const nm_token_norm spec = group_spec(call);
    nm_norm_token_backward(call, &spec);
}

const nm_norm_type nm_norm_group = {
    .name = "group",
    .title = "GroupNorm",
    .source = "Wu and He 2018; groups as in Shen et al. 2020, Table 4",
    .options = group_options,
    .config_size = sizeof(group_config),
    .check = group_check,
    .shape = nm_norm_shape_affine,
    .train = group_forward,
    .infer = group_forward,
    .backward = group_backward,
};
