/* Warm start: the tensors of a trained model are the initial values of a new one, which may have another
 * dictionary, other norms, more or fewer layers, and another task.
 *
 *   - A parameter is copied if the source has a parameter with the same name and shape.
 *   - Of a parameter with a row or column per entry of a dictionary (nm_task_type.entry_name) each entry is
 *     copied if the source
 *     has an entry with the same name. Parameters of this kind are not copied from a source of another task.
 *   - Parameters whose values depend on the training data or on a dictionary that differs
 *     (nm_task_type.transfers) are not copied.
 *   - Running statistics and counters of a norm are copied if the source has all of them.
 * All other values keep their initialization. */
#pragma once

#include <jansson.h>

#include "train/task.h"

/* source: model file or run folder. *record: for the log, released by the caller: path, fingerprint (XXH3-64
 * of the file), task, update, numbers of tensors and of copied ones, numbers of entries copied by name, names
 * of new and of unused tensors. *summary: a line of text, heap. NM_MISMATCH if no tensor matches;
 * NM_UNSUPPORTED for int8 and bf16 models; NM_DIVERGED for values that are not finite. */
nm_status nm_warm_start(nm_model *model, const nm_task *task, const char *source, json_t **record,
                        char **summary, nm_error *err);
