/* Opening a trained model for inference: the device of [device], and the options inside the model file, overridden by the
 * command line. */
#ifndef NM_CLI_OPEN_MODEL_H
#define NM_CLI_OPEN_MODEL_H

#include "cli/cli.h"
#include "task/model_loader.h"
#include "backend/device.h"

/* The backend of [device]. */
nm_status nm_cli_open_backend(const nm_cli *cli, nm_backend **backend, nm_error *err);
/* Opens a model file or the model of a run folder. A model of another task is refused with "FILE: a model for TASK REFUSAL".
 * Norms are folded and linear layers quantized to int8 if [device] is set so. */
nm_status nm_cli_open_model(const nm_cli *cli, const char *path, const nm_task_type *task,
                            const char *refusal, nm_backend *backend, nm_loaded_model *loaded, nm_error *err);

#endif
