/* The CPU backend. */
#ifndef NM_CPU_H
#define NM_CPU_H

#include "norma/backend.h"

/* Overwrites the plain kernels in backend->k with those for the CPU level asked for and sets backend->isa. */
nm_status nm_cpu_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err);

#endif
