/* Scoring of trained runs while other runs of the comparison are still training. One run at a time is scored,
 * in a separate thread, so that the caller can still start, observe and stop the other runs. Only the
 * caller's thread accesses the runs. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "experiment/run_queue.h"

typedef struct nm_background_scoring {
    nm_run_job *job; /* being scored; NULL: none */
    pthread_t thread;
    atomic_bool done; /* the thread has ended; until then it uses the members below */
    const nm_task_type *task;
    nm_run_measurement measurement;
    const nm_stop *stop;
    nm_options *options; /* of the run */
    nm_run_result result;
    double seconds; /* of scoring */
    nm_status status;
    nm_error err;
} nm_background_scoring;

/* Starts to score a run whose training has finished; no run is being scored. NM_MEMORY if the thread cannot
 * be created; errors of nm_run_result_read_log and nm_run_queue_options. */
nm_status nm_background_scoring_start(nm_background_scoring *scoring, const nm_run_queue *queue,
                                      nm_run_job *job, const nm_run_measurement *measurement, nm_error *err);
/* If the scoring has ended, or with `wait` after its end: stores the result in the run, writes its test.json,
 * and returns the run. After a failure, which *err describes, the run has no result: NM_INTERRUPTED if
 * queue->stop was set. NULL: no scoring has ended. */
nm_run_job *nm_background_scoring_collect(nm_background_scoring *scoring, bool wait, nm_error *err);
