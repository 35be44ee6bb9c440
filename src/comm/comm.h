/* Processes that train one model together, and the messages between them.
 *
 * A rank is the number of a process, from 0; the ranks run the same program on the same options. One implementation
 * exchanges messages (src/comm/mpi); a process without others is the type nm_comm_none. Everything else is built on
 * nm_comm_exchange.
 *
 * Errors. A rank that fails calls nm_comm_finish with its status. The others return the same status from the
 * nm_comm_exchange that they are in or call next, and call nm_comm_finish in turn. A rank that does not respond for
 * `timeout` seconds is lost: the call returns NM_IO and names it. After a failure only nm_comm_finish and nm_comm_free may
 * be called. */
#ifndef NM_COMM_H
#define NM_COMM_H

#include "norma/status.h"

typedef struct nm_comm nm_comm;

typedef struct nm_comm_message {
    int32_t rank; /* of the other process */
    bool receive; /* otherwise send */
    void *data;   /* host memory; of a send: only read */
    size_t bytes;
} nm_comm_message;

typedef struct nm_comm_type {
    const char *name; /* "none", "mpi" */
    /* Begins to send and receive messages; their data must stay until the next exchange, which completes them. The k-th message
     * from one rank to another is received by the k-th receive. */
    void (*post)(nm_comm *comm, const nm_comm_message *messages, size_t n);
    /* Continues the messages of `post` without waiting. */
    void (*progress)(nm_comm *comm);
    /* Sends and receives all messages and returns when they, and those of `post`, are complete. */
    nm_status (*exchange)(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err);
    /* See nm_comm_finish. */
    nm_status (*finish)(nm_comm *comm, nm_status status, bool *prints, nm_error *err);
    void (*free)(nm_comm *comm);
} nm_comm_type;

struct nm_comm {
    const nm_comm_type *type;
    int32_t rank, size;
    double wait_seconds; /* time in nm_comm_post, nm_comm_progress and nm_comm_exchange so far */
    int64_t sent_bytes;  /* so far */
};

/* A process without others. */
extern const nm_comm_type nm_comm_none;

void nm_comm_post(nm_comm *comm, const nm_comm_message *messages, size_t n);
void nm_comm_progress(nm_comm *comm);
nm_status nm_comm_exchange(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err);
/* blocks: [size][bytes]. Each rank has filled its block; afterwards every rank has all. */
nm_status nm_comm_gather(nm_comm *comm, void *blocks, size_t bytes, nm_error *err);
/* Concatenates the bytes of all ranks, in their order. *all: heap; ends: [size], where those of each rank end. */
nm_status nm_comm_gather_bytes(nm_comm *comm, const void *own, size_t bytes, char **all, size_t *ends,
                               nm_error *err);
/* Replaces n values by their sums over all ranks. */
nm_status nm_comm_sum(nm_comm *comm, int64_t *values, size_t n, nm_error *err);
/* Copies the data of rank 0 to all ranks. */
nm_status nm_comm_broadcast(nm_comm *comm, void *data, size_t bytes, nm_error *err);
/* Every rank calls this once, last, with its result: status, and the message of err unless it is NM_OK. Returns the result
 * of all: NM_OK, or the failure of the lowest rank that failed by itself, with the message "rank N: ..." unless N is 0.
 * *prints: whether this rank is the one to report it. */
nm_status nm_comm_finish(nm_comm *comm, nm_status status, bool *prints, nm_error *err);
/* NULL is accepted. */
void nm_comm_free(nm_comm *comm);

#endif
