#include "experiment/background_scoring.h"

#include "base/clock.h"

static void *score(void *argument)
{
    nm_background_scoring *s = argument;
    double begin = nm_clock();
    s->status = nm_run_result_measure(&s->result, s->job->folder, s->task, s->options, &s->measurement,
                                      s->stop, &s->err);
    s->seconds = nm_clock() - begin;
    atomic_store(&s->done, true);
    return NULL;
}

nm_status nm_background_scoring_start(nm_background_scoring *s, const nm_run_queue *queue, nm_run_job *job,
                                      const nm_run_measurement *measurement, nm_error *err)
{
    *s = (nm_background_scoring){
        .task = queue->task, .measurement = *measurement, .stop = queue->stop, .result = job->result};
    NM_TRY(nm_run_result_read_log(&s->result, job->folder, err));
    NM_TRY(nm_run_queue_options(queue, job->variant, job->result.seed, &s->options, err));
    s->job = job;
    if (!pthread_create(&s->thread, NULL, score, s))
        return NM_OK;
    s->job = NULL;
    nm_options_free(s->options);
    return nm_fail(err, NM_MEMORY, "cannot start a thread that scores the run");
}

nm_run_job *nm_background_scoring_collect(nm_background_scoring *s, bool wait, nm_error *err)
{
    nm_run_job *job = s->job;
    if (!job || !(wait || atomic_load(&s->done)))
        return NULL;
    pthread_join(s->thread, NULL);
    s->job = NULL;
    if (s->status == NM_OK)
        s->status = nm_run_result_save(&s->result, job->folder, job->key, &s->measurement, &s->err);
    if (s->status == NM_OK) {
        job->result = s->result;
        job->score_seconds = s->seconds;
    } else {
        *err = s->err;
        nm_run_result_release(&s->result);
    }
    return job;
}
