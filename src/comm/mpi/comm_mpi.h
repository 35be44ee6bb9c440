/* Messages over MPI (MPI 3, Open MPI or MPICH). Compiled into the program if CMake finds MPI (NORMA_MPI). */
#ifndef NM_COMM_MPI_H
#define NM_COMM_MPI_H

#include "comm/comm.h"

/* Initializes MPI with all processes of the launcher; once per process. timeout: seconds without a heartbeat after which
 * a rank is lost. NM_UNSUPPORTED if the MPI library does not allow calls from several threads. Free with nm_comm_free, after
 * nm_comm_finish, which ends MPI. */
nm_status nm_comm_mpi_open(nm_comm **comm, double timeout, nm_error *err);

#endif
