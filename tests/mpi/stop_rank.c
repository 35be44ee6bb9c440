/* Preloaded into the ranks of a test: stops the process of rank STOP_RANK, which the launcher names, in the
 * phase STOP_AT of MPI. init: before MPI is initialized, afterinit: after that, result: before the result is
 * sent to the other ranks, end: before the last message, finalize: before MPI is finalized. */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_RESULT = 1, TAG_END = 2 }; /* of src/core/train/comm_mpi.c */

static void stop_at(const char *phase)
{
    const char *at = getenv("STOP_AT"), *victim = getenv("STOP_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    if (at && victim && rank && !strcmp(at, phase) && !strcmp(victim, rank))
        raise(SIGSTOP);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int (*next)(int *, char ***, int, int *);
    *(void **)&next = dlsym(RTLD_DEFAULT, "PMPI_Init_thread");
    stop_at("init");
    const int code = next(argc, argv, required, provided);
    stop_at("afterinit");
    return code;
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int (*next)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    *(void **)&next = dlsym(RTLD_DEFAULT, "PMPI_Isend");
    if (tag == TAG_RESULT)
        stop_at("result");
    if (tag == TAG_END)
        stop_at("end");
    return next(data, n, type, rank, tag, comm, request);
}

int MPI_Finalize(void)
{
    int (*next)(void);
    *(void **)&next = dlsym(RTLD_DEFAULT, "PMPI_Finalize");
    stop_at("finalize");
    return next();
}
