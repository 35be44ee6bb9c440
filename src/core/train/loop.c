/* The training loop: updates, log records, validations and checkpoints, until a limit of [train] is
 * reached. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/trainer_private.h"

/* Finished epochs, including the current one after its last batch. */
static int64_t finished_epochs(const nm_trainer *trainer)
{
    return trainer->state.epoch + (trainer->batches_ready && trainer->state.batch >= trainer->batches.n);
}

/* PowerNorm and MABN have running statistics of gradients, whose unbounded growth leads to non-finite values
 * thousands of updates later. Returns the largest root mean square of these statistics; warns if it exceeds
 * state.warned_level, which is then 10 times its value. */
static double check_backward_state(nm_trainer *trainer)
{
    nm_backend *b = trainer->backend;
    const nm_params *params = &trainer->model->params;
    double largest = 0;
    const nm_norm *site = NULL;
    for (size_t n = 0; n < params->n_norms; n++) {
        const nm_norm *norm = params->norms[n];
        for (int i = 0; i < norm->shape.n_state; i++) {
            double square;
            size_t length = (size_t)norm->shape.state[i].length;
            if (!norm->shape.state[i].of_gradients)
                continue;
            NM_CALL(b, dot, .n = length, .a = norm->state[i], .b = norm->state[i], .out = &square);
            if (!(sqrt(square / (double)length) <= largest)) {
                largest = sqrt(square / (double)length);
                site = norm;
            }
        }
    }
    if (site && !(largest <= trainer->state.warned_level)) {
        nm_trainer_message(trainer,
                           "the running gradient statistic of %s has grown to %.3g (root mean square); if it "
                           "continues to grow, use %s",
                           site->site.name, largest, site->type->remedy);
        trainer->state.warned_level = 10 * largest;
    }
    return largest;
}

static nm_status log_progress(nm_trainer *trainer, const nm_training_progress *update, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    if (state->update % trainer->config->log_every)
        return NM_OK;
    NM_TRY(nm_ranks_share_messages(trainer, err));
    nm_training_progress p = *update;
    double n_targets = (double)state->sum_targets;
    p.loss = state->sum_loss / n_targets;
    p.nll = state->sum_nll / n_targets;
    p.penalty = state->sum_penalty / n_targets;
    p.grad_norm = state->sum_norm / (double)state->sum_updates;
    state->sum_loss = state->sum_nll = state->sum_penalty = state->sum_norm = 0;
    state->sum_tokens = state->sum_targets = state->sum_updates = 0;
    double backward_state = check_backward_state(trainer);
    const nm_comm *comm = trainer->comm;
    nm_log_machine machine = {
        .backward_state = backward_state > 0 ? backward_state : NAN,
        .exchange_seconds = comm->size > 1 ? comm->wait_seconds - trainer->logged_wait : NAN,
        .exchange_bytes = comm->size > 1 ? comm->sent_bytes - trainer->logged_bytes : 0};
    trainer->logged_wait = comm->wait_seconds;
    trainer->logged_bytes = comm->sent_bytes;
    return nm_log_progress(trainer, &p, &machine, err);
}

/* Sets the times, the finished fraction of the run, and the throughput: of this session, since the last
 * record of the log, without validations. */
static void measure_progress(nm_trainer *trainer, nm_training_progress *p)
{
    nm_train_state *state = &trainer->state;
    double now = nm_clock(), spent = now - trainer->report_clock - trainer->validating;
    if (trainer->comm->size == 1)
        state->seconds = trainer->seconds_before + now - trainer->started;
    p->seconds = state->seconds;
    if (spent > 0)
        p->tokens_per_second = (double)(state->sum_tokens - trainer->earlier_tokens) / spent;
    if (state->update % trainer->config->log_every == 0) {
        trainer->report_clock = now;
        trainer->earlier_tokens = 0;
        trainer->validating = 0;
    }
    p->perplexity = nm_task_has_perplexity(trainer->task.type, trainer->options) ? exp(p->nll) : NAN;
    double by_seconds = nm_trainer_time_fraction(trainer);
    double by_updates = trainer->total_updates ? (double)state->update / (double)trainer->total_updates : 0;
    double by_epochs = trainer->config->epochs
                           ? ((double)state->epoch + (double)state->batch / (double)trainer->batches.n) /
                                 (double)trainer->config->epochs
                           : 0;
    bool is_planned = isfinite(trainer->schedule.total) &&
                      trainer->schedule.total != (double)trainer->schedule.config.updates;
    p->schedule_position = is_planned ? (double)state->update / trainer->schedule.total : NAN;
    double fraction = fmin(fmax(by_seconds, fmax(by_updates, by_epochs)), 1);
    p->fraction = fraction > 0 ? fraction : NAN;
    p->seconds_left = state->seconds * (1 / p->fraction - 1);
}

