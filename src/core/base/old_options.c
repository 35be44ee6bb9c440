#include "base/old_options.h"

#include <stddef.h>
#include <string.h>

static const nm_old_option old_options[] = {
    {"model.placement", "model.norm_position", NULL, NULL},
    {"model.tied", "model.share_embeddings", NULL, NULL},
    {"model.segment", "model.context", NULL, NULL},
    {"train.clip", "train.max_grad_norm", NULL, NULL},
    {"train.explode", "train.divergence_factor", NULL, NULL},
    {"train.keep", "train.keep_last", NULL, NULL},
    {"train.recompute", "train.activation_checkpointing", NULL, NULL},
    {"train.accumulate", "train.shards", NULL, NULL},
    {"prepare.form", "prepare.format", NULL, NULL},
    {"prepare.order", "prepare.special_ids", NULL, NULL},
    {"data.form", "data.format", NULL, NULL},
    {"score.form", "score.metric_variant", NULL, NULL},
    {"score.centred", "score.centered", NULL, NULL}, /* language: exempt */
    {"tag.input_form", "tag.input_format", NULL, NULL},
    {"data.valid_share", "data.valid_fraction", NULL, NULL},
    {"run.resume", "run.resume", "true", "yes"},
    {"run.resume", "run.resume", "false", "no"},
    {"run.small", "run.profile", "true", "small"},
    {"run.small", "run.profile", "false", ""},
};

const nm_old_option *nm_old_option_find(const char *path, const char *value)
{
    for (size_t i = 0; i < sizeof old_options / sizeof *old_options; i++)
        if (!strcmp(path, old_options[i].old_name) &&
            (!value || !old_options[i].old_value || !strcmp(value, old_options[i].old_value)))
            return &old_options[i];
    return NULL;
}
