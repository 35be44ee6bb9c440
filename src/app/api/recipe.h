/* Recipes of training runs and comparisons, before their options are read. */
#pragma once

#include "task/tasks.h"

/* Registers the sections of recipes and saved configurations that are not part of the trainer: [run] and
 * [comm]. */
void nm_recipe_options_add(nm_options *options);
/* Whether a recipe is the text of a recipe (it contains a newline), not the path of a file. */
bool nm_recipe_is_text(const char *recipe);
/* *task: run.task of the settings (alternating names and values, ends with NULL, or NULL), otherwise of the
 * recipe, otherwise translation. NM_USAGE for an unknown task; NM_IO or NM_FORMAT if the recipe cannot be
 * read. */
nm_status nm_recipe_find_task(const char *recipe, const char *const *settings, const nm_task_type **task,
                              nm_error *err);