static bool validation_is_due(const nm_trainer *trainer)
{
    int64_t every = trainer->config->validate_every;
    return every ? trainer->state.update % every == 0
                 : finished_epochs(trainer) > trainer->state.checked_epochs;
}

/* Score: higher is better. */
static void update_schedule(nm_trainer *trainer, double score, bool has_score)
{
    nm_train_state *state = &trainer->state;
    if (trainer->schedule.state.n_scores && state->schedule_by_score != has_score)
        trainer->schedule.state.n_scores = 0;
    state->schedule_by_score = has_score;
    nm_schedule_evaluated(&trainer->schedule, score, state->update);
    if (trainer->config->patience)
        nm_schedule_skip(&trainer->schedule, state->update, nm_trainer_time_fraction(trainer),
                         (double)state->bad_checks / (double)trainer->config->patience);
    state->schedule = trainer->schedule.state;
}

/* Selects the best checkpoint, updates the schedule, and logs the validation. A validation that only
 * the end of the run causes counts for neither schedule nor patience: a run that is extended continues as if
 * it had not ended. */
static nm_status evaluate(nm_trainer *trainer, nm_training_validation *v, bool lower_is_better, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    bool by_score = trainer->config->best_by == NM_BEST_BY_SCORE && v->score_name,
         counts = validation_is_due(trainer);
    double score = lower_is_better ? -v->score : v->score;
    double selection = by_score ? score : -v->loss;
    const bool other_score =
        by_score && state->best_update && strcmp(state->score_title, v->score_title) != 0;
    if (state->best_by_score != by_score || other_score) { /* a resumed run with other options */
        state->best_by_score = by_score;
        state->best_update = state->bad_checks = 0;
    }
    v->best = selection > state->best_score || !state->best_update;
    if (v->best) {
        state->best_score = selection;
        state->best_loss = v->loss;
        state->best_update = state->update;
        state->best_value = v->score;
        snprintf(state->score_title, sizeof state->score_title, "%s", v->score_name ? v->score_title : "");
        state->bad_checks = 0;
    } else if (counts) {
        state->bad_checks++;
    }
    if (counts)
        update_schedule(trainer, v->score_name ? score : -v->loss, v->score_name != NULL);
    state->checked_epochs = finished_epochs(trainer);
    state->checked_update = state->update;
    nm_status status = nm_log_validation(trainer, v, err);
    if (status == NM_OK && v->best)
        status = nm_trainer_save_best(trainer, err);
    if (trainer->callbacks.validated)
        trainer->callbacks.validated(trainer->callbacks.user, v);
    return status;
}

/* NM_INTERRUPTED at a request to stop: the state is then as before the validation. */
static nm_status validate(nm_trainer *trainer, nm_error *err)
{
    nm_training_validation v;
    nm_task_score score;
    NM_TRY(nm_workers_share_first(&trainer->workers, &trainer->model->params, trainer->comm, err));
    if (trainer->callbacks.validating && !trainer->comm->rank)
        trainer->callbacks.validating(trainer->callbacks.user, trainer->state.update,
                                      trainer->last_validation);
    nm_ema_use(&trainer->ema);
    nm_status status = nm_trainer_validate(trainer, &v, &score, err);
    if (status == NM_OK) {
        trainer->unchanged = false;
        trainer->last_validation = v.seconds;
        status = trainer->comm->rank ? NM_OK : evaluate(trainer, &v, score.lower_is_better, err);
        nm_task_score_release(&score);
    }
    nm_ema_restore(&trainer->ema);
    NM_TRY(status);
    return nm_ranks_share_state(trainer, err);
}

/* Rank 0 writes the checkpoint. */
static nm_status save(nm_trainer *trainer, nm_error *err)
{
    NM_TRY(nm_ranks_compare_weights(trainer, err));
    NM_TRY(nm_workers_gather(&trainer->workers, trainer->comm, err));
    NM_TRY(nm_optimizer_collect(&trainer->optimizer, err));
    return trainer->comm->rank ? NM_OK : nm_trainer_save(trainer, err);
}

static bool stop_is_requested(const nm_trainer *trainer)
{
    if (trainer->comm->size > 1)
        return trainer->stop;
    return nm_stop_is_set(trainer->callbacks.stop);
}

static nm_status stop(nm_trainer *trainer, nm_error *err)
{
    NM_TRY(save(trainer, err));
    return nm_fail(err, NM_INTERRUPTED, "stopped after update %" PRId64 "; checkpoint written",
                   trainer->state.update);
}

static nm_status log_hook_records(nm_trainer *trainer, nm_error *err)
{
    const nm_train_hooks *hooks = trainer->callbacks.hooks;
    json_t *objects = trainer->hooks_due ? hooks->on_update(hooks->user, trainer->model) : NULL;
    return objects ? nm_log_objects(trainer, objects, err) : NM_OK;
}

