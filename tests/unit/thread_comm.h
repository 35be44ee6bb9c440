/* Ranks that are threads: a message is a copy into the queue of its pair of ranks. */
#ifndef THREAD_COMM_H
#define THREAD_COMM_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/comm.h"

enum { MAX_RANKS = 9, MAX_QUEUE = 256, MAX_POSTED = 4096 };

typedef struct queue {
    struct {
        void *data;
        size_t bytes;
    } items[MAX_QUEUE];
    size_t sent, received;
} queue;

typedef struct hub {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    queue queues[MAX_RANKS][MAX_RANKS]; /* from, to */
} hub;

typedef struct thread_comm {
    nm_comm base;
    hub *hub;
    nm_comm_message posted[MAX_POSTED]; /* receives that are not complete */
    size_t n_posted;
} thread_comm;

/* Sends at once; receives wait for the exchange. */
static void post_threads(nm_comm *comm, const nm_comm_message *messages, size_t n)
{
    thread_comm *c = (thread_comm *)comm;
    hub *h = c->hub;
    pthread_mutex_lock(&h->mutex);
    for (size_t i = 0; i < n; i++) {
        if (messages[i].receive) {
            NM_ASSERT(c->n_posted < MAX_POSTED);
            c->posted[c->n_posted++] = messages[i];
            continue;
        }
        queue *q = &h->queues[comm->rank][messages[i].rank];
        NM_ASSERT(q->sent - q->received < MAX_QUEUE);
        void *copy = malloc(messages[i].bytes + 1);
        memcpy(copy, messages[i].data, messages[i].bytes);
        q->items[q->sent % MAX_QUEUE].data = copy;
        q->items[q->sent++ % MAX_QUEUE].bytes = messages[i].bytes;
    }
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

static void progress_threads(nm_comm *comm)
{
    (void)comm;
}

static nm_status exchange_threads(nm_comm *comm, const nm_comm_message *messages, size_t n, nm_error *err)
{
    (void)err;
    thread_comm *c = (thread_comm *)comm;
    hub *h = c->hub;
    post_threads(comm, messages, n);
    pthread_mutex_lock(&h->mutex);
    for (size_t i = 0; i < c->n_posted; i++) {
        queue *q = &h->queues[c->posted[i].rank][comm->rank];
        while (q->sent == q->received)
            pthread_cond_wait(&h->changed, &h->mutex);
        size_t at = q->received++ % MAX_QUEUE;
        NM_ASSERT(q->items[at].bytes == c->posted[i].bytes);
        memcpy(c->posted[i].data, q->items[at].data, c->posted[i].bytes);
        free(q->items[at].data);
    }
    c->n_posted = 0;
    pthread_mutex_unlock(&h->mutex);
    return NM_OK;
}

static const nm_comm_type threads_type = {
    .name = "threads", .post = post_threads, .progress = progress_threads, .exchange = exchange_threads};

/* Free with free. */
static inline hub *hub_create(void)
{
    hub *h = calloc(1, sizeof *h);
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    return h;
}

#endif
