#include "train/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

static void post_none(nm_comm *comm, const nm_comm_message *messages, size_t n)
{
    (void)comm, (void)messages;
    NM_ASSERT(n == 0);
}

static void progress_none(nm_comm *comm)
{
    (void)comm;
}

static nm_status exchange_none(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err)
{
    (void)comm, (void)messages, (void)n, (void)err;
    NM_ASSERT(n == 0);
    return NM_OK;
}

static nm_status finish_none(nm_comm *comm, nm_status status, bool *prints, nm_error *err)
{
    (void)comm, (void)err;
    *prints = true;
    return status;
}

static void free_none(nm_comm *comm)
{
    free(comm);
}

const nm_comm_type nm_comm_none = {.name = "none",
                                   .post = post_none,
                                   .progress = progress_none,
                                   .exchange = exchange_none,
                                   .finish = finish_none,
                                   .free = free_none};

static void count_sent(nm_comm *comm, const nm_comm_message *messages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        comm->sent_bytes += messages[i].receive ? 0 : (int64_t)messages[i].bytes;
}

void nm_comm_post(nm_comm *comm, const nm_comm_message *messages, size_t n)
{
    double start = nm_clock();
    comm->type->post(comm, messages, n);
    comm->wait_seconds += nm_clock() - start;
    count_sent(comm, messages, n);
}

void nm_comm_progress(nm_comm *comm)
{
    double start = nm_clock();
    comm->type->progress(comm);
    comm->wait_seconds += nm_clock() - start;
}

nm_status nm_comm_exchange(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err)
{
    double start = nm_clock();
    nm_status status = comm->type->exchange(comm, messages, n, err);
    comm->wait_seconds += nm_clock() - start;
    count_sent(comm, messages, n);
    return status;
}

nm_status nm_comm_gather(nm_comm *comm, void *blocks, size_t bytes, nm_error *err)
{
    if (comm->size == 1)
        return NM_OK;
    NM_AUTO_FREE nm_comm_message *messages = nm_allocate(2 * (size_t)comm->size * sizeof *messages);
    size_t n = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (rank == comm->rank)
            continue;
        messages[n++] = (nm_comm_message){rank, true, (char *)blocks + (size_t)rank * bytes, bytes};
        messages[n++] = (nm_comm_message){rank, false, (char *)blocks + (size_t)comm->rank * bytes, bytes};
    }
    return nm_comm_exchange(comm, messages, n, err);
}

nm_status nm_comm_gather_bytes(nm_comm *comm, const void *own, size_t bytes, char **all, size_t *ends,
                               nm_error *err)
{
    *all = NULL;
    ends[comm->rank] = bytes;
    NM_TRY(nm_comm_gather(comm, ends, sizeof *ends, err));
    NM_AUTO_FREE nm_comm_message *messages = nm_allocate(2 * (size_t)comm->size * sizeof *messages);
    size_t n = 0, begin = 0;
    for (int32_t rank = 0; rank < comm->size; rank++)
        ends[rank] += rank ? ends[rank - 1] : 0;
    *all = nm_allocate(ends[comm->size - 1] + 1);
    for (int32_t rank = 0; rank < comm->size; begin = ends[rank++]) {
        if (rank == comm->rank) {
            if (bytes) /* own may be NULL */
                memcpy(*all + begin, own, bytes);
            continue;
        }
        messages[n++] = (nm_comm_message){rank, true, *all + begin, ends[rank] - begin};
        messages[n++] = (nm_comm_message){rank, false, (void *)(uintptr_t)own, bytes};
    }
    nm_status status = nm_comm_exchange(comm, messages, n, err);
    if (status != NM_OK) {
        free(*all);
        *all = NULL;
    }
    return status;
}

nm_status nm_comm_sum(nm_comm *comm, int64_t *values, size_t n, nm_error *err)
{
    NM_AUTO_FREE int64_t *all = nm_allocate((size_t)comm->size * n * sizeof *all);
    memcpy(all + (size_t)comm->rank * n, values, n * sizeof *values);
    nm_status status = nm_comm_gather(comm, all, n * sizeof *all, err);
    memset(values, 0, n * sizeof *values);
    for (size_t i = 0; i < (size_t)comm->size * n; i++)
        values[i % n] += all[i];
    return status;
}

nm_status nm_comm_share_interruption(nm_comm *comm, nm_status status, nm_error *err)
{
    int64_t interrupted = status == NM_INTERRUPTED;
    if (comm->size == 1 || (status != NM_OK && !interrupted))
        return status;
    NM_TRY(nm_comm_sum(comm, &interrupted, 1, err));
    return interrupted ? nm_fail(err, NM_INTERRUPTED, "stopped") : NM_OK;
}

/* A binomial tree: in each step 1, 2, 4, ..., every rank r below `step` sends to rank r + step. */
nm_status nm_comm_broadcast(nm_comm *comm, void *data, size_t bytes, nm_error *err)
{
    for (int32_t step = 1; step < comm->size; step *= 2) {
        if (comm->rank < step && comm->rank + step < comm->size)
            NM_TRY(nm_comm_exchange(comm, &(nm_comm_message){comm->rank + step, false, data, bytes}, 1, err));
        else if (comm->rank >= step && comm->rank < 2 * step)
            NM_TRY(nm_comm_exchange(comm, &(nm_comm_message){comm->rank - step, true, data, bytes}, 1, err));
    }
    return NM_OK;
}

nm_status nm_comm_finish(nm_comm *comm, nm_status status, bool *prints, nm_error *err)
{
    return comm->type->finish(comm, status, prints, err);
}

void nm_comm_free(nm_comm *comm)
{
    if (comm)
        comm->type->free(comm);
}
