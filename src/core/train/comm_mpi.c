/* Point-to-point messages of MPI, and a thread for heartbeats.
 *
 * All waits poll, so that they end when another rank fails or is lost. A thread of each rank sends heartbeats
 * to the next rank of a ring and checks those of the previous rank, also during long computations. All calls
 * of MPI are made while a mutex is held (MPI_THREAD_SERIALIZED). Before the first heartbeat and after the
 * last one, where calls of MPI may wait for a rank for ever, a deadline ends the process. */
#include "train/comm_mpi.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "train/deadline.h"

enum { PIECE = 1 << 30 }; /* maximum bytes of an MPI message, whose length is an int */
enum { TAG_HEARTBEAT, TAG_RESULT, TAG_END };

typedef struct result { /* of a rank, sent to all others when it finishes */
    int32_t status;
    int32_t lost; /* rank that does not respond; -1: none */
    bool own;     /* the status is not a consequence of another rank's failure */
    char text[sizeof((nm_error *)0)->text];
} result;

typedef struct mpi_comm {
    nm_comm base;
    MPI_Comm data, control;
    double timeout;
    void (*give_up)(const nm_error *err); /* nm_comm_mpi_setup */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool thread_started, stopping;
    MPI_Request *pending; /* [n_pending]: messages that are not complete */
    size_t n_pending, pending_capacity;
    double last_heartbeat; /* of the previous rank; time of nm_clock */
    bool ended;            /* the previous rank has stopped sending heartbeats */
    char heartbeat;        /* buffer of heartbeat_request */
    MPI_Request heartbeat_request;
    int32_t lost;          /* rank that does not respond; -1: none */
    result *results;       /* [size] */
    MPI_Request *sent;     /* [size]: of the own result */
    bool *finished;        /* [size]: whether the result has arrived */
    bool failed;           /* a rank has failed or is lost */
    bool failure_returned; /* an exchange has returned the failure of another rank */
    bool collective;       /* all ranks have finished with the same status, so that MPI can be finalized */
    int exit_code;
    bool prints;
} mpi_comm;

/* NM_INTERRUPTED is not a failure: after a stop request, the other ranks wait for the one that writes the
 * checkpoint. */
static bool is_failure(int32_t status)
{
    return status != NM_OK && status != NM_INTERRUPTED;
}

static void receive_control(mpi_comm *c)
{
    int found;
    MPI_Status from;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->control, &found, &from);
    while (found) {
        if (from.MPI_TAG == TAG_HEARTBEAT) {
            char heartbeat;
            MPI_Recv(&heartbeat, 1, MPI_BYTE, from.MPI_SOURCE, TAG_HEARTBEAT, c->control, MPI_STATUS_IGNORE);
            c->last_heartbeat = nm_clock();
        } else if (from.MPI_TAG == TAG_END) {
            MPI_Recv(NULL, 0, MPI_BYTE, from.MPI_SOURCE, TAG_END, c->control, MPI_STATUS_IGNORE);
            c->ended = true;
        } else {
            result *r = &c->results[from.MPI_SOURCE];
            MPI_Recv(r, (int)sizeof *r, MPI_BYTE, from.MPI_SOURCE, TAG_RESULT, c->control, MPI_STATUS_IGNORE);
            c->finished[from.MPI_SOURCE] = true;
            c->failed |= is_failure(r->status);
            if (r->lost >= 0 && c->lost < 0)
                c->lost = r->lost;
        }
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->control, &found, &from);
    }
}

static void send_heartbeat(mpi_comm *c)
{
    int done = 1;
    int32_t next = (c->base.rank + 1) % c->base.size;
    if (c->heartbeat_request != MPI_REQUEST_NULL)
        MPI_Test(&c->heartbeat_request, &done, MPI_STATUS_IGNORE);
    if (done && !c->finished[next])
        MPI_Isend(&c->heartbeat, 1, MPI_BYTE, next, TAG_HEARTBEAT, c->control, &c->heartbeat_request);
}

