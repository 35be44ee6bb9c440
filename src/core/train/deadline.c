#include "train/deadline.h"

#include <math.h>
#include <time.h>

#include "base/clock.h"

void nm_deadline_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec nm_deadline_after(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)seconds;
    at.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void *wait_until(void *argument)
{
    static const double slice = 0.25,
                        longest = 1; /* seconds; a slice lasts longer if the process was stopped */
    nm_deadline *d = argument;
    pthread_mutex_lock(&d->mutex);
    while (!d->stopping && d->left > 0) {
        const struct timespec until = nm_deadline_after(fmin(slice, d->left));
        const double before = nm_clock();
        pthread_cond_timedwait(&d->wake, &d->mutex, &until);
        d->left -= fmin(nm_clock() - before, longest);
    }
    const bool reached = !d->stopping;
    pthread_mutex_unlock(&d->mutex);
    if (reached)
        d->reached(d->user);
    return NULL;
}

void nm_deadline_start(nm_deadline *deadline, double seconds, void (*reached)(void *user), void *user)
{
    *deadline = (nm_deadline){.left = seconds, .reached = reached, .user = user};
    pthread_mutex_init(&deadline->mutex, NULL);
    nm_deadline_init_condition(&deadline->wake);
    if (pthread_create(&deadline->thread, NULL, wait_until, deadline))
        nm_panic(__FILE__, __LINE__, "a thread cannot be started");
}

void nm_deadline_stop(nm_deadline *deadline)
{
    pthread_mutex_lock(&deadline->mutex);
    deadline->stopping = true;
    pthread_cond_signal(&deadline->wake);
    pthread_mutex_unlock(&deadline->mutex);
    pthread_join(deadline->thread, NULL);
    pthread_mutex_destroy(&deadline->mutex);
    pthread_cond_destroy(&deadline->wake);
}
