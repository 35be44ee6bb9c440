/* BatchNorm (Ioffe and Szegedy 2015) over the tokens of a batch, as in PowerNorm's Algorithm 1: equations in
 * batch_policy.h. Four published variants differ in small ways and are presets; the default is the PowerNorm
 * program's without its layer scaling. */
#include "norm/batch_policy.h"
#include "norm/types.h"

typedef struct batch_config {
    const char *preset, *scaling;
    double decay, epsilon;
    bool clamp, unbiased_running;
} batch_config;

/* clang-format off */
static const nm_option batch_options[] = {
    NM_CHOICE(batch_config, preset, "default", "default|pn|rbn|framework|paper", "whose BatchNorm"),
    NM_OPTION(batch_config, decay, "0.95", 0, 1, "share of the old running value kept at each step"),
    NM_OPTION(batch_config, epsilon, "1e-5", 0, 1, "keeps the divisor above zero"),
    NM_OPTION(batch_config, clamp, "false", 0, 0, "divide by sqrt(max(variance, epsilon)) rather than add epsilon"),
    NM_OPTION(batch_config, unbiased_running, "true", 0, 0, "n/(n-1) on the variance that enters the running value"),
    NM_CHOICE(batch_config, scaling, "none", NM_NORM_SCALINGS, "parameter-free scaling of each row first"),
    {0}};

static const nm_preset batch_presets[] = {
    {"default", "", "the PowerNorm program's without scaling"},
    {"pn", "scaling=layer", "the PowerNorm program's, for its Tables 1 and 2"},
    {"rbn", "clamp=true unbiased_running=false", "the Regularized BatchNorm program's"},
    {"framework", "decay=0.9", "deep learning frameworks'"},
    {"paper", "decay=0.9 unbiased_running=false", "PowerNorm's Algorithm 1 as printed"},
    {0}};
/* clang-format on */

static nm_batch_norm_policy batch_policy(const batch_config *config, const nm_norm_site *place)
{
    return (nm_batch_norm_policy){.centered = true,
                                  .clamp = config->clamp,
                                  .unbiased_running = config->unbiased_running,
                                  .groups = nm_norm_scaling_groups(config->scaling, place),
                                  .decay = config->decay,
                                  .epsilon = config->epsilon};
}

static nm_status batch_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    return nm_norm_check_groups(batch_policy(settings, place).groups, place, err);
}

static void batch_shape(const void *config, const nm_norm_site *place, nm_norm_shape *shape)
{
    (void)config;
    nm_batch_norm_shape(true, place, shape);
}

static void batch_train(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = batch_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_train(call, &policy);
}

static void batch_infer(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = batch_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_infer(call, &policy);
}

static bool batch_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const nm_batch_norm_policy policy = batch_policy(norm->config, &norm->place);
    return nm_batch_norm_affine(norm, backend, &policy, scale, shift);
}

static void batch_backward(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = batch_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_backward(call, &policy, NULL, NULL);
}

const nm_norm_type nm_norm_batch = {
    .name = "batch",
    .title = "BatchNorm",
    .source = "Ioffe and Szegedy 2015; Shen et al. 2020, Algorithm 1",
    .traits = NM_USES_BATCH | NM_HAS_STATE,
    .options = batch_options,
    .presets = batch_presets,
    .config_size = sizeof(batch_config),
    .check = batch_check,
    .shape = batch_shape,
    .train = batch_train,
    .infer = batch_infer,
    .backward = batch_backward,
    .affine = batch_affine,
};
