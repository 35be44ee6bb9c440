/* nm_comm over MPI 3 (Open MPI or MPICH): the module norma-mpi.so, which is built if CMake finds MPI
 * (NORMA_MPI) and loaded by src/app/cli/load_mpi.c. */
#pragma once

#include "train/comm.h"

typedef struct nm_comm_mpi_setup {
    /* Seconds without a heartbeat after which a rank is lost; also the limit for its start and its end. */
    double timeout;
    long launched; /* number of processes that the launcher has started; 1: unknown */
    /* Reports the error and ends the process with its status: MPI waits for a rank that does not respond, and
     * cannot be interrupted. Called from another thread; does not return. */
    void (*give_up)(const nm_error *err);
} nm_comm_mpi_setup;

typedef struct nm_comm_mpi_module_type {
    char version[32]; /* NORMA_VERSION; the first field in all versions */
    /* Initializes MPI with all processes of the launcher; once per process. nm_comm_finish and then
     * nm_comm_free, which finalizes MPI, end it.
     * NM_UNSUPPORTED  the MPI library does not support calls from several threads
     * NM_UNSUPPORTED  it does not connect the launcher's processes */
    nm_status (*open)(nm_comm **comm, const nm_comm_mpi_setup *setup, nm_error *err);
} nm_comm_mpi_module_type;

/* The only symbol of the module that the program looks up. */
extern const nm_comm_mpi_module_type nm_comm_mpi_module;
