/* Settings of a recipe that depend on the size of the training data: its sections [size.N]. */
#ifndef NM_RECIPE_SIZES_H
#define NM_RECIPE_SIZES_H

#include "train/task.h"

/* Call it after the recipe has been read into options: measures the size of the training data and applies the sections [size.N]
 * with N >= size. text: the recipe, whose name is `recipe`; NULL: `recipe` is a file. *message: heap text with the size and the
 * resulting settings; NULL if the recipe has no such section. */
nm_status nm_recipe_apply_sizes(nm_options *options, const nm_task_type *task, const char *recipe,
                                const char *text, char **message, nm_error *err);

#endif
