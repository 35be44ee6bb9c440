/* How a command opens a trained model to use it: the device of [device], the options inside the model's file, and what the
 * command line said over both. */
#ifndef NM_CLI_OPEN_MODEL_H
#define NM_CLI_OPEN_MODEL_H

#include "cli/cli.h"
#include "task/model_loader.h"
#include "backend/device.h"

/* The backend that [device] of the command line names. */
nm_status nm_cli_open_backend(const nm_cli *cli, nm_backend **backend, nm_error *err);
/* Opens a model file or the model of a run folder on the backend. A model of another task is refused: "FILE: a model for TASK
 * REFUSAL". The model's own options hold where the command line says nothing; norms are folded, and linear maps
 * int8, where [device] says so. */
nm_status nm_cli_open_model(const nm_cli *cli, const char *path, const nm_task_type *task,
                            const char *refusal, nm_backend *backend, nm_loaded_model *loaded, nm_error *err);

#endif
