/* The numbers of an update that the host needs: the sums and penalties of the passes, the gradient norm, and
 * whether the update has diverged. They are computed in device memory, and the host waits for them once. */
#pragma once

#include "nn/tape.h"
#include "train/shards.h"

typedef struct nm_results {
    nm_backend *backend;
    double *plan;    /* device: nm_plan_update_args.plan */
    double *numbers; /* device, [capacity]: of the passes, as plan_update reads them */
    int32_t *ends;   /* [n_passes] */
    int32_t n_passes;
    size_t capacity, passes_capacity;
    double host[NM_PLAN_SIZE]; /* nm_results_read */
} nm_results;

/* Release it in every case. The backend must outlive it. NM_MEMORY. */
nm_status nm_results_init(nm_results *results, nm_backend *backend, nm_error *err);
void nm_results_release(nm_results *results);
/* Before the first pass of an update. */
void nm_results_start(nm_results *results);
/* Copies the numbers of the pass on the tape, without waiting. sums: device, of its loss. The first update
 * allocates the memory. NM_MEMORY. */
nm_status nm_results_add(nm_results *results, const nm_tape *tape, const double *sums, nm_error *err);
/* Without passes that were added: the sums of all passes, which the host knows. NM_MEMORY. */
nm_status nm_results_set(nm_results *results, const nm_shard_sums *sums, nm_error *err);
/* Waits, and copies the plan to `host`. Errors as nm_backend_check. */
nm_status nm_results_read(nm_results *results, nm_error *err);
