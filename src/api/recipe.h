/* What trainings and comparisons do with a recipe before its options are read. */
#ifndef NM_RECIPE_H
#define NM_RECIPE_H

#include "task/tasks.h"

/* Registers the sections of recipes and saved configurations that are not the trainer's: [run] and [comm]. */
void nm_recipe_options_add(nm_options *options);
/* Whether a recipe is a text, not the path of a file. */
bool nm_recipe_is_text(const char *recipe);
/* The task: run.task of the settings (alternating names and values that end with NULL, or NULL), else of the recipe, else
 * translation. NM_USAGE: unknown; NM_IO, NM_FORMAT: the recipe cannot be read. */
nm_status nm_recipe_find_task(const char *recipe, const char *const *settings, const nm_task_type **task,
                              nm_error *err);

#endif
