/* A limit for calls that wait for other ranks and cannot be interrupted, such as MPI_Init and MPI_Finalize: a
 * thread calls a function, which ends the process, when the limit has passed. Time in which this process
 * itself is stopped does not count. */
#pragma once

#include <pthread.h>

#include "norma/status.h"

typedef struct nm_deadline {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    double left; /* seconds */
    bool stopping;
    void (*reached)(void *user); /* does not return */
    void *user;
} nm_deadline;

/* A condition whose times are those of CLOCK_MONOTONIC: the system's clock may be set back by hours. */
void nm_deadline_init_condition(pthread_cond_t *condition);
/* The time that lies the seconds after now. */
struct timespec nm_deadline_after(double seconds);
/* Starts the thread; nm_deadline_stop ends it. The deadline must not move in between. */
void nm_deadline_start(nm_deadline *deadline, double seconds, void (*reached)(void *user), void *user);
void nm_deadline_stop(nm_deadline *deadline);
