/* PN-V (Shen et al. 2020, Definition 1): divides by the quadratic mean of the batch, without subtracting the
 * mean.
 *
 * Definition and forward, n rows (tokens); h = x, or x scaled per row and group (option scaling):
 *
 *     p           = mean(h^2)
 *     z           = h / sqrt(p + epsilon)
 *     y           = weight z + bias
 *
 * Backward, q = weight dy:
 *
 *     dh          = (q - z mean(q z)) / sqrt(p + epsilon)
 *
 * Running state, once per update:
 *
 *     running_var = decay running_var + (1 - decay) p
 *
 * Inference: running_var replaces p. The functions are those of batch_policy.h, column "not centered".
 *
 * The PowerNorm paper scales rows before the norm (preset pn). Its released code has no PN-V; scaling per
 * group, as for PowerNorm, is an assumption. The code of Regularized BatchNorm does not scale rows, and
 * divides by sqrt(max(p, epsilon)) (preset rbn). */
#include "norm/batch_policy.h"
#include "norm/types.h"

typedef struct pnv_config {
    nm_batch_norm_policy policy;
    const char *preset;
} pnv_config;

/* clang-format off */
static const nm_option pnv_options[] = {
    NM_WORD(pnv_config, preset, "pn", "pn|rbn", "Variant of PN-V."),
    NM_OPTION(nm_batch_norm_policy, decay, "0.95", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_OPTION(nm_batch_norm_policy, epsilon, "1e-5", 0, 1, "Constant added to the mean square."),
    NM_OPTION(nm_batch_norm_policy, clamp, "false", 0, 0,
        "Division by sqrt(max(mean square, epsilon)) instead of sqrt(mean square + epsilon)."),
    NM_CHOICE(nm_batch_norm_policy, scaling, "group", NM_NORM_SCALINGS, NM_NORM_SCALING_HELP),
    {0}};

static const nm_preset pnv_presets[] = {
    {"pn", "", "the PowerNorm paper: scaling per attention head"},
    {"rbn", "scaling=none clamp=true", "the Regularized BatchNorm code"},
    {0}};
/* clang-format on */

const nm_norm_type nm_norm_pnv = {
    .name = "pnv",
    .title = "PN-V",
    .formula = "z = h / sqrt(p + eps), p = mean h^2 of the batch; y = weight z + bias",
    .source = "Shen et al. 2020, Definition 1",
    .traits = NM_SUMS_RESIDUAL | NM_COMPUTES_RELU | NM_USES_BATCH | NM_HAS_STATE,
    .options = pnv_options,
    .presets = pnv_presets,
    .config_size = sizeof(pnv_config),
    .check = nm_batch_norm_check,
    .shape = nm_batch_norm_shape_uncentered,
    .train = nm_batch_norm_train,
    .infer = nm_batch_norm_infer,
    .backward = nm_batch_norm_backward,
    .update_state = nm_batch_norm_update_state,
    .affine = nm_batch_norm_affine,
};
