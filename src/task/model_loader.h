/* Loading a trained model: options, task and model from a model file. */
#ifndef NM_MODEL_LOADER_H
#define NM_MODEL_LOADER_H

#include "task/tasks.h"
#include "train/checkpoint.h"

/* A loaded model, from a model file or a run folder (its best checkpoint, else its last). */
typedef struct nm_loaded_model {
    nm_options *options;
    nm_task task;
    nm_model *model;
    bool fold; /* norms are folded into the following linear layers (nm_model_fold) */
    bool int8; /* linear layers are int8 (nm_params_to_int8) */
    nm_safetensors
        *file; /* the open file in which parameters of the model are (nm_model_file_map), or NULL */
} nm_loaded_model;

/* Reads the options from the file; the command line may override them. */
nm_status nm_loaded_model_options(const char *path, nm_options **options, const nm_task_type **task,
                                  char **file_path, nm_error *err);
/* Builds task and model with these options on the backend; takes ownership of options. fold, int8: apply nm_model_fold,
 * then nm_params_to_int8; such a model is for inference only. */
nm_status nm_loaded_model_open(nm_loaded_model *loaded, const char *file_path, const nm_task_type *task,
                               nm_options *options, nm_backend *backend, bool fold, bool int8, nm_error *err);
/* The same with the data of the run (data.folder or data.train of the options), for measurements; with_grads: allocate
 * gradients. */
nm_status nm_loaded_model_open_run(nm_loaded_model *loaded, const char *file_path, const nm_task_type *task,
                                   nm_options *options, nm_backend *backend, bool with_grads, nm_error *err);
/* Loads another model file of the same run. */
nm_status nm_loaded_model_change(nm_loaded_model *loaded, const char *file_path, nm_error *err);
void nm_loaded_model_close(nm_loaded_model *loaded);

#endif
