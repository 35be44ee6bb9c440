/* Running statistics of workers: norm.state = worker.
 *
 * The released code train on several devices, each with separate running statistics and counters, of which the first
 * device's are saved. Here shard number s is worker s, regardless of the process that computes it. Checkpoints contain the states
 * of all workers, and the model has that of worker 0. */
#ifndef NM_WORKERS_H
#define NM_WORKERS_H

#include "base/safetensors.h"
#include "comm/comm.h"
#include "nn/params.h"

typedef struct nm_workers {
    int64_t n;         /* 0: norms have one state, and the functions do nothing */
    char *states;      /* host, [n][state_bytes]: those of the shards of this process are valid */
    int64_t *counters; /* [n][n_counters] */
    size_t state_bytes, n_counters;
} nm_workers;

/* Every worker begins with the state of the norms. */
void nm_workers_init(nm_workers *workers, const nm_params *params, int64_t n);
void nm_workers_reset(nm_workers *workers, const nm_params *params);
void nm_workers_release(nm_workers *workers);

/* Copies the state of a worker to the norms, or back. */
void nm_workers_load(const nm_workers *workers, nm_params *params, int64_t worker);
void nm_workers_store(nm_workers *workers, const nm_params *params, int64_t worker);

/* By all ranks: rank 0 gets the states of all workers; all ranks get those of rank 0. */
nm_status nm_workers_gather(nm_workers *workers, nm_comm *comm, nm_error *err);
nm_status nm_workers_share(nm_workers *workers, nm_comm *comm, nm_error *err);
/* By all ranks: the norms get the state of worker 0, the model's. */
nm_status nm_workers_share_first(nm_workers *workers, nm_params *params, nm_comm *comm, nm_error *err);

/* The tensors of a checkpoint; their memory must stay valid until the writer is finished. */
void nm_workers_write(const nm_workers *workers, nm_safetensors_writer *writer, nm_tensor_type type);
/* A checkpoint without workers: nm_workers_reset. NM_FORMAT for a wrong size; NM_MISMATCH for another
 * number of workers. */
nm_status nm_workers_read(nm_workers *workers, const nm_params *params, const nm_safetensors *file,
                          nm_tensor_type type, nm_error *err);

#endif