static void *run_heartbeat(void *argument)
{
    mpi_comm *c = argument;
    int32_t previous = (c->base.rank + c->base.size - 1) % c->base.size;
    pthread_mutex_lock(&c->mutex);
    while (!c->stopping) {
        receive_control(c);
        send_heartbeat(c);
        if (c->lost < 0 && !c->finished[previous] && nm_clock() - c->last_heartbeat > c->timeout) {
            c->lost = previous;
            c->failed = true;
        }
        const struct timespec until = nm_deadline_after(0.5);
        pthread_cond_timedwait(&c->wake, &c->mutex, &until);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* The failure of the lowest rank that failed independently of others; NM_OK: none. */
static nm_status first_failure(const mpi_comm *c, nm_error *err)
{
    for (int32_t rank = 0; rank < c->base.size; rank++) {
        const result *r = &c->results[rank];
        if (!c->finished[rank] || r->status == NM_OK || !r->own)
            continue;
        nm_fail(err, (nm_status)r->status, "%s", r->text);
        return rank ? nm_error_prefix(err, "rank %d", rank) : (nm_status)r->status;
    }
    return NM_OK;
}

/* The failure that ends the run: that of a rank, otherwise the loss of one. */
static nm_status failure(const mpi_comm *c, nm_error *err)
{
    NM_TRY(first_failure(c, err));
    return nm_fail(err, NM_IO, "rank %d has not responded for %g seconds", c->lost, c->timeout);
}

/* Waits between two polls, longer after many polls, for hosts with fewer cores than ranks. */
static void pause_polling(int64_t polls)
{
    if (polls < 200)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = polls < 2000 ? 20000 : 200000}, NULL);
}

/* Seconds that an exchange continues after another rank has failed: if that rank has completed the same
 * exchange, its messages will still arrive. */
static const double GRACE = 1;

static nm_status wait_for(mpi_comm *c, MPI_Request *requests, int n, nm_error *err)
{
    double failed_since = 0;
    for (int64_t polls = 0;; polls++) {
        int done;
        pthread_mutex_lock(&c->mutex);
        MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (!done)
            receive_control(c);
        bool failed = !done && c->failed;
        pthread_mutex_unlock(&c->mutex);
        if (done)
            return NM_OK;
        if (failed && !(failed_since > 0))
            failed_since = nm_clock();
        if (failed && nm_clock() - failed_since > GRACE) {
            c->failure_returned = true;
            return failure(c, err);
        }
        pause_polling(polls);
    }
}

static void mpi_post(nm_comm *comm, const nm_comm_message *messages, size_t n)
{
    mpi_comm *c = (mpi_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < messages[i].bytes; at += PIECE) {
            size_t left = messages[i].bytes - at;
            int bytes = left < PIECE ? (int)left : PIECE;
            char *data = (char *)messages[i].data + at;
            NM_GROW(c->pending, c->n_pending, c->pending_capacity);
            MPI_Request *request = &c->pending[c->n_pending++];
            if (messages[i].receive)
                MPI_Irecv(data, bytes, MPI_BYTE, messages[i].rank, 0, c->data, request);
            else
                MPI_Isend(data, bytes, MPI_BYTE, messages[i].rank, 0, c->data, request);
        }
    pthread_mutex_unlock(&c->mutex);
}

/* MPI transfers large messages only while one of its functions runs. */
static void mpi_progress(nm_comm *comm)
{
    mpi_comm *c = (mpi_comm *)comm;
    int done = 1;
    pthread_mutex_lock(&c->mutex);
    if (c->n_pending)
        MPI_Testall((int)c->n_pending, c->pending, &done, MPI_STATUSES_IGNORE);
    if (done)
        c->n_pending = 0;
    pthread_mutex_unlock(&c->mutex);
}

static nm_status mpi_exchange(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err)
{
    mpi_comm *c = (mpi_comm *)comm;
    mpi_post(comm, messages, n);
    NM_TRY(wait_for(c, c->pending, (int)c->n_pending, err));
    c->n_pending = 0;
    return NM_OK;
}

static bool all_finished(const mpi_comm *c)
{
    for (int32_t rank = 0; rank < c->base.size; rank++)
        if (!c->finished[rank])
            return false;
    return true;
}

