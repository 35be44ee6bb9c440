/* Model files: all parameters, running statistics and counters as safetensors, and in the metadata the run's
 * configuration, the task's texts (dictionary, codes, tokenizer) and the decoding options: nothing else is needed to
 * use the model. */
#ifndef NM_CHECKPOINT_H
#define NM_CHECKPOINT_H

#include "base/safetensors.h"
#include "task/task.h"

/* Adds everything of the model; host copies of device memory are kept in *copies until nm_copies_release. */
typedef struct nm_copies {
    void **blocks;
    size_t n, capacity;
} nm_copies;

/* Copies device memory into a host block owned by copies. */
void *nm_copies_take(nm_copies *copies, nm_backend *backend, const void *device, size_t bytes);
void nm_copies_release(nm_copies *copies);

/* Writes model, task texts and options. update: stored as metadata "update". */
nm_status nm_checkpoint_write(const char *path, const nm_model *model, const nm_task *task, int64_t update,
                              nm_error *err);
/* Loads every parameter, state and counter; what is missing or of another shape is NM_MISMATCH with its name. */
nm_status nm_checkpoint_load(const nm_safetensors *file, nm_model *model, nm_error *err);

/* A model ready to be used, from a model file or a run folder (its best, else last). */
typedef struct nm_loaded {
    nm_options *options;
    nm_task task;
    nm_model *model;
} nm_loaded;

/* Reads the options out of the file (so that defaults come from the model), for the command line to override. */
nm_status nm_loaded_options(const char *path, nm_options **options, const nm_task_type **task,
                            char **file_path, nm_error *err);
/* Builds task and model with these options on the backend; takes ownership of options. */
nm_status nm_loaded_open(nm_loaded *loaded, const char *file_path, const nm_task_type *task,
                         nm_options *options, nm_backend *backend, nm_error *err);
void nm_loaded_close(nm_loaded *loaded);

/* Averages model files: every floating-point tensor, running statistics too; counters and texts of the newest. */
nm_status nm_checkpoint_average(const char *const *paths, int n, const char *out, nm_error *err);

#endif
