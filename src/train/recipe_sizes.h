/* Settings of a recipe that depend on the size of the training data: its sections [size.N]. */
#ifndef NM_RECIPE_SIZES_H
#define NM_RECIPE_SIZES_H

#include "train/task.h"

typedef struct nm_sized_recipe {
    const char *name, *text; /* text NULL: name is a file */
    const void *data;        /* section [data] of the training data that is measured */
} nm_sized_recipe;

/* Call it after the recipe has been read into options: measures the size of the training data and applies the sections [size.N]
 * with N >= size. *message: heap text with the size and the resulting settings; NULL if the recipe has no such section. */
nm_status nm_recipe_apply_sizes(nm_options *options, const nm_task_type *task, const nm_sized_recipe *recipe,
                                char **message, nm_error *err);

#endif
