/* Self-contained model files: the tensors of model/model_file.h and, as metadata, the options and the
 * texts of the task (vocabulary, codes, tokenizer). */
#pragma once

#include "model/model_file.h"
#include "train/task.h"

/* The model file of a path: best.safetensors of a run folder, otherwise its last.safetensors; any other path
 * is returned unchanged. Heap. */
char *nm_model_path(const char *path);

/* The model files of the checkpoints that a run folder keeps, oldest first, the initial one
 * (train.save_initial) included. NULL and *n 0: there are none. Free with nm_checkpoint_list_free. NM_IO: the
 * folder cannot be read. */
nm_status nm_checkpoint_list(const char *run, char ***paths, size_t *n, nm_error *err);
void nm_checkpoint_list_free(char **paths, size_t n);

/* Writes the model, the texts of the task and the options. update: stored as metadata "update". NM_IO. */
nm_status nm_checkpoint_write(const char *path, const nm_model *model, const nm_task *task, int64_t update,
                              nm_error *err);
/* Writes the model with its current options; all other metadata and the tensors of bytes (SentencePiece
 * models, allowed tokens) are copied from `like`, which must stay open. After nm_model_fold the options must
 * specify `none` for the folded norms. format and errors: nm_model_file_add. */
nm_status nm_checkpoint_rewrite(const char *path, const nm_model *model, const nm_task_type *task,
                                nm_weight_format format, const nm_safetensors *like, nm_error *err);
