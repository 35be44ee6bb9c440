#include "train/lockstep.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A coroutine is a thread that runs only while `running` is its number. */
typedef struct lane {
    nm_norm_joiner joiner; /* first member: the joiner of a call is its lane */
    nm_lockstep *lockstep;
    int32_t number;
    pthread_t thread;
    pthread_cond_t wake;
    bool started, finished; /* the thread is started; the pass is finished */
    void *grads, *statistics;
    double *rows; /* [n_norms][NM_NORM_CAPACITY] */
} lane;

enum { SCHEDULER = -1, ENDING = -2 };

struct nm_lockstep {
    nm_shard_tree *tree;
    lane *lanes;
    nm_shard_statistics *waiting; /* [n]: the statistics that each lane joins */
    int32_t n;
    int32_t running; /* a lane, SCHEDULER or ENDING */
    pthread_mutex_t mutex;
    pthread_cond_t scheduler;
    void (*pass)(void *user, int32_t i, nm_norm_joiner *joiner);
    void *user;
};

/* Waits until this lane may run; the caller holds the mutex. False: the thread must end. */
static bool await_turn(lane *l)
{
    while (l->lockstep->running != l->number && l->lockstep->running != ENDING)
        pthread_cond_wait(&l->wake, &l->lockstep->mutex);
    return l->lockstep->running != ENDING;
}

static void yield_to_scheduler(nm_lockstep *lockstep)
{
    lockstep->running = SCHEDULER;
    pthread_cond_signal(&lockstep->scheduler);
}

static void join(nm_norm_joiner *joiner, nm_norm_call *call, int n, void *const *vectors,
                 const nm_norm_combination *combinations)
{
    lane *l = (lane *)joiner;
    nm_shard_statistics *s = &l->lockstep->waiting[l->number];
    NM_ASSERT(n <= NM_JOINED_VECTORS);
    if (joiner->failed)
        return;
    *s = (nm_shard_statistics){.norm = call->norm, .n = n, .rows = call->x.rows, .targets = call->n_targets};
    memcpy(s->vectors, vectors, (size_t)n * sizeof *vectors);
    memcpy(s->combinations, combinations, (size_t)n * sizeof *combinations);
    pthread_mutex_lock(&l->lockstep->mutex);
    yield_to_scheduler(l->lockstep);
    await_turn(l);
    pthread_mutex_unlock(&l->lockstep->mutex);
    if (joiner->failed)
        return;
    /* first join of this call: n_targets still counts the targets of the shard */
    if (!(call->joined_rows > 0))
        call->n_targets = s->targets;
    call->joined_rows = s->rows;
}

static void *run_lane(void *argument)
{
    lane *l = argument;
    nm_lockstep *lockstep = l->lockstep;
    pthread_mutex_lock(&lockstep->mutex);
    while (await_turn(l)) {
        pthread_mutex_unlock(&lockstep->mutex);
        lockstep->pass(lockstep->user, l->number, &l->joiner);
        pthread_mutex_lock(&lockstep->mutex);
        l->finished = true;
        yield_to_scheduler(lockstep);
    }
    pthread_mutex_unlock(&lockstep->mutex);
    return NULL;
}

static size_t statistics_bytes(const nm_params *params)
{
    return params->n_statistics * nm_dtype_bytes(params->backend->dtype);
}

nm_status nm_lockstep_create(nm_lockstep **out, nm_shard_tree *tree, nm_error *err)
{
    const nm_params *params = tree->params;
    const nm_shard_range own = nm_shard_range_of(tree->n_shards, tree->comm);
    nm_lockstep *lockstep = *out = nm_allocate(sizeof *lockstep);
    *lockstep = (nm_lockstep){.tree = tree, .n = (int32_t)(own.last - own.first), .running = SCHEDULER};
    lockstep->lanes = nm_allocate((size_t)lockstep->n * sizeof *lockstep->lanes);
    lockstep->waiting = nm_allocate((size_t)lockstep->n * sizeof *lockstep->waiting);
    pthread_mutex_init(&lockstep->mutex, NULL);
    pthread_cond_init(&lockstep->scheduler, NULL);
    for (int32_t i = 0; i < lockstep->n; i++) {
        lane *l = &lockstep->lanes[i];
        *l = (lane){.joiner.join = join, .lockstep = lockstep, .number = i};
        pthread_cond_init(&l->wake, NULL);
        l->rows = nm_allocate(params->n_norms * NM_NORM_CAPACITY * sizeof *l->rows);
        NM_TRY(nm_backend_alloc(params->backend, nm_params_bytes(params), &l->grads, err));
        NM_TRY(nm_backend_alloc(params->backend, statistics_bytes(params), &l->statistics, err));
        l->started = !pthread_create(&l->thread, NULL, run_lane, l);
        if (!l->started)
            return nm_fail(err, NM_MEMORY, "a thread for shard %d of %d cannot be started", i + 1,
                           lockstep->n);
    }
    return nm_shard_tree_open_join(tree, err);
}

