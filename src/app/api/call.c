#include "api/call.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

static const double question_seconds = 0.02; /* between two questions of a call */

void nm_call_requests_init(nm_call_requests *self)
{
    *self = (nm_call_requests){0};
    pthread_mutex_init(&self->mutex, NULL);
}

void nm_call_requests_release(nm_call_requests *self)
{
    free(self->questions);
    pthread_mutex_destroy(&self->mutex);
}

void nm_call_requests_stop(nm_call_requests *self)
{
    atomic_fetch_add(&self->stops, 1);
}

/* The question of this thread, or the index after the last one. The mutex is locked. */
static size_t question_index(const nm_call_requests *self)
{
    size_t i = 0;
    while (i < self->n && !pthread_equal(self->questions[i].thread, pthread_self()))
        i++;
    return i;
}

void nm_call_requests_set_proceed(nm_call_requests *self, bool (*proceed)(void *user), void *user)
{
    pthread_mutex_lock(&self->mutex);
    size_t i = question_index(self);
    if (proceed) {
        if (i == self->n) {
            NM_GROW(self->questions, self->n, self->capacity);
            self->n++;
        }
        self->questions[i] = (nm_call_question){pthread_self(), proceed, user};
    } else if (i < self->n) {
        self->questions[i] = self->questions[--self->n];
    }
    pthread_mutex_unlock(&self->mutex);
}

/* The function is called by the thread that set it only. Its answer `false` becomes a request, which other
 * threads of the call read. */
static bool is_stopped(void *state)
{
    nm_call *call = state;
    if (atomic_load_explicit(&call->requests->stops, memory_order_relaxed) != call->stops_before)
        return true;
    if (!call->question.proceed || !pthread_equal(call->question.thread, pthread_self()))
        return false;
    double now = nm_clock();
    if (now < call->next)
        return false;
    if (!call->question.proceed(call->question.user))
        call->stop.requested = 1;
    call->next = nm_clock() + question_seconds;
    return call->stop.requested;
}

void nm_call_begin(nm_call *call, nm_call_requests *requests)
{
    *call = (nm_call){.stop = {.poll = is_stopped, .state = call},
                      .requests = requests,
                      .stops_before = atomic_load(&requests->stops),
                      .next = nm_clock() + question_seconds};
    pthread_mutex_lock(&requests->mutex);
    size_t i = question_index(requests);
    if (i < requests->n)
        call->question = requests->questions[i];
    pthread_mutex_unlock(&requests->mutex);
}