/* Waits until all ranks have finished, or all but the lost one; after a failure, at most `timeout`
 * seconds. */
static void await_results(mpi_comm *c)
{
    double start = nm_clock();
    for (int64_t polls = 0;; polls++) {
        pthread_mutex_lock(&c->mutex);
        receive_control(c);
        bool ready = all_finished(c) || (c->failed && nm_clock() - start > c->timeout);
        if (c->lost >= 0) {
            int32_t missing = 0;
            for (int32_t rank = 0; rank < c->base.size; rank++)
                missing += !c->finished[rank];
            ready |= missing <= 1;
        }
        pthread_mutex_unlock(&c->mutex);
        if (ready)
            return;
        pause_polling(polls);
    }
}

static nm_status mpi_finish(nm_comm *comm, nm_status status, bool *prints, nm_error *err)
{
    mpi_comm *c = (mpi_comm *)comm;
    pthread_mutex_lock(&c->mutex);
    result *own = &c->results[comm->rank];
    *own = (result){.status = (int32_t)status, .lost = c->lost, .own = !c->failure_returned};
    if (status != NM_OK)
        snprintf(own->text, sizeof own->text, "%s", err->text);
    c->finished[comm->rank] = true;
    c->failed |= is_failure((int32_t)status);
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank)
            MPI_Isend(own, (int)sizeof *own, MPI_BYTE, rank, TAG_RESULT, c->control, &c->sent[rank]);
    pthread_mutex_unlock(&c->mutex);
    await_results(c);
    pthread_mutex_lock(&c->mutex);
    c->stopping = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    c->thread_started = false;
    int32_t reporter = 0;
    while (!c->finished[reporter])
        reporter++;
    c->collective = all_finished(c);
    for (int32_t rank = 0; rank < comm->size; rank++)
        c->collective &= c->results[rank].status == (int32_t)status && c->results[rank].own;
    c->prints = *prints = reporter == comm->rank;
    if (c->failed)
        status = failure(c, err);
    c->exit_code = (int)status;
    return status;
}

static void fail_to_end(void *user)
{
    const mpi_comm *c = user;
    nm_error err;
    const int32_t size = c->base.size, previous = (c->base.rank + size - 1) % size;
    if (c->ended)
        nm_fail(&err, NM_IO, "the work is done, but MPI could not be finalized within %g seconds",
                c->timeout);
    else
        nm_fail(&err, NM_IO, "the work is done, but rank %d has not responded for %g seconds", previous,
                c->timeout);
    c->give_up(&err);
}

/* Waits for the requests without using a core. */
static void await_requests(MPI_Request *requests, int n)
{
    int done = 0;
    for (int64_t polls = 0; !done; polls++) {
        MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (!done)
            pause_polling(polls);
    }
}

static void finalize(mpi_comm *c)
{
    MPI_Request last[2];
    MPI_Isend(NULL, 0, MPI_BYTE, (c->base.rank + 1) % c->base.size, TAG_END, c->control, &last[0]);
    for (int64_t polls = 0; !c->ended; polls++) { /* receives the heartbeats that were sent before */
        receive_control(c);
        if (!c->ended)
            pause_polling(polls);
    }
    last[1] = c->heartbeat_request;
    await_requests(last, 2);
    await_requests(c->sent, c->base.size);
    MPI_Comm_free(&c->data);
    MPI_Comm_free(&c->control);
    MPI_Finalize();
}

/* After a failure, other ranks may wait inside MPI, so the program ends with MPI_Abort. The rank that reports
 * the failure calls it first, half a second after it has printed the message, because MPICH's launcher loses
 * what it has not read until then; the others wait for that. */
static void mpi_free(nm_comm *comm)
{
    mpi_comm *c = (mpi_comm *)comm;
    if (c->collective) {
        nm_deadline end;
        nm_deadline_start(&end, c->timeout, fail_to_end, c);
        finalize(c);
        nm_deadline_stop(&end);
    } else {
        const struct timespec forwarding = {.tv_nsec = 500000000}, others = {.tv_sec = 5};
        nanosleep(c->prints ? &forwarding : &others, NULL);
        MPI_Abort(MPI_COMM_WORLD, c->exit_code);
    }
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->wake);
    NM_FREE(c->pending, c->results, c->sent, c->finished, c);
}

