/* Section [comm]: the processes that train one model together. */
#ifndef NM_COMM_OPTIONS_H
#define NM_COMM_OPTIONS_H

#include "norma/option.h"

typedef struct nm_comm_config {
    enum { NM_COMM_AUTO, NM_COMM_NONE, NM_COMM_MPI } backend;
    double timeout; /* seconds */
    bool shard_optimizer;
} nm_comm_config;

/* Registers [comm]; nm_options_find(options, "comm") returns its nm_comm_config. */
void nm_comm_options_add(nm_options *options);

#endif
