/* Section [comm]: the processes that train one model together. */
#pragma once

#include "norma/option.h"

#define NM_COMM_BACKENDS(C) C(NM_COMM_AUTO, "auto") C(NM_COMM_NONE, "none") C(NM_COMM_MPI, "mpi")
NM_CHOICES(nm_comm_backend, NM_COMM_BACKENDS);

typedef struct nm_comm_config {
    nm_comm_backend backend;
    double timeout; /* seconds */
    bool shard_optimizer;
} nm_comm_config;

/* Registers [comm]; nm_options_find(options, "comm") returns its nm_comm_config. */
void nm_comm_options_add(nm_options *options);
