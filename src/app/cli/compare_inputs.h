/* Agreement of processes that divide the work on the same files. */
#pragma once

#include "cli/open_comm.h"

/* NM_MISMATCH if a file of a rank has another content than that of rank 0, as on machines without a common
 * folder, where each process would compute its part of another result. models: model files or run folders,
 * comma-separated; files [n]: NULL and paths of other things than files are ignored. */
nm_status nm_cli_compare_inputs(nm_comm *comm, const char *models, const char *const *files, size_t n,
                                nm_error *err);
