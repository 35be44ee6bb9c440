#include "base/old_options.h"

#include <stddef.h>
#include <string.h>

static const nm_old_option old_options[] = {
    {"model.placement", "model.norm_position", NULL, NULL, NULL},
    {"model.tied", "model.share_embeddings", NULL, NULL, NULL},
    {"model.segment", "model.context", NULL, NULL, NULL},
    {"train.clip", "train.max_grad_norm", NULL, NULL, NULL},
    {"train.explode", "train.divergence_factor", NULL, NULL, NULL},
    {"train.keep", "train.keep_last", NULL, NULL, NULL},
    {"train.recompute", "train.activation_checkpointing", NULL, NULL, NULL},
    {"train.accumulate", "train.shards", NULL, NULL, NULL},
    {"prepare.form", "prepare.format", NULL, NULL, NULL},
    {"prepare.order", "prepare.special_ids", NULL, NULL, NULL},
    {"data.form", "data.format", NULL, NULL, NULL},
    {"score.form", "score.metric_variant", NULL, NULL, NULL},
    {"score.centred", "score.centered", NULL, NULL, NULL}, /* language: exempt */
    {"tag.input_form", "tag.input_format", NULL, NULL, NULL},
    {"data.valid_share", "data.valid_fraction", NULL, NULL, NULL},
    {"run.resume", "run.resume", "true", "yes", NULL},
    {"run.resume", "run.resume", "false", "no", NULL},
    {"run.small", "run.profile", "true", "small", NULL},
    {"run.small", "run.profile", "false", "", NULL},
    {.old_name = "device.fallback", .removed = "no backend lacks a kernel any more"},
    {.old_name = "model.logistic_buckets",
     .old_value = "0",
     .removed = "classifiers contain no logistic regression any more (norma baseline classify has it), and "
                "models that "
                "contain one need the version of Norma that trained them"},
};

const nm_old_option *nm_old_option_find(const char *path, const char *value)
{
    for (size_t i = 0; i < sizeof old_options / sizeof *old_options; i++)
        if (!strcmp(path, old_options[i].old_name) &&
            (!value || !old_options[i].old_value || old_options[i].removed ||
             !strcmp(value, old_options[i].old_value)))
            return &old_options[i];
    return NULL;
}