void nm_lockstep_free(nm_lockstep *lockstep)
{
    if (!lockstep)
        return;
    pthread_mutex_lock(&lockstep->mutex);
    lockstep->running = ENDING;
    for (int32_t i = 0; i < lockstep->n; i++)
        if (lockstep->lanes[i].started)
            pthread_cond_signal(&lockstep->lanes[i].wake);
    pthread_mutex_unlock(&lockstep->mutex);
    for (int32_t i = 0; i < lockstep->n; i++) {
        lane *l = &lockstep->lanes[i];
        if (l->started)
            pthread_join(l->thread, NULL);
        if (!l->lockstep) /* nm_lockstep_create has failed before it */
            continue;
        pthread_cond_destroy(&l->wake);
        if (l->grads)
            nm_backend_dealloc(lockstep->tree->params->backend, l->grads);
        if (l->statistics)
            nm_backend_dealloc(lockstep->tree->params->backend, l->statistics);
        free(l->rows);
    }
    pthread_mutex_destroy(&lockstep->mutex);
    pthread_cond_destroy(&lockstep->scheduler);
    NM_FREE(lockstep->lanes, lockstep->waiting, lockstep);
}

/* Runs the lane until it joins or its pass ends. */
static void resume(lane *l)
{
    nm_lockstep *lockstep = l->lockstep;
    nm_params *params = lockstep->tree->params;
    nm_params_bind(params, l->grads, l->statistics);
    nm_params_set_rows(params, l->rows);
    pthread_mutex_lock(&lockstep->mutex);
    lockstep->running = l->number;
    pthread_cond_signal(&l->wake);
    while (lockstep->running != SCHEDULER)
        pthread_cond_wait(&lockstep->scheduler, &lockstep->mutex);
    pthread_mutex_unlock(&lockstep->mutex);
    nm_params_get_rows(params, l->rows);
}

nm_status nm_lockstep_run(nm_lockstep *lockstep, void (*pass)(void *user, int32_t i, nm_norm_joiner *joiner),
                          void *user, nm_error *err)
{
    nm_params *params = lockstep->tree->params;
    nm_status status = NM_OK;
    int32_t n_finished = 0;
    lockstep->pass = pass;
    lockstep->user = user;
    for (int32_t i = 0; i < lockstep->n; i++) {
        lane *l = &lockstep->lanes[i];
        l->finished = l->joiner.failed = false;
        nm_params_zero_grads(params, l->grads);
        memset(l->rows, 0, params->n_norms * NM_NORM_CAPACITY * sizeof *l->rows);
    }
    while (n_finished < lockstep->n) {
        for (int32_t i = 0; i < lockstep->n; i++) {
            if (lockstep->lanes[i].finished)
                continue;
            resume(&lockstep->lanes[i]);
            n_finished += lockstep->lanes[i].finished;
        }
        bool failed = n_finished > 0; /* a pass has failed if others have not finished */
        if (!n_finished) {
            status = nm_shard_tree_join(lockstep->tree, lockstep->waiting, err);
            failed = status != NM_OK;
        }
        for (int32_t i = 0; failed && i < lockstep->n; i++)
            lockstep->lanes[i].joiner.failed |= !lockstep->lanes[i].finished;
    }
    nm_params_bind(params, params->grads, params->statistics);
    return status;
}

void nm_lockstep_load(nm_lockstep *lockstep, int32_t i)
{
    nm_params *params = lockstep->tree->params;
    const lane *l = &lockstep->lanes[i];
    nm_backend_copy(params->backend, params->grads, l->grads, nm_params_bytes(params));
    if (params->n_statistics)
        nm_backend_copy(params->backend, params->statistics, l->statistics, statistics_bytes(params));
    nm_params_set_rows(params, l->rows);
}
