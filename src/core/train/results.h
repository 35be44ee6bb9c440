/* The numbers of an update that the host needs: the sums and penalties of the passes, and the gradient norm.
 * They are one block in device memory, for which the host waits once. */
#ifndef NM_RESULTS_H
#define NM_RESULTS_H

#include "tape/tape.h"
#include "train/shards.h"

enum {
    NM_RESULT_SQUARE, /* squared norm of the summed gradients */
    NM_RESULT_PASSES  /* of each pass: the two sums of the loss, and the penalties */
};

typedef struct nm_results {
    nm_backend *backend;
    double *device, *host; /* [capacity], of which n are used */
    size_t n, capacity;
    size_t *ends; /* host, [n_passes]: end of the numbers of a pass */
    int64_t n_passes, passes_capacity;
} nm_results;

/* Release it in every case. The backend must outlive it. NM_MEMORY. */
nm_status nm_results_init(nm_results *results, nm_backend *backend, nm_error *err);
void nm_results_release(nm_results *results);
/* Before the first pass of an update. */
void nm_results_start(nm_results *results);
/* Copies the numbers of the pass on the tape, without waiting. sums: device, of its loss. The first update
 * allocates the memory. NM_MEMORY. */
nm_status nm_results_add(nm_results *results, const nm_tape *tape, const double *sums, nm_error *err);
/* Waits, and copies all numbers to `host`. Errors as nm_backend_check. */
nm_status nm_results_read(nm_results *results, nm_error *err);
/* After reading: sets loss, nll and penalty to the sums over the passes, in the tree of the shards. Nothing
 * without passes. */
void nm_results_total(const nm_results *results, nm_shard_sums *sums);

#endif