/* The validation of this update was interrupted, or the run was resumed with another train.validate_every. */
static bool validation_is_missing(const nm_trainer *trainer)
{
    const nm_train_state *state = &trainer->state;
    return state->update && state->checked_update != state->update && validation_is_due(trainer);
}

/* An interrupted validation is not an error: the loop then writes the checkpoint, and the resumed run
 * validates. */
static nm_status validate_and_save(nm_trainer *trainer, bool validates, nm_error *err)
{
    nm_status status = validates ? validate(trainer, err) : NM_OK;
    if (status == NM_INTERRUPTED)
        return NM_OK;
    NM_TRY(status);
    return save(trainer, err);
}

static bool is_finished(const nm_trainer *trainer)
{
    const nm_train_config *c = trainer->config;
    const nm_train_state *state = &trainer->state;
    return (trainer->total_updates && state->update >= trainer->total_updates) ||
           (c->epochs && finished_epochs(trainer) >= c->epochs) ||
           (c->seconds > 0 && state->seconds >= c->seconds) ||
           (c->patience && state->bad_checks >= c->patience) ||
           (trainer->schedule.config.min_lr > 0 && state->update > nm_schedule_warmup(&trainer->schedule) &&
            nm_schedule_lr(&trainer->schedule, state->update + 1) < trainer->schedule.config.min_lr);
}

/* The option that limits the length of sequences. */
static const char *length_option(const nm_batches *batches)
{
    const nm_batching *batching = &batches->batching;
    return batching->max_tokens < batching->max_length ? "train.max_tokens" : "data.max_length";
}

/* *has is false if the task has no validation data, which is reported as a message. */
static nm_status has_validation(nm_trainer *trainer, bool *has, nm_error *err)
{
    nm_batches batches;
    nm_error why;
    nm_status status = trainer->task.type->epoch(&trainer->task, NM_SPLIT_VALID, 0, false, &batches, &why);
    *has = status == NM_OK;
    if (status == NM_OK) {
        if (batches.skipped)
            nm_trainer_message(
                trainer, "validation: %" PRId64 " sequence%s longer than %s and excluded from the loss",
                batches.skipped, batches.skipped == 1 ? " is" : "s are", length_option(&batches));
        nm_batches_release(&batches);
        return NM_OK;
    }
    if (status != NM_USAGE) {
        *err = why;
        return status;
    }
    nm_trainer_message(trainer, "no validation: %s", why.text);
    return NM_OK;
}

static nm_status step(nm_trainer *trainer, bool validates, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    nm_training_progress progress = {0};
    NM_TRY(nm_trainer_update(trainer, &progress, err));
    measure_progress(trainer, &progress);
    NM_TRY(log_progress(trainer, &progress, err));
    NM_TRY(log_hook_records(trainer, err));
    if (state->update == 1)
        NM_TRY(nm_log_weights(trainer, err));
    if (trainer->callbacks.progress)
        trainer->callbacks.progress(trainer->callbacks.user, &progress);
    if (validation_is_due(trainer))
        return validate_and_save(trainer, validates, err);
    if (trainer->config->save_every && state->update % trainer->config->save_every == 0)
        return save(trainer, err);
    return NM_OK;
}

nm_status nm_trainer_run(nm_trainer *trainer, nm_error *err)
{
    bool validates;
    NM_TRY(has_validation(trainer, &validates, err));
    NM_TRY(nm_trainer_form_batches(trainer, 0, err));
    if (trainer->batches.skipped)
        nm_trainer_message(trainer, "training: skipped %" PRId64 " sequence%s, empty or longer than %s",
                           trainer->batches.skipped, trainer->batches.skipped == 1 ? "" : "s",
                           length_option(&trainer->batches));
    if (trainer->config->save_initial && !trainer->state.update)
        NM_TRY(save(trainer, err));
    if (validates && validation_is_missing(trainer))
        NM_TRY(validate_and_save(trainer, true, err));
    const int64_t last = trainer->callbacks.last_update;
    while (!is_finished(trainer)) {
        if (last && trainer->state.update >= last)
            break;
        if (stop_is_requested(trainer))
            return stop(trainer, err);
        NM_TRY(step(trainer, validates, err));
    }
    nm_status status = NM_OK;
    if (is_finished(trainer) && validates && trainer->state.checked_update != trainer->state.update)
        status = validate(trainer, err);
    if (status == NM_INTERRUPTED)
        return stop(trainer, err);
    NM_TRY(status);
    NM_TRY(save(trainer, err));
    return nm_log_weights(trainer, err); /* after the checkpoint: a run that is extended has no such record */
}
