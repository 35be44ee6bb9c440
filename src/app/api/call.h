/* Calls of a model that may be interrupted: by a request for all calls in progress, or by a function that the
 * thread of the call has set. */
#pragma once

#include <pthread.h>

#include "base/stop.h"

/* Decides whether the call of a thread continues. */
typedef struct nm_call_question {
    pthread_t thread;
    bool (*proceed)(void *user);
    void *user;
} nm_call_question;

/* The requests to stop of one model, shared by its calls. */
typedef struct nm_call_requests {
    atomic_int stops; /* number of requests so far */
    pthread_mutex_t mutex;
    nm_call_question *questions; /* [n], one per thread */
    size_t n, capacity;
} nm_call_requests;

void nm_call_requests_init(nm_call_requests *requests);
void nm_call_requests_release(nm_call_requests *requests);
/* Ends the calls in progress. Async-signal-safe. */
void nm_call_requests_stop(nm_call_requests *requests);
/* Sets the function for later calls of this thread; NULL: none. */
void nm_call_requests_set_proceed(nm_call_requests *requests, bool (*proceed)(void *user), void *user);

/* A call in progress; must not be moved. */
typedef struct nm_call {
    nm_stop stop; /* for the computations of the call */
    nm_call_requests *requests;
    int stops_before;          /* requests->stops when the call began */
    nm_call_question question; /* proceed NULL: none */
    double next;               /* time of the next question */
} nm_call;

void nm_call_begin(nm_call *call, nm_call_requests *requests);
