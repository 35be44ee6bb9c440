/* nm_comm over MPI 3 (Open MPI or MPICH): the module norma-mpi.so, which is built if CMake finds MPI (NORMA_MPI) and loaded by
 * src/app/cli/load_mpi.c. */
#ifndef NM_COMM_MPI_H
#define NM_COMM_MPI_H

#include "comm/comm.h"

typedef struct nm_comm_mpi_module_type {
    char version[32]; /* NORMA_VERSION; the first field in all versions */
    /* Initializes MPI with all processes of the launcher; once per process. timeout: seconds without a heartbeat after which a
     * rank is lost. launched: number of processes that the launcher has started, 1 if unknown. NM_UNSUPPORTED if the MPI library
     * does not support calls from several threads, or does not connect the launcher's processes. nm_comm_finish and then
     * nm_comm_free, which finalizes MPI, end it. */
    nm_status (*open)(nm_comm **comm, double timeout, long launched, nm_error *err);
} nm_comm_mpi_module_type;

/* The only symbol of the module that the program looks up. */
extern const nm_comm_mpi_module_type nm_comm_mpi_module;

#endif
