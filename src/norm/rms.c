/* RMSNorm (Zhang and Sennrich 2019): a row is divided by the root of its mean square, r = sqrt(mean(x^2)):
 *     z = x / (r + epsilon)        y = scale z        dx = q/(r + epsilon) - x sum(q x) / (d r (r +
 * epsilon)^2) with q = scale dy. The authors add epsilon outside the root; `epsilon_inside` is sqrt(mean(x^2)
 * + epsilon). With groups the mean runs over each group of features; without gain it is PowerNorm's layer
 * scaling alone. */
#include "norm/types.h"

typedef struct rms_config {
    double epsilon;
    bool epsilon_inside, gain;
    int64_t groups;
} rms_config;

/* clang-format off */
static const nm_option rms_options[] = {
    NM_OPTION(rms_config, epsilon, "1e-8", 0, 1, "keeps the divisor above zero"),
    NM_OPTION(rms_config, epsilon_inside, "false", 0, 0, "add epsilon to the mean square rather than to its root"),
    NM_OPTION(rms_config, groups, "1", 1, 65536, "groups of features with a mean square of their own"),
    NM_OPTION(rms_config, gain, "true", 0, 0, "learn a factor per feature"),
    {0}};
/* clang-format on */

static nm_status rms_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    const rms_config *config = settings;
    return nm_norm_check_groups(config->groups, place, err);
}

static void rms_shape(const void *settings, const nm_norm_site *place, nm_norm_shape *shape)
{
    const rms_config *config = settings;
    shape->n_params = config->gain ? 1 : 0;
    shape->params[0] = (nm_norm_vector){.name = "scale", .length = place->width, .initial = 1};
}

static nm_token_norm rms_spec(const nm_norm_call *call)
{
    const rms_config *config = call->norm->config;
    return (nm_token_norm){.kind = config->epsilon_inside ? NM_TOKEN_RMS : NM_TOKEN_RMS_OUTSIDE,
                           .groups = (int32_t)config->groups,
                           .eps = config->epsilon,
                           .weight_len = config->gain ? call->norm->site.width : 0};
}

static void rms_forward(nm_norm_call *call)
{
    const nm_token_norm spec = rms_spec(call);
    nm_norm_token_forward(call, &spec);
}

static void rms_backward(nm_norm_call *call)
{
    const nm_token_norm spec = rms_spec(call);
    nm_norm_token_backward(call, &spec);
}

const nm_norm_type nm_norm_rms = {
    .name = "rms",
    .title = "RMSNorm",
    .source = "Zhang and Sennrich 2019, equation 4",
    .options = rms_options,
    .config_size = sizeof(rms_config),
    .check = rms_check,
    .shape = rms_shape,
    .train = rms_forward,
    .infer = rms_forward,
    .backward = rms_backward,
};
