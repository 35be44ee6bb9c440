/* Warm start: the tensors of a trained model are the initial values of a new one, which may have another dictionary, other norms,
 * more or fewer layers, and another task.
 *
 *   - A parameter is copied if the source has one with its name and shape.
 *   - A parameter with rows or columns for the entries of a dictionary (nm_task_type.entry_name) is copied entry by entry, by
 *     name; entries that the source lacks keep their random values. Sources of another task have no such entries.
 *   - Running statistics and counters of a norm are copied if the source has all of them. A norm of another type starts with its
 *     own initial statistics.
 * All others keep their initial values. */
#ifndef NM_WARM_START_H
#define NM_WARM_START_H

#include <jansson.h>

#include "train/task.h"

/* source: model file or run folder. *record: what was loaded from where, for the log: path, fingerprint (XXH3-64 of the file),
 * update, number of tensors, entries copied by name, names of new and of unused tensors. *summary: the same as a line of text,
 * heap. NM_MISMATCH if no tensor matches, NM_UNSUPPORTED for int8 models, NM_DIVERGED for values that are not finite. */
nm_status nm_warm_start(nm_model *model, const nm_task *task, const char *source, json_t **record,
                        char **summary, nm_error *err);

#endif
