/* nm_comm over MPI 3 (Open MPI or MPICH). Compiled into the program if CMake finds MPI (NORMA_MPI). */
#ifndef NM_COMM_MPI_H
#define NM_COMM_MPI_H

#include "comm/comm.h"

/* Initializes MPI with all processes of the launcher; once per process. timeout: seconds without a heartbeat after which a rank
 * is lost. launched: number of processes that the launcher has started, 1 if unknown. NM_UNSUPPORTED if the MPI library
 * does not support calls from several threads, or does not connect the launcher's processes. nm_comm_finish and then
 * nm_comm_free, which finalizes MPI, end it. */
nm_status nm_comm_mpi_open(nm_comm **comm, double timeout, long launched, nm_error *err);

#endif
