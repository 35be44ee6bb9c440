/* Outputs that would destroy files of a run, a model or data. */
#pragma once

#include "cli/cli.h"

/* Checks everything that the command line names as an output before the command runs: options "output", those
 * of nm_command.outputs, and with nm_command.writes_first the first argument.
 * NM_USAGE  a file of a run folder or of a data folder exists there
 * NM_USAGE  a model file exists there, and the command does not write models
 * NM_USAGE  the output is a folder, and that of a run or of data
 * NM_IO  the folder cannot be read */
nm_status nm_guard_outputs(const nm_cli *cli, int argc, char **argv, nm_error *err);
