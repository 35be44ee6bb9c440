/* BatchNorm (Ioffe and Szegedy 2015) over the tokens of a batch, as in Shen et al. 2020, Algorithm 1.
 *
 * Definition and forward, n rows (tokens); h = x, or x scaled per row and group (option scaling):
 *
 *     mu           = mean(h)
 *     s2           = mean((h - mu)^2)
 *     z            = (h - mu) / sqrt(s2 + epsilon)
 *     y            = weight z + bias
 *
 * Backward, q = weight dy:
 *
 *     dh           = (q - mean(q) - z mean(q z)) / sqrt(s2 + epsilon)
 *
 * Running state, once per update:
 *
 *     running_mean = decay running_mean + (1 - decay) mu
 *     running_var  = decay running_var  + (1 - decay) s2 n/(n - 1)
 *
 * Inference: running_mean and running_var replace mu and s2. The functions are those of batch_policy.h,
 * column "centered".
 *
 * Published variants differ in the decay, in the variance that enters running_var (divisor n or n - 1), in
 * the use of epsilon (added or as a lower bound) and in the scaling of rows; each is a preset. PowerNorm's
 * code overwrites padding rows with the mean and counts them in the variance, which count_padding
 * reproduces; no preset does. */
#include "norm/batch_policy.h"
#include "norm/types.h"

typedef struct batch_config {
    nm_batch_norm_policy policy;
    const char *preset;
} batch_config;

/* clang-format off */
static const nm_option batch_options[] = {
    NM_WORD(batch_config, preset, "default", "default|pn|rbn|framework|paper", "Variant of BatchNorm."),
    NM_OPTION(nm_batch_norm_policy, decay, "0.95", 0, 1,
        "Weight of the old value in the running statistics; 1 - momentum of PyTorch."),
    NM_OPTION(nm_batch_norm_policy, epsilon, "1e-5", 0, 1, "Constant added to the variance."),
    NM_OPTION(nm_batch_norm_policy, clamp, "false", 0, 0,
        "Division by sqrt(max(variance, epsilon)) instead of sqrt(variance + epsilon)."),
    NM_OPTION(nm_batch_norm_policy, unbiased_running, "true", 0, 0,
        "Unbiased variance, divisor n - 1, in the running variance."),
    NM_OPTION(nm_batch_norm_policy, count_padding, "false", 0, 0,
        "Variance over the batch padded to its longest sequence, as in the PowerNorm code, whose padding "
            "has the value of the mean."),
    NM_CHOICE(nm_batch_norm_policy, scaling, "none", NM_NORM_SCALINGS, NM_NORM_SCALING_HELP),
    {0}};

static const nm_preset batch_presets[] = {
    {"default", "", "the PowerNorm code without its scaling"},
    {"pn", "scaling=layer", "the PowerNorm code, for its Tables 1 and 2"},
    {"rbn", "clamp=true unbiased_running=false", "the Regularized BatchNorm code"},
    {"framework", "decay=0.9", "the default of deep learning frameworks"},
    {"paper", "decay=0.9 unbiased_running=false", "Shen et al. 2020, Algorithm 1, as printed"},
    {0}};
/* clang-format on */

const nm_norm_type nm_norm_batch = {
    .name = "batch",
    .title = "BatchNorm",
    .formula = "z = (x - mu) / sqrt(s2 + eps), mu and s2 of the batch; y = weight z + bias",
    .source = "Ioffe and Szegedy 2015; Shen et al. 2020, Algorithm 1",
    .traits = NM_SUMS_RESIDUAL | NM_COMPUTES_RELU | NM_USES_BATCH | NM_HAS_STATE,
    .options = batch_options,
    .presets = batch_presets,
    .config_size = sizeof(batch_config),
    .check = nm_batch_norm_check,
    .shape = nm_batch_norm_shape_centered,
    .train = nm_batch_norm_train,
    .infer = nm_batch_norm_infer,
    .backward = nm_batch_norm_backward,
    .update_state = nm_batch_norm_update_state,
    .affine = nm_batch_norm_affine,
};
