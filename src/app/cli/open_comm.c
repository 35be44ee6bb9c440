#include "cli/open_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/load_mpi.h"

/* The variables of Slurm alone are not sufficient: they are also set outside srun, where there is no MPI. */
long nm_cli_launched_processes(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (value)
            return atol(value);
    }
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return getenv("PMIX_RANK") && tasks ? atol(tasks) : 1; /* srun --mpi=pmix */
}

int32_t nm_cli_launched_rank(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; nm_cli_launched_processes() > 1 && i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i]))
            return (int32_t)atol(getenv(variables[i]));
    return 0;
}

/* srun without an MPI plugin starts tasks that do not find each other: each would do the whole work. */
static void warn_of_separate_tasks(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *task = getenv("SLURM_PROCID");
    if (tasks && atol(tasks) > 1 && task && !atol(task))
        fprintf(
            stderr,
            "norma: warning: srun has started %ld tasks without MPI, so each works alone; srun --mpi=pmix "
            "connects them\n",
            atol(tasks));
}

/* Only one process prints: rank 0 or, if that is the one that does not respond, the next one. A launcher
 * needs up to 1.5 seconds to end the others after rank 0 has ended, and half a second to forward the
 * message. */
static void give_up(const nm_error *err)
{
    enum { LONGEST_TURN = 8 };
    const int32_t rank = nm_cli_launched_rank();
    nanosleep(&(struct timespec){.tv_sec = 2 * (rank < LONGEST_TURN ? rank : LONGEST_TURN)}, NULL);
    fflush(stdout);
    nm_cli_fail(err);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    _exit((int)err->status);
}

nm_status nm_cli_open_comm(nm_comm **comm, const nm_comm_config *config, nm_error *err)
{
    long n = nm_cli_launched_processes();
    if (config->backend == NM_COMM_MPI || (config->backend == NM_COMM_AUTO && n > 1))
        return nm_cli_open_mpi(
            comm, &(nm_comm_mpi_setup){.timeout = config->timeout, .launched = n, .give_up = give_up}, err);
    if (config->backend == NM_COMM_AUTO)
        warn_of_separate_tasks();
    *comm = nm_allocate(sizeof **comm);
    **comm = (nm_comm){.type = &nm_comm_none, .size = 1};
    return NM_OK;
}

static const nm_comm_config launched = {.backend = NM_COMM_AUTO, .timeout = 15};

nm_status nm_cli_join_ranks(nm_comm **comm, const nm_command *command, nm_error *err)
{
    static const nm_comm_config single = {.backend = NM_COMM_NONE};
    return nm_cli_open_comm(comm, command->ranks ? &launched : &single, err);
}

int nm_cli_fail_to_join(nm_error *err)
{
    return nm_cli_launched_rank() ? (int)err->status : nm_cli_fail(err);
}

int nm_cli_fail_once(nm_error *err)
{
    nm_error no_comm;
    nm_comm *comm;
    bool prints;
    if (nm_cli_open_comm(&comm, &launched, &no_comm) != NM_OK)
        return nm_cli_fail_to_join(err);
    nm_status status = nm_comm_finish(comm, err->status, &prints, err);
    if (prints)
        nm_cli_fail(err);
    nm_comm_free(comm);
    return (int)status;
}
