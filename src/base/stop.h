/* A request to stop, set by a signal handler or another thread while a long computation runs. */
#ifndef NM_STOP_H
#define NM_STOP_H

#include <signal.h>
#include <stdbool.h>

#include "norma/status.h"

typedef volatile sig_atomic_t nm_stop; /* nonzero: stop */

static inline bool nm_stop_is_set(const nm_stop *stop)
{
    return stop && *stop;
}

/* NM_INTERRUPTED if a stop is requested. stop may be NULL: never. */
static inline nm_status nm_check_stop(const nm_stop *stop, nm_error *err)
{
    return nm_stop_is_set(stop) ? nm_fail(err, NM_INTERRUPTED, "stopped") : NM_OK;
}

#endif
