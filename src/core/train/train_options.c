#include "train/train_options.h"

#include "backend/device_options.h"
#include "train/optimizer_type.h"
#include "train/schedule.h"

#define TRAIN(field, initial, min, max, help) NM_OPTION(nm_train_config, field, initial, min, max, help)
#define OPTIM(field, initial, min, max, help) NM_OPTION(nm_optim_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option train_options[] = {
    TRAIN(updates, "0", 0, 1e12, "Maximum number of updates; 0 disables the limit."),
    TRAIN(epochs, "0", 0, 1e9, "Maximum number of epochs; 0 disables the limit."),
    TRAIN(seconds, "0", 0, 1e9,
        "Maximum training time in seconds, including the time before a resume; 0 disables the limit."),
    TRAIN(max_tokens, "4096", 1, 1 << 24,
        "Maximum number of tokens per batch on each side; batch statistics are computed over one batch."),
    TRAIN(shards, "1", 1, 1 << 20,
        "Number of batches per update (gradient accumulation), each of at most train.max_tokens."),
    TRAIN(balance_shards, "false", 0, 1,
        "Distribute the sentences of an update over its shards so that all have nearly the same cost; "
        "otherwise a shard has sentences in the order of data.order."),
    NM_CHOICE(nm_train_config, activation_checkpointing, "none", NM_CHECKPOINTINGS,
        "Activation checkpointing: none, or recompute each layer in the backward pass, which needs less "
        "memory and more time; results are bitwise identical."),
    TRAIN(seed, "1", 0, 4294967295.0, "Random seed for initialization, dropout and data order."),
    TRAIN(label_smoothing, "0.1", 0, 0.99, "Label smoothing; 0 disables it."),
    NM_CHOICE(nm_train_config, smoothing, "uniform", NM_SMOOTHINGS,
        "Distribution of the label smoothing: uniform over the output vocabulary (with data.mask_words over "
        "the allowed tokens), or over all tokens except the target."),
    TRAIN(max_grad_norm, "0", 0, 1e9,
        "Maximum L2 norm of the gradient; larger gradients are scaled down to it; 0 disables clipping."),
    TRAIN(clip_value, "0", 0, 1e9,
        "Maximum absolute value of each element of the gradient (SGD only); 0 disables clipping."),
    TRAIN(divergence_factor, "4", 0, 1e9,
        "Divergence threshold: training stops if the loss exceeds this multiple of the chance-level loss, "
        "which is the loss of uniform output probabilities; 0: only if a value is not finite."),
    TRAIN(log_every, "50", 1, 1e9, "Number of updates between two training records of the log."),
    TRAIN(validate_every, "0", 0, 1e12, "Number of updates between two validations; 0: after every epoch."),
    TRAIN(validate_examples, "0", 0, 1e12,
        "Number of validation examples that the score is computed on; 0: all."),
    TRAIN(score, "true", 0, 1, "Compute the score of the task (BLEU, F1, accuracy) at each validation."),
    TRAIN(batch_loss, "true", 0, 1,
        "Also compute the validation loss with batch statistics, if the model has norms that use them."),
    NM_CHOICE(nm_train_config, best_by, "loss", NM_BEST_BYS,
        "Validation metric that selects the best checkpoint."),
    TRAIN(ema_decay, "0", 0, 0.9999999,
        "Decay rate of the exponential moving average of the parameters (EMA), for example 0.999. "
        "Validations and best.safetensors use the average; 0 disables it."),
    TRAIN(patience, "0", 0, 1e9,
        "Early stopping: maximum number of consecutive validations without a new best; 0 disables it."),
    TRAIN(save_every, "0", 0, 1e12, "Number of updates between two checkpoints; 0: only at validations."),
    TRAIN(keep_last, "2", 1, 1e6, "Number of newest checkpoints to keep."),
    TRAIN(check_shard, "false", 0, 1,
        "Before each checkpoint, compute one randomly chosen shard a second time, in another process if "
        "there are several, and compare the gradients bitwise: finds machines that compute wrong results. "
        "Costs one more forward and backward pass of a shard."),
    TRAIN(save_initial, "false", 0, 1,
        "Write a checkpoint of update 0 before training and keep it, for norma inspect --checkpoints."),
    {0}};
