#include "cli/open_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/open_comm.h"

static const nm_device_config *device_of(const nm_cli *cli)
{
    return nm_options_find(cli->options, "device");
}

nm_status nm_cli_open_backend(const nm_cli *cli, nm_backend **backend, nm_error *err)
{
    NM_TRY(nm_device_open(device_of(cli), backend, err));
    if (nm_backend_lacks_threads(*backend) && !nm_cli_launched_rank())
        fprintf(stderr, "norma: warning: %s\n", nm_backend_warning(*backend));
    return NM_OK;
}

nm_status nm_cli_open_model(const nm_cli *cli, const char *path, const nm_task_type *task,
                            const char *refusal, nm_backend *backend, nm_loaded_model *loaded, nm_error *err)
{
    nm_options *options;
    const nm_task_type *found;
    char *file;
    NM_TRY(nm_loaded_model_options(path, &options, &found, &file, err));
    nm_status status;
    if (found != task)
        status = nm_fail(err, NM_UNSUPPORTED, "%s: a model for %s %s", file, found->name, refusal);
    else
        status = nm_cli_apply(cli, options, err);
    if (status != NM_OK)
        nm_options_free(options);
    else
        status = nm_loaded_model_open(loaded, file, found, options, backend, device_of(cli)->fold,
                                      device_of(cli)->precision == NM_PRECISION_INT8, err);
    free(file);
    return status;
}
