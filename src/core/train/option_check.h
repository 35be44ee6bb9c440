/* Checks of the options of a training run that need neither its data nor its machine. */
#pragma once

#include "train/task.h"

/* Reports what opening a run with these options would report before its data are read: options without
 * effect, values that do not fit together, and a model that cannot be built. The vocabularies are assumed to
 * be large enough. */
nm_status nm_train_options_check(const nm_task_type *task, const nm_options *options, nm_error *err);

/* NM_USAGE if the command line sets options of norms that the model does not have. Recipes share the settings
 * of norms. */
nm_status nm_model_check_norm_options(const nm_params *params, const nm_options *options, nm_error *err);
bool nm_model_uses_batch(const nm_params *params);
/* *joint: whether the shards of an update have joint batch statistics. NM_USAGE if the running statistics do
 * not advance once per update then. */
nm_status nm_model_check_statistics(const nm_params *params, const nm_options *options, bool *joint,
                                    nm_error *err);