static const nm_option optim_options[] = {
    NM_CHOICE(nm_optim_config, name, "adam-fairseq", NM_OPTIMIZERS, NM_OPTIMIZER_HELP),
    OPTIM(beta1, "0.9", 0, 0.999999, "Decay rate of the first moment (Adam; AdamW of Muon)."),
    OPTIM(beta2, "0.98", 0, 0.999999999, "Decay rate of the second moment (Adam; AdamW of Muon)."),
    OPTIM(eps, "1e-8", 0, 1,
        "Constant added to the denominator for numerical stability (Adam; AdamW of Muon)."),
    OPTIM(weight_decay, "0", 0, 1,
        "Weight decay: decoupled from the gradient (adam-fairseq, adamw, muon), or an L2 penalty "
        "(adam, sgd)."),
    NM_CHOICE(nm_optim_config, decayed_parameters, "all", NM_DECAYED_PARAMETERS,
        "Parameters to which optim.weight_decay applies: all, or only matrices, that is, weights of linear "
        "layers and embeddings, but no biases, parameters of norms and other vectors."),
    OPTIM(momentum, "0.9", 0, 1, "Momentum (SGD)."),
    OPTIM(muon_momentum, "0.95", 0, 0.999999, "Momentum of the matrices that Muon updates."),
    OPTIM(muon_nesterov, "true", 0, 1,
        "Nesterov momentum of the matrices that Muon updates; otherwise plain momentum."),
    OPTIM(muon_steps, "5", 0, 100,
        "Number of Newton-Schulz steps that orthogonalize an update of Muon; "
        "0: the momentum is divided by its Frobenius norm."),
    NM_CHOICE(nm_optim_config, muon_scale, "match-rms", NM_MUON_SCALES,
        "Factor of the updates of Muon to a matrix with r rows and c columns: 0.2 sqrt(max(r, c)), with "
        "which they are about as large as those of Adam, or sqrt(max(1, r/c)) as in the original code."),
    OPTIM(muon_lr_factor, "1", 1e-6, 1e6,
        "Learning rate of the matrices that Muon updates, as a multiple of that of the other parameters."),
    {0}};
/* clang-format on */

static bool best_by_applies(const nm_options *options)
{
    const nm_train_config *train = nm_options_find(options, "train");
    return train->score || train->best_by != NM_BEST_BY_SCORE;
}

static bool decayed_parameters_applies(const nm_options *options)
{
    const nm_optim_config *optim = nm_options_find(options, "optim");
    return optim->weight_decay > 0 || optim->decayed_parameters == NM_DECAYED_ALL;
}

/* uses_OPTION: whether the optimizer reads the option. */
#define USES(option)                                                                                         \
    static bool uses_##option(const nm_options *options)                                                     \
    {                                                                                                        \
        return nm_optimizer_uses(nm_optimizer_type_of(nm_options_find(options, "optim")), #option);          \
    }
USES(clip_value)
USES(momentum)
USES(beta1)
USES(beta2)
USES(eps)
USES(muon_momentum)
USES(muon_nesterov)
USES(muon_steps)
USES(muon_scale)
USES(muon_lr_factor)

static const nm_option_rule rules[] = {
    {"train.balance_shards", "train.shards", "!1", "there is one shard per update", NULL},
    {"train.clip_value", "optim.name", NULL,
     "gradient values are clipped for SGD only; train.max_grad_norm clips the gradient norm",
     uses_clip_value},
    {"train.smoothing", "train.label_smoothing", "!", "there is no label smoothing", NULL},
    {"train.validate_examples", "train.score", "true", "validations compute no score", NULL},
    {"train.best_by", NULL, NULL, "train.score = false, so validations compute no score", best_by_applies},
    {"optim.momentum", "optim.name", NULL, "only SGD has it; Adam has optim.beta1, Muon optim.muon_momentum",
     uses_momentum},
    {"optim.muon_momentum", "optim.name", NULL, "only Muon has it; SGD has optim.momentum",
     uses_muon_momentum},
    {"optim.muon_nesterov", "optim.name", NULL, "only Muon has Nesterov momentum", uses_muon_nesterov},
    {"optim.muon_steps", "optim.name", NULL, "only Muon orthogonalizes updates", uses_muon_steps},
    {"optim.muon_scale", "optim.name", NULL, "only Muon scales updates by the shape of a matrix",
     uses_muon_scale},
    {"optim.muon_lr_factor", "optim.name", NULL, "all parameters have the learning rate of the schedule",
     uses_muon_lr_factor},
    {"optim.beta1", "optim.name", NULL, "SGD has optim.momentum", uses_beta1},
    {"optim.beta2", "optim.name", NULL, "SGD has no second moment", uses_beta2},
    {"optim.eps", "optim.name", NULL, "SGD has no denominator", uses_eps},
    {"optim.decayed_parameters", "optim.weight_decay", NULL, "there is no weight decay",
     decayed_parameters_applies},
    {0}};

void nm_train_options_add(nm_options *options, const nm_task_type *task)
{
    nm_options_add(options, "data", task->options, NULL, task->config_size);
    nm_model_options_add(options, task->model);
    nm_norm_options_add(options);
    nm_options_add(options, "train", train_options, NULL, sizeof(nm_train_config));
    nm_options_add(options, "optim", optim_options, NULL, sizeof(nm_optim_config));
    nm_options_add(options, "schedule", nm_schedule_options, NULL, sizeof(nm_schedule_config));
    if (task->add_options)
        task->add_options(options);
    nm_options_add_rules(options, rules);
    nm_options_add_rules(options, nm_schedule_rules);
    nm_device_options_add(options);
}

nm_loss_spec nm_train_loss(const nm_options *options, const int32_t *targets, bool smoothed)
{
    const nm_train_config *train = nm_options_find(options, "train");
    return (nm_loss_spec){
        .smoothing = train->smoothing, .eps = smoothed ? train->label_smoothing : 0, .targets = targets};
}
