/* The mean of several model files, such as the last checkpoints of a run. */
#pragma once

#include "norma/status.h"

/* Writes the elementwise mean of n model files to out: every floating-point tensor, including running
 * statistics. Counters and metadata are those of the file with the highest update. NM_UNSUPPORTED for int8
 * and bf16 files; NM_MISMATCH if the files differ in names, types or element counts of tensors, in the task,
 * in its texts (dictionaries, codes, labels), in options of [model] and [norm] that are not options of
 * training, or in train.seed; NM_DIVERGED for values that are not finite. */
nm_status nm_model_average(const char *const *paths, int n, const char *out, nm_error *err);
