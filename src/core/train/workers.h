/* Running statistics of workers: norm.state = worker.
 *
 * The authors' code trains on several devices with separate running statistics and counters, and saves those
 * of the first device. Here shard s of an update is worker s, regardless of the process that computes it.
 * Checkpoints contain the states of all workers; the model has the state of worker 0. */
#pragma once

#include "base/safetensors.h"
#include "train/comm.h"
#include "nn/params.h"

typedef struct nm_workers {
    int64_t n;         /* 0: the norms have a single state, and the functions have no effect */
    char *states;      /* host, [n][state_bytes]; valid for the shards of this process */
    int64_t *counters; /* [n][n_counters] */
    size_t state_bytes, n_counters;
} nm_workers;

/* Allocates n workers, and sets them to the state of the norms. */
void nm_workers_init(nm_workers *workers, const nm_params *params, int64_t n);
/* Sets all workers to the state of the norms. */
void nm_workers_reset(nm_workers *workers, const nm_params *params);
void nm_workers_release(nm_workers *workers);

/* Copies the state of a worker to the norms (load), or from them (store). */
void nm_workers_load(const nm_workers *workers, nm_params *params, int64_t worker);
void nm_workers_store(nm_workers *workers, const nm_params *params, int64_t worker);

/* All ranks must call these functions. gather: copies the states of all workers to rank 0; share: copies
 * those of rank 0 to all ranks; share_first: copies the state of worker 0, which is that of the model, to the
 * norms of all ranks. */
nm_status nm_workers_gather(nm_workers *workers, nm_comm *comm, nm_error *err);
nm_status nm_workers_share(nm_workers *workers, nm_comm *comm, nm_error *err);
nm_status nm_workers_share_first(nm_workers *workers, nm_params *params, nm_comm *comm, nm_error *err);

/* Adds the states to a checkpoint; *workers must not change until the writer has finished. */
void nm_workers_write(const nm_workers *workers, nm_safetensors_writer *writer, nm_tensor_type type);
/* Loads the states from a checkpoint; from one without workers: nm_workers_reset. NM_MISMATCH for another
 * number of workers, and errors of nm_safetensors_expect. */
nm_status nm_workers_read(nm_workers *workers, const nm_params *params, const nm_safetensors *file,
                          nm_tensor_type type, nm_error *err);
