#include "cli/open_backend.h"

#include <stdio.h>

#include "cli/open_comm.h"

nm_status nm_cli_open_backend(const nm_cli *cli, const nm_options *model, nm_backend **backend, nm_error *err)
{
    NM_TRY(nm_device_choose_trained(cli->options, model && nm_device_is_bf16(model), err));
    NM_TRY(nm_device_open(nm_options_find(cli->options, "device"), backend, err));
    if (nm_backend_lacks_threads(*backend) && !nm_cli_launched_rank())
        fprintf(stderr, "norma: warning: %s\n", nm_backend_warning(*backend));
    return NM_OK;
}
