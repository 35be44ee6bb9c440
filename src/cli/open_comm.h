/* The processes of a run, as the launcher has started them. */
#ifndef NM_OPEN_COMM_H
#define NM_OPEN_COMM_H

#include "cli/cli.h"
#include "comm/comm.h"
#include "comm/comm_options.h"

/* Number of this process among those that the launcher has started; 0 without a launcher. */
int32_t nm_cli_launched_rank(void);
/* Connects this process with the others that the same launcher has started, by [comm]; a process without others gets
 * nm_comm_none. Free with nm_comm_free, after nm_comm_finish. NM_UNSUPPORTED if the program was built without MPI. */
nm_status nm_cli_open_comm(nm_comm **comm, const nm_comm_config *config, nm_error *err);
/* The processes that divide the work of a command without section [comm], if it has nm_command.ranks. */
nm_status nm_cli_join_ranks(nm_comm **comm, const nm_command *command, nm_error *err);
/* An error in the command line, before nm_cli_open_comm: printed by one of the processes that have it. Returns the exit code. */
int nm_cli_fail_once(nm_error *err);

#endif
