/* The backend of [device], for commands that open a model without a public header (docs/library.md). */
#ifndef NM_CLI_OPEN_BACKEND_H
#define NM_CLI_OPEN_BACKEND_H

#include "cli/cli.h"
#include "backend/device.h"

/* Prints a warning if the system could not start the requested threads. */
nm_status nm_cli_open_backend(const nm_cli *cli, nm_backend **backend, nm_error *err);

#endif
