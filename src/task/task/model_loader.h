/* Loading a trained model: options, task and model from a model file. */
#pragma once

#include "task/tasks.h"
#include "train/checkpoint.h"

/* A model loaded from a model file or a run folder (its best checkpoint, otherwise the last). */
typedef struct nm_loaded_model {
    nm_options *options;
    nm_task task;
    nm_model *model;
    bool fold; /* norms are folded into the following linear layers (nm_model_fold) */
    bool int8; /* linear layers are int8 (nm_params_to_int8) */
    /* the mapped file that contains parameters of the model (nm_model_file_map); or NULL */
    nm_safetensors *file;
    nm_backend *own; /* freed by nm_loaded_model_close; NULL: the backend is that of the caller */
} nm_loaded_model;

/* Begins a model that is not from a file: default options of the task, which is not opened, and the backend
 * ref in float32 as `own`. nm_loaded_model_close releases it, also after an error. */
nm_status nm_loaded_model_begin(nm_loaded_model *loaded, const nm_task_type *task, nm_error *err);
/* Writes such a model to a model file. NM_IO. */
nm_status nm_loaded_model_write(const nm_loaded_model *loaded, const char *path, nm_error *err);

/* Reads task and options from a model file or run folder; the caller may then change the options. *options is
 * released by nm_options_free or nm_loaded_model_open, *file_path, heap, by free. NM_FORMAT: not a model of
 * Norma. */
nm_status nm_loaded_model_options(const char *path, nm_options **options, const nm_task_type **task,
                                  char **file_path, nm_error *err);
/* Loads the model for inference; takes ownership of options, also on failure. fold, int8: apply
 * nm_model_fold, then nm_params_to_int8. The backend must outlive the model. On failure *loaded is empty. */
nm_status nm_loaded_model_open(nm_loaded_model *loaded, const char *file_path, const nm_task_type *task,
                               nm_options *options, nm_backend *backend, bool fold, bool int8, nm_error *err);
/* Both steps for the backend ref in float32 and the options of the file, without fold and int8. */
nm_status nm_loaded_model_open_plain(nm_loaded_model *loaded, const char *path, char **file_path,
                                     nm_error *err);
/* Folds the norms of such a model and sets its options to the norms after folding, for a model file. Returns
 * the number of folded norms. */
size_t nm_loaded_model_fold(nm_loaded_model *loaded);
/* Like nm_loaded_model_open, but with the data of the run (data.folder or data.train of the options), for
 * measurements. with_grads: allocate gradients. NM_MISMATCH if its dictionaries or labels are not those of
 * the model. */
nm_status nm_loaded_model_open_run(nm_loaded_model *loaded, const char *file_path, const nm_task_type *task,
                                   nm_options *options, nm_backend *backend, bool with_grads, nm_error *err);
/* The same without gradients, on the backend cpu with this number of threads. */
nm_status nm_loaded_model_open_run_on_cpu(nm_loaded_model *loaded, const char *file_path,
                                          const nm_task_type *task, nm_options *options, int32_t threads,
                                          nm_error *err);
/* Loads the tensors of another model file of the same run. */
nm_status nm_loaded_model_change(nm_loaded_model *loaded, const char *file_path, nm_error *err);
void nm_loaded_model_close(nm_loaded_model *loaded);