static const nm_comm_type nm_comm_mpi = {.name = "mpi",
                                         .post = mpi_post,
                                         .progress = mpi_progress,
                                         .exchange = mpi_exchange,
                                         .finish = mpi_finish,
                                         .free = mpi_free};

/* A program that was started by the launcher of another MPI library finds only itself. */
static nm_status fail_unconnected(long launched, nm_error *err)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int bytes;
    MPI_Get_library_version(library, &bytes);
    library[strcspn(library, ",\n")] = 0; /* "MPICH Version:\t4.0.2\n...", "Open MPI v4.1.4, package: ..." */
    for (char *at = library; *at; at++)
        *at = *at == '\t' ? ' ' : *at;
    MPI_Finalize();
    return nm_fail(
        err, NM_UNSUPPORTED,
        "the launcher has started %ld processes, but MPI does not connect them: this program uses %s; "
        "start it with the mpiexec of this library",
        launched, library);
}

static void fail_to_connect(void *user)
{
    const nm_comm_mpi_setup *setup = user;
    nm_error err;
    nm_fail(&err, NM_IO,
            "MPI has not connected the processes within %g seconds: one of them does not respond",
            setup->timeout);
    setup->give_up(&err);
}

static nm_status initialize(nm_error *err)
{
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return nm_fail(err, NM_UNSUPPORTED, "MPI cannot be initialized");
    if (provided >= MPI_THREAD_SERIALIZED)
        return NM_OK;
    MPI_Finalize();
    return nm_fail(err, NM_UNSUPPORTED, "the MPI library does not support threads (MPI_THREAD_SERIALIZED)");
}

static void duplicate_world(MPI_Comm *copy)
{
    MPI_Request request;
    MPI_Comm_idup(MPI_COMM_WORLD, copy, &request);
    await_requests(&request, 1);
}

static nm_status connect_ranks(nm_comm **out, const nm_comm_mpi_setup *setup, nm_error *err)
{
    int rank, size;
    NM_TRY(initialize(err));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1 && setup->launched > 1)
        return fail_unconnected(setup->launched, err);
    mpi_comm *c = nm_allocate(sizeof *c);
    *c = (mpi_comm){.base = {.type = &nm_comm_mpi, .rank = rank, .size = size},
                    .timeout = setup->timeout,
                    .give_up = setup->give_up,
                    .lost = -1,
                    .heartbeat_request = MPI_REQUEST_NULL};
    c->results = nm_allocate((size_t)size * sizeof *c->results);
    c->sent = nm_allocate((size_t)size * sizeof *c->sent);
    for (int32_t i = 0; i < size; i++)
        c->sent[i] = MPI_REQUEST_NULL;
    c->finished = nm_allocate((size_t)size * sizeof *c->finished);
    duplicate_world(&c->data);
    duplicate_world(&c->control);
    pthread_mutex_init(&c->mutex, NULL);
    nm_deadline_init_condition(&c->wake);
    c->last_heartbeat = nm_clock();
    *out = &c->base;
    return NM_OK;
}

static nm_status open_mpi(nm_comm **out, const nm_comm_mpi_setup *setup, nm_error *err)
{
    nm_comm_mpi_setup copy = *setup;
    nm_deadline start;
    nm_deadline_start(&start, setup->timeout, fail_to_connect, &copy);
    nm_status status = connect_ranks(out, setup, err);
    nm_deadline_stop(&start);
    NM_TRY(status);
    mpi_comm *c = (mpi_comm *)*out;
    if (pthread_create(&c->thread, NULL, run_heartbeat, c))
        nm_panic(__FILE__, __LINE__, "a thread cannot be started");
    c->thread_started = true;
    return NM_OK;
}

const nm_comm_mpi_module_type nm_comm_mpi_module = {.version = NORMA_VERSION, .open = open_mpi};
