/* Communication between the processes that an MPI launcher has started. */
#pragma once

#include "cli/cli.h"
#include "train/comm.h"
#include "train/comm_options.h"

/* Number of processes that the launcher has started; 1: no launcher. */
long nm_cli_launched_processes(void);
/* Rank of this process among those that the launcher has started; 0 without a launcher. */
int32_t nm_cli_launched_rank(void);
/* Connects this process with the others that the same launcher has started, as set in section [comm]; a
 * single process gets nm_comm_none. Freed with nm_comm_free, after nm_comm_finish. NM_UNSUPPORTED if the
 * program was built without MPI or with another MPI library than the launcher's. */
nm_status nm_cli_open_comm(nm_comm **comm, const nm_comm_config *config, nm_error *err);
/* The same for a command without section [comm]; without nm_command.ranks, always a single process. */
nm_status nm_cli_join_ranks(nm_comm **comm, const nm_command *command, nm_error *err);
/* Reports a failure of these functions, which all processes have: only the first one of the launcher prints
 * it. Returns the exit code. */
int nm_cli_fail_to_join(nm_error *err);
/* Reports an error in the command line before nm_cli_open_comm, which all processes have: only one of them
 * prints it. Returns the exit code. */
int nm_cli_fail_once(nm_error *err);
