/* Sections of a recipe that apply to some runs only: [size.N] depends on the size of the training data,
 * [tune] is for further training of a model. Call these functions after the recipe has been read into
 * options. */
#pragma once

#include "train/task.h"

typedef struct nm_recipe_source {
    const char *name, *text; /* text NULL: name is a file */
} nm_recipe_source;

/* Measures the size of the training data and applies the sections [size.N] with N >= *size. data: section
 * [data] of the training data. *size: -1 if the recipe has no such section. */
nm_status nm_recipe_apply_sizes(nm_options *options, const nm_task_type *task, const nm_recipe_source *recipe,
                                const void *data, int64_t *size, nm_error *err);
/* The size and the settings that were made for it and not replaced since; heap. */
char *nm_recipe_describe_sizes(const nm_options *options, const nm_task_type *task, int64_t size);
/* The settings of the section [tune], after nm_options_read_tune; heap, NULL if there are none. */
char *nm_recipe_describe_tune(const nm_options *options);
