/* Model files: all parameters, running statistics and counters as safetensors, and in the metadata the run's
 * configuration, the task's texts (dictionary, codes, tokenizer) and the decoding options: nothing else is needed to
 * use the model. */
#ifndef NM_CHECKPOINT_H
#define NM_CHECKPOINT_H

#include "base/safetensors.h"
#include "train/task.h"

/* Adds everything of the model; host copies of device memory are kept in *copies until nm_copies_release. */
typedef struct nm_copies {
    void **blocks;
    size_t n, capacity;
} nm_copies;

/* Device memory for the host to read: itself where the host can, else a copy owned by copies. */
const void *nm_copies_alloc(nm_copies *copies, nm_backend *backend, const void *device, size_t bytes);
void nm_copies_release(nm_copies *copies);

/* How the numbers of the backend stand in a file. */
nm_tensor_type nm_checkpoint_numbers(const nm_backend *backend);
/* Writes model, task texts and options. update: stored as metadata "update". */
nm_status nm_checkpoint_write(const char *path, const nm_model *model, const nm_task *task, int64_t update,
                              nm_error *err);
/* Writes the model with its present options and all other texts of another file. Norms joined with the maps behind them
 * are left out: the options must say that they are none (nm_model_fold). int8: matrices as nm_params_to_int8 rounds them,
 * for a float32 model: I8, and NAME.scale with a number for each row; NM_DIVERGED when one is not finite. */
nm_status nm_checkpoint_rewrite(const char *path, const nm_model *model, const nm_task_type *task, bool int8,
                                const nm_safetensors *like, nm_error *err);
/* Loads every parameter, state and counter, those in int8 as the numbers they stand for; what is missing or of another
 * shape is NM_MISMATCH with its name. */
nm_status nm_checkpoint_load(const nm_safetensors *file, nm_model *model, nm_error *err);

/* Averages model files: every floating-point tensor, running statistics too; counters and texts of the newest. */
nm_status nm_checkpoint_average(const char *const *paths, int n, const char *out, nm_error *err);

#endif
