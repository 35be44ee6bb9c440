/* A request to end a long computation. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "norma/status.h"

typedef struct nm_stop {
    atomic_int requested; /* nonzero: stop; set by a signal handler, by another thread, or by a callback */
    /* Another source of requests; true: stop. Called by all threads of the computation. NULL: none. */
    bool (*poll)(void *state);
    void *state;
} nm_stop;

static inline bool nm_stop_is_set(const nm_stop *stop)
{
    return stop && (atomic_load_explicit(&stop->requested, memory_order_relaxed) ||
                    (stop->poll && stop->poll(stop->state)));
}

/* NM_INTERRUPTED if a stop is requested. stop may be NULL: never. */
static inline nm_status nm_check_stop(const nm_stop *stop, nm_error *err)
{
    return nm_stop_is_set(stop) ? nm_fail(err, NM_INTERRUPTED, "stopped") : NM_OK;
}
