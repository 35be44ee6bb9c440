#include "experiment/study_trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "task/tasks.h"
#include "train/schedule.h"
#include "train/train_options.h"

/* The queue stops a run by SIGINT and waits for its checkpoint: enough time that the budget is kept. */
static const double stop_seconds = 1;

static void set_number(nm_settings *settings, const char *key, double value)
{
    NM_AUTO_FREE char *text = nm_format("%.9g", value);
    nm_settings_add(settings, key, text);
}

static void set_unless_equal(nm_settings *settings, const nm_options *options, const char *key,
                             const char *value)
{
    NM_AUTO_FREE char *old = nm_options_get(options, key);
    if (old && strcmp(old, value))
        nm_settings_add(settings, key, value);
}

void nm_study_set_equal_lengths(nm_settings *settings, const nm_options *options)
{
    static const char *const ends[][2] = {{"train.epochs", "0"},
                                          {"train.seconds", "0"},
                                          {"train.patience", "0"},
                                          {"schedule.early_stopping", "false"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        set_unless_equal(settings, options, ends[i][0], ends[i][1]);
}

/* Of all runs of a study; their validation scores are compared. */
static void set_study(nm_settings *settings, const nm_options *options)
{
    nm_study_set_equal_lengths(settings, options);
    set_unless_equal(settings, options, "train.score", "true");
    set_unless_equal(settings, options, "train.keep_last", "1");
    nm_settings_add(settings, "train.updates", "1000"); /* for checks; each run has its own number */
    const nm_train_config *train = nm_options_find(options, "train");
    if (!train->validate_examples)
        nm_settings_add(settings, "train.validate_examples", "500"); /* of the score */
}

nm_status nm_study_trainer_open(nm_study_trainer *t, double *lr, int64_t *longest, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    NM_TRY(nm_run_queue_options(&t->experiment->queue, NULL, 1, &options, err));
    set_study(&t->experiment->queue.settings, options);
    *lr = ((const nm_schedule_config *)nm_options_find(options, "schedule"))->lr;
    t->perplexity = t->experiment->queue.task == &nm_task_lm && /* translations are scored with BLEU */
                    nm_task_has_perplexity(&nm_task_lm, options);
    t->scored_validations =
        ((const nm_train_config *)nm_options_find(options, "train"))->best_by == NM_BEST_BY_SCORE;
    NM_TRY(nm_run_planned_updates(t->experiment->queue.task, options, longest, err));
    NM_TRY(nm_experiment_begin(t->experiment, err));
    return nm_experiment_share_cores(t->experiment, 10000, err);
}

/* Of learning rates, which are compared by loss, or measuring what such runs take. */
static bool is_plain(const nm_trial *trial)
{
    return !strcmp(trial->row.phase, "rates") ||
           (!strcmp(trial->row.phase, "speed") && trial->row.seed == NM_PLAIN_SEED);
}

static bool is_scored(const nm_trial *trial)
{
    return !is_plain(trial) && strcmp(trial->row.phase, "select") != 0;
}

static double value_of(const nm_study_trainer *t, double score)
{
    return t->perplexity ? -100 * log(score) : score;
}

static void keep_draws(nm_study_trainer *t, nm_trial *trial, const nm_run_result *result)
{
    size_t n = (size_t)nm_bootstrap_default().n_resamples;
    double *draws = nm_allocate((n + 1) * sizeof *draws);
    for (size_t k = 0; k < n; k++)
        draws[k] = value_of(t, result->draws[k]);
    NM_APPEND(t->draws, t->n_draws, t->draws_capacity, draws);
    trial->draws = draws;
    trial->n_draws = n;
}

static void set_value(nm_study_trainer *t, nm_trial *trial, nm_run_result *result)
{
    nm_planned_run *row = &trial->row;
    bool speed = !strcmp(row->phase, "speed") && isfinite(result->update_seconds);
    row->train_seconds = speed ? result->update_seconds * (double)row->updates : result->train_seconds;
    row->loss = result->nll;
    if (result->measured)
        snprintf(t->score, sizeof t->score, "%s", result->title);
    if (is_scored(trial))
        row->value = value_of(t, result->value);
    else if (t->perplexity || (is_plain(trial) && !t->scored_validations))
        row->value = -100 * result->nll;
    else
        row->value = result->valid_score;
    if (*row->phase == 'c' && result->measured)
        keep_draws(t, trial, result);
}

/* Reports a trial that has ended, once. */
static void finish(nm_study_trainer *t, const nm_run_job *job)
{
    nm_trial *trial = t->trials[job - t->experiment->queue.jobs];
    nm_planned_run *row = &trial->row;
    nm_error err;
    if (!strcmp(row->state, "finished") || !strcmp(row->state, "failed") || t->status != NM_OK)
        return;
    nm_run_result *result = (nm_run_result *)&job->result;
    if (!job->result.exit_code && nm_run_result_read_log(result, job->folder, &err) != NM_OK)
        nm_run_result_fail(result, &err);
    row->took = job->seconds + job->score_seconds;
    row->score_seconds = job->score_seconds;
    if (result->exit_code) {
        row->state = "failed";
        snprintf(trial->note, sizeof trial->note, "%.255s", result->failure);
        row->note = trial->note;
    } else {
        row->state = "finished";
        set_value(t, trial, result);
        row->took = row->took > 0 ? row->took : row->train_seconds;
    }
    t->status = t->finished(t->study, trial, &t->err);
}

static void on_started(void *user, const nm_run_job *job)
{
    nm_study_trainer *t = user;
    t->started(t->study, t->trials[job - t->experiment->queue.jobs]);
}

static void on_finished(void *user, const nm_run_job *job)
{
    nm_study_trainer *t = user;
    if (job->result.exit_code || !is_scored(t->trials[job - t->experiment->queue.jobs]))
        finish(t, job);
}

static void on_scored(void *user, const nm_run_job *job)
{
    finish(user, job);
}

static void on_tick(void *user, const nm_run_queue *queue)
{
    nm_study_trainer *t = user;
    (void)queue;
    if (nm_clock() > t->end && !t->stop->requested)
        t->timed_out = true;
    if (t->timed_out || t->status != NM_OK)
        t->stop->requested = 1;
}

static nm_variant variant_of(const nm_study_trainer *t, const nm_trial *trial, bool has_length)
{
    const nm_variant *base = &t->experiment->points.list[trial->variant];
    const nm_planned_run *row = &trial->row;
    bool speed = !strcmp(row->phase, "speed");
    int64_t whole = speed ? row->updates : *t->updates;
    nm_variant variant = {
        .name = nm_duplicate(base->name), .origin = trial->variant, .point = !is_scored(trial)};
    nm_settings_add_all(&variant.settings, &base->settings);
    nm_settings_add_all(&variant.excluded, &base->excluded);
    if (t->extra)
        nm_settings_add_all(&variant.settings, t->extra);
    if (isfinite(row->lr))
        set_number(&variant.settings, "schedule.lr", row->lr);
    set_number(&variant.settings, "train.updates", (double)row->updates);
    /* The speed of a comparison (no t->updates) includes the time of a validation between updates. */
    set_number(&variant.settings, "train.validate_every", (double)(t->updates ? whole : whole / 2));
    if (is_plain(trial) && !t->scored_validations) {
        nm_settings_add(&variant.excluded, "train.score", "");
        nm_settings_add(&variant.excluded, "train.validate_examples", "");
        nm_settings_add(&variant.settings, "train.score", "false");
        nm_settings_add(&variant.settings, "train.batch_loss", "false");
    }
    set_number(&variant.settings, "train.log_every", (double)(whole / 20 > 1 ? whole / 20 : 1));
    if (has_length)
        set_number(&variant.settings, "schedule.updates", (double)whole);
    return variant;
}

static nm_status add_jobs(nm_study_trainer *t, nm_error *err)
{
    nm_run_queue *queue = &t->experiment->queue;
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    NM_TRY(nm_run_queue_options(queue, &t->experiment->points.list[0], 1, &options, err));
    bool has_length = nm_schedule_has_length(nm_options_find(options, "schedule"));
    t->variants = nm_allocate((t->n + 1) * sizeof *t->variants);
    for (size_t i = 0; i < t->n; i++) {
        t->variants[i] = variant_of(t, t->trials[i], has_length);
        NM_GROW(queue->jobs, queue->n, queue->capacity);
        nm_run_job *job = &queue->jobs[queue->n++];
        char *folder = nm_path_join(t->experiment->folder, t->trials[i]->row.folder);
        *job = (nm_run_job){
            .variant = &t->variants[i], .folder = folder, .log_path = nm_format("%s.txt", folder)};
        job->result = (nm_run_result){
            .variant = t->variants[i].name, .seed = t->trials[i]->row.seed, .p = NAN, .p_holm = NAN};
    }
    NM_AUTO_FREE char *speed = nm_path_join(t->experiment->folder, "speed");
    return nm_folder_create(speed, err);
}

static void remove_jobs(nm_study_trainer *t)
{
    nm_run_queue_clear(&t->experiment->queue);
    for (size_t i = 0; i < t->n; i++) {
        free(t->variants[i].name);
        nm_settings_release(&t->variants[i].settings);
        nm_settings_release(&t->variants[i].excluded);
    }
    free(t->variants);
    t->variants = NULL;
    t->n = 0;
}

static bool needs_score(const nm_study_trainer *t, size_t i)
{
    const nm_run_job *job = &t->experiment->queue.jobs[i];
    return is_scored(t->trials[i]) && !job->result.measured && !job->result.exit_code &&
           job->state == NM_RUN_FINISHED;
}

static nm_status train_jobs(nm_study_trainer *t, nm_error *err)
{
    nm_run_queue *queue = &t->experiment->queue;
    NM_TRY(nm_experiment_load(t->experiment, err));
    for (size_t i = 0; i < t->n; i++)
        if (queue->jobs[i].state == NM_RUN_FINISHED) { /* killed between its end and its line in the queue */
            t->started(t->study, t->trials[i]);
            finish(t, &queue->jobs[i]);
        }
    NM_TRY(nm_experiment_train(t->experiment, err));
    for (size_t i = 0; i < t->n; i++)
        if (needs_score(t, i))
            NM_TRY(nm_experiment_score_run(t->experiment, &queue->jobs[i], err));
    return NM_OK;
}

static nm_status train(void *user, nm_trial *const *trials, size_t n, double seconds,
                       void (*started)(void *, nm_trial *),
                       nm_status (*finished)(void *, nm_trial *, nm_error *), void *study, nm_error *err)
{
    nm_study_trainer *t = user;
    nm_run_queue *queue = &t->experiment->queue;
    t->trials = trials;
    t->n = n;
    t->started = started;
    t->finished = finished;
    t->study = study;
    t->end = nm_clock() + seconds - stop_seconds;
    t->timed_out = false;
    t->status = NM_OK;
    queue->user = t;
    queue->on_started = on_started;
    queue->on_finished = on_finished;
    queue->on_scored = on_scored;
    queue->on_tick = on_tick;
    nm_status status = add_jobs(t, err);
    NM_THEN(status, train_jobs(t, err));
    if (t->status != NM_OK) {
        *err = t->err;
        status = t->status;
    } else if (status == NM_INTERRUPTED && t->timed_out) {
        t->stop->requested = 0;
        status = NM_OK;
        for (size_t i = 0; i < n && status == NM_OK; i++)
            if (strcmp(trials[i]->row.state, "finished") && strcmp(trials[i]->row.state, "failed")) {
                trials[i]->row.state = "dropped";
                status = finished(study, trials[i], err);
            }
    }
    remove_jobs(t);
    return status;
}

static nm_status load(void *user, nm_trial *trial, nm_error *err)
{
    nm_study_trainer *t = user;
    nm_run_result result = {0};
    NM_AUTO_FREE char *folder = nm_path_join(t->experiment->folder, trial->row.folder);
    nm_status status = nm_run_result_read(&result, folder, err);
    if (status == NM_OK) {
        snprintf(t->score, sizeof t->score, "%s", result.title);
        keep_draws(t, trial, &result);
    }
    nm_run_result_release(&result);
    return status;
}

/* Means over the runs. */
static void describe(void *user, const nm_trial *const *trials, size_t n, nm_studied_variant *out)
{
    nm_study_trainer *t = user;
    enum { FIELDS = 6 };
    double sums[FIELDS] = {0};
    for (size_t i = 0; i < n; i++) {
        nm_run_result result = {.tid_mean = NAN, .tid_variance = NAN};
        NM_AUTO_FREE char *folder = nm_path_join(t->experiment->folder, trials[i]->row.folder);
        if (*trials[i]->row.phase != 'c' || nm_run_result_read(&result, folder, NM_IGNORED) != NM_OK)
            result.tid_mean = result.tid_variance = NAN;
        if (nm_run_result_read_log(&result, folder, NM_IGNORED) != NM_OK)
            result.gap = result.grad_norm = result.tokens_per_second = result.step_mib = NAN;
        const double values[FIELDS] = {result.tid_mean,  result.tid_variance,      result.gap,
                                       result.grad_norm, result.tokens_per_second, result.step_mib};
        for (int k = 0; k < FIELDS; k++)
            sums[k] += values[k] / (double)n;
        nm_run_result_release(&result);
    }
    double *const members[FIELDS] = {&out->tid_mean,  &out->tid_variance,      &out->gap,
                                     &out->grad_norm, &out->tokens_per_second, &out->step_mib};
    for (int k = 0; k < FIELDS; k++)
        *members[k] = sums[k];
}

static double clock_of(void *user)
{
    (void)user;
    return nm_clock();
}

nm_study_runner nm_study_trainer_runner(nm_study_trainer *t)
{
    return (nm_study_runner){
        .user = t, .clock = clock_of, .train = train, .load = load, .describe = describe};
}

void nm_study_trainer_release(nm_study_trainer *t)
{
    nm_free_list(t->draws, t->n_draws);
}
