/* The module norma-mpi.so (src/core/train/comm_mpi.c). */
#pragma once

#include "train/comm_mpi.h"

/* Loads the module and initializes MPI, see nm_comm_mpi_module_type. The module stays loaded. Signals that
 * the process ignores remain ignored. NM_UNSUPPORTED if there is no module, and if the libraries of MPI are
 * missing; NM_MISMATCH if it belongs to another version of Norma. */
nm_status nm_cli_open_mpi(nm_comm **comm, const nm_comm_mpi_setup *setup, nm_error *err);
