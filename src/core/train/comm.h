/* Point-to-point messages between the processes that train one model, and collective operations built on
 * them.
 *
 * A rank is the number of a process, from 0. All ranks run the same program with the same options.
 * Implementations are src/core/train/mpi, and nm_comm_none for a single process.
 *
 * Errors: a rank that fails calls nm_comm_finish with its status. On the other ranks, the current or the next
 * call of nm_comm_exchange returns the same status, and they call nm_comm_finish, too. If a rank does not
 * respond for `timeout` seconds, the call returns NM_IO with the number of that rank. After a failure only
 * nm_comm_finish and nm_comm_free may be called. */
#pragma once

#include "norma/status.h"

typedef struct nm_comm nm_comm;

typedef struct nm_comm_message {
    int32_t rank; /* of the other process */
    bool receive; /* otherwise send */
    void *data;   /* host memory; not modified by a send */
    size_t bytes;
} nm_comm_message;

typedef struct nm_comm_type {
    const char *name; /* "none", "mpi" */
    /* Starts to send and receive messages. The next exchange completes them; their data must remain valid
     * until then. Messages from one rank to another are received in the order in which they were sent. */
    void (*post)(nm_comm *comm, const nm_comm_message *messages, size_t n);
    /* Makes progress on the messages of `post` without blocking. */
    void (*progress)(nm_comm *comm);
    /* Sends and receives messages. Returns when they and those of `post` are complete. */
    nm_status (*exchange)(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err);
    /* See nm_comm_finish. */
    nm_status (*finish)(nm_comm *comm, nm_status status, bool *prints, nm_error *err);
    void (*free)(nm_comm *comm);
} nm_comm_type;

struct nm_comm {
    const nm_comm_type *type;
    int32_t rank, size;
    double wait_seconds; /* total time in nm_comm_post, nm_comm_progress and nm_comm_exchange */
    int64_t sent_bytes;  /* total size of sent messages */
};

/* A single process. */
extern const nm_comm_type nm_comm_none;

/* The functions of nm_comm_type, with times and bytes added up. */
void nm_comm_post(nm_comm *comm, const nm_comm_message *messages, size_t n);
void nm_comm_progress(nm_comm *comm);
nm_status nm_comm_exchange(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err);
/* All-gather: blocks is [size, bytes]; each rank provides its own block and receives those of all others. */
nm_status nm_comm_gather(nm_comm *comm, void *blocks, size_t bytes, nm_error *err);
/* All-gather with different sizes: concatenates the bytes of all ranks in the order of the ranks. The caller
 * frees *all, which is NULL after an error; ends [size] receives the end of the bytes of each rank. */
nm_status nm_comm_gather_bytes(nm_comm *comm, const void *own, size_t bytes, char **all, size_t *ends,
                               nm_error *err);
/* All-reduce: replaces n values with their sums over all ranks. */
nm_status nm_comm_sum(nm_comm *comm, int64_t *values, size_t n, nm_error *err);
/* status: of this rank, which NM_INTERRUPTED has prevented from computing its part of a common result.
 * Returns NM_INTERRUPTED on all ranks if it is that of one of them. After another failure this rank does not
 * wait for the others. */
nm_status nm_comm_share_interruption(nm_comm *comm, nm_status status, nm_error *err);
/* Copies the data of rank 0 to all ranks. */
nm_status nm_comm_broadcast(nm_comm *comm, void *data, size_t bytes, nm_error *err);
/* Every rank calls this once, as the last function before nm_comm_free, with its status and, unless that is
 * NM_OK, its message in err. Returns the common result: NM_OK, or the status of the lowest rank that failed
 * independently of others, with the message "rank N: ..." unless N is 0. *prints: whether this rank reports
 * it. */
nm_status nm_comm_finish(nm_comm *comm, nm_status status, bool *prints, nm_error *err);
/* NULL is accepted. */
void nm_comm_free(nm_comm *comm);
