/* PN-V (Shen et al. 2020, Definition 1): BatchNorm without the mean, divided by the quadratic mean of the
 * batch; equations in batch_policy.h. The PowerNorm paper puts a scaling of each row in front ("pn"); the
 * Regularized BatchNorm program has none and clamps ("rbn"). */
#include "norm/batch_policy.h"
#include "norm/types.h"

typedef struct pnv_config {
    const char *preset, *scaling;
    double decay, epsilon;
    bool clamp;
} pnv_config;

/* clang-format off */
static const nm_option pnv_options[] = {
    NM_CHOICE(pnv_config, preset, "pn", "pn|rbn", "whose PN-V"),
    NM_OPTION(pnv_config, decay, "0.95", 0, 1, "share of the old running value kept at each step"),
    NM_OPTION(pnv_config, epsilon, "1e-5", 0, 1, "keeps the divisor above zero"),
    NM_OPTION(pnv_config, clamp, "false", 0, 0, "divide by sqrt(max(mean square, epsilon)) rather than add epsilon"),
    NM_CHOICE(pnv_config, scaling, "group", NM_NORM_SCALINGS, "parameter-free scaling of each row first"),
    {0}};

static const nm_preset pnv_presets[] = {
    {"pn", "", "as in the PowerNorm paper: scaling per head"},
    {"rbn", "scaling=none clamp=true", "the Regularized BatchNorm program's"},
    {0}};
/* clang-format on */

static nm_batch_norm_policy pnv_policy(const pnv_config *config, const nm_norm_site *place)
{
    return (nm_batch_norm_policy){.clamp = config->clamp,
                                  .groups = nm_norm_scaling_groups(config->scaling, place),
                                  .decay = config->decay,
                                  .epsilon = config->epsilon};
}

static nm_status pnv_check(const void *settings, const nm_norm_site *place, nm_error *err)
{
    return nm_norm_check_groups(pnv_policy(settings, place).groups, place, err);
}

static void pnv_shape(const void *config, const nm_norm_site *place, nm_norm_shape *shape)
{
    (void)config;
    nm_batch_norm_shape(false, place, shape);
}

static void pnv_train(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = pnv_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_train(call, &policy);
}

static void pnv_infer(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = pnv_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_infer(call, &policy);
}

static bool pnv_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    const nm_batch_norm_policy policy = pnv_policy(norm->config, &norm->place);
    return nm_batch_norm_affine(norm, backend, &policy, scale, shift);
}

static void pnv_backward(nm_norm_call *call)
{
    const nm_batch_norm_policy policy = pnv_policy(call->norm->config, &call->norm->place);
    nm_batch_norm_backward(call, &policy, NULL, NULL);
}

const nm_norm_type nm_norm_pnv = {
    .name = "pnv",
    .title = "PN-V",
    .source = "Shen et al. 2020, Definition 1",
    .traits = NM_USES_BATCH | NM_HAS_STATE,
    .options = pnv_options,
    .presets = pnv_presets,
    .config_size = sizeof(pnv_config),
    .check = pnv_check,
    .shape = pnv_shape,
    .train = pnv_train,
    .infer = pnv_infer,
    .backward = pnv_backward,
    .affine = pnv_affine,
};
