/* The backend of section [device], for commands that open a model without the public interface
 * (docs/library.md). */
#pragma once

#include "cli/cli.h"
#include "backend/device_options.h"

/* Opens the backend, freed with nm_backend_free. Prints a warning if the system could not start the requested
 * number of threads. model: options of the model, which decide device.precision = trained; NULL: that is
 * float. Errors as nm_device_open. */
nm_status nm_cli_open_backend(const nm_cli *cli, const nm_options *model, nm_backend **backend,
                              nm_error *err);
