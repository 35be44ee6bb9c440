/* Further training of a model (run.tune): its structure replaces that of the recipe, and its parameters are
 * the initial values. */
#pragma once

#include "train/recipe_sections.h"

/* Does nothing if run.tune is empty. Otherwise applies the section [tune] of the recipe, sets the options of
 * [model], of the norms and of the text processing (nm_task_type.text_options) to those of the model, except
 * dropout rates, initialization, model.freeze and options of the command line, and model.init_from to its
 * file. Call it after the recipe has been read. *message: heap text with the settings of [tune], or NULL.
 * NM_MISMATCH if the model has another task; NM_IO; NM_FORMAT. */
nm_status nm_tune_apply(nm_options *options, const nm_task_type *task, const nm_recipe_source *recipe,
                        char **message, nm_error *err);
