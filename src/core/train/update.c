/* One update: forward and backward passes of the shards, gradient norm, clipping, optimizer. Before the first
 * update a dry run of the largest batch measures the memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "train/trainer_private.h"

/* train.balance_shards: balances the batches of each update, from state.batch, which is shard `shard` of its
 * update, to the end of the epoch. If an update contains shards of two epochs they are balanced within each
 * epoch. */
static nm_status balance_shards(nm_trainer *trainer, int64_t shard, nm_error *err)
{
    const int64_t n_shards = trainer->config->shards;
    nm_batches *batches = &trainer->batches;
    if (!trainer->config->balance_shards || n_shards == 1)
        return NM_OK;
    if (!batches->batching.source)
        return nm_fail(err, NM_USAGE,
                       "train.balance_shards has no effect: the shards of this task have equal lengths");
    for (int64_t n, at = trainer->state.batch; at < batches->n; at += n, shard = 0) {
        n = n_shards - shard < batches->n - at ? n_shards - shard : batches->n - at;
        nm_batches_balance(batches, at, n);
    }
    return NM_OK;
}

nm_status nm_trainer_form_batches(nm_trainer *trainer, int64_t shard, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    nm_batches_release(&trainer->batches);
    trainer->batches_ready = false;
    NM_TRY(trainer->task.type->epoch(&trainer->task, NM_SPLIT_TRAIN, (uint32_t)state->epoch, true,
                                     &trainer->batches, err));
    trainer->batches_ready = true;
    if (state->batch > trainer->batches.n)
        return nm_fail(
            err, NM_MISMATCH,
            "the checkpoint is at batch %lld, but the epoch has %lld batches: the options that form "
            "batches, such as train.max_tokens, have changed",
            (long long)state->batch, (long long)trainer->batches.n);
    return state->batch < trainer->batches.n ? balance_shards(trainer, shard, err) : NM_OK;
}

nm_status nm_trainer_ready_batches(nm_trainer *trainer, int64_t shard, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    if (!trainer->batches_ready)
        NM_TRY(nm_trainer_form_batches(trainer, shard, err));
    while (state->batch >= trainer->batches.n) {
        state->epoch++;
        state->batch = 0;
        NM_TRY(nm_trainer_form_batches(trainer, shard, err));
    }
    return NM_OK;
}

static bool is_finite(nm_backend *b, size_t n, const void *values)
{
    double square;
    NM_CALL(b, dot, .n = n, .a = values, .b = values, .out = &square);
    return isfinite(square);
}

/* The first parameter whose values or (gradient) gradients are not all finite; NULL: none. */
static const nm_tensor *first_not_finite(const nm_trainer *trainer, bool gradient)
{
    const nm_params *params = &trainer->model->params;
    for (size_t i = 0; i < params->n; i++) {
        const nm_tensor *t = &params->list[i]->tensor;
        if (!is_finite(trainer->backend, (size_t)t->rows * (size_t)t->cols, gradient ? t->grad : t->data))
            return t;
    }
    return NULL;
}

/* For messages; "" before the first checkpoint. */
static const char *checkpoint_note(const nm_trainer *trainer)
{
    bool found = false;
    nm_status status =
        trainer->folder ? nm_file_find_in(trainer->folder, "last.safetensors", &found, NULL) : NM_OK;
    return status == NM_OK && found ? "; the last checkpoint is kept" : "";
}

/* The last remedy of a message; "" if the model is pre-norm already. */
static const char *position_remedy(const nm_trainer *trainer)
{
    NM_AUTO_FREE char *position = nm_options_get(trainer->options, "model.norm_position");
    return position && strcmp(position, "pre") ? " or pre-norm" : "";
}

/* NM_DIVERGED with the first tensor that is not finite, in the order in which causes precede effects:
 * parameters, running statistics, gradients, loss. */
static nm_status report_divergence(nm_trainer *trainer, double loss, double threshold, nm_error *err)
{
    nm_backend *b = trainer->backend;
    const nm_params *params = &trainer->model->params;
    long long update = (long long)trainer->state.update + 1;
    const nm_tensor *found = first_not_finite(trainer, false);
    loss = isnan(loss) ? fabs(loss) : loss; /* "nan", not "-nan" */
    if (found)
        return nm_fail(
            err, NM_DIVERGED,
            "update %lld: parameter %s is not finite; continue from an earlier checkpoint with a lower "
            "schedule.lr or train.max_grad_norm = 1",
            update, found->name);
    for (size_t n = 0; n < params->n_norms; n++)
        for (int i = 0; i < params->norms[n]->shape.n_state; i++)
            if (!is_finite(b, (size_t)params->norms[n]->shape.state[i].length, params->norms[n]->state[i]))
                return nm_fail(err, NM_DIVERGED,
                               "update %lld: loss %g; running statistic %s.%s is not finite%s; try a lower "
                               "schedule.lr, a longer warm-up or another norm at this site",
                               update, loss, params->norms[n]->site.name,
                               params->norms[n]->shape.state[i].name, checkpoint_note(trainer));
    found = first_not_finite(trainer, true);
    if (found)
        return nm_fail(err, NM_DIVERGED,
                       "update %lld: loss %g; the gradient of %s is not finite%s; try a lower schedule.lr, a "
                       "longer warm-up, train.max_grad_norm = 1%s",
                       update, loss, found->name, checkpoint_note(trainer), position_remedy(trainer));
    return nm_fail(
        err, NM_DIVERGED,
        "update %lld: loss %g%s%s; try a lower schedule.lr, a longer warm-up, train.max_grad_norm = 1%s",
        update, loss, isfinite(loss) && loss > threshold ? " exceeds the divergence threshold" : "",
        checkpoint_note(trainer), position_remedy(trainer));
}

nm_status nm_fail_validation(nm_trainer *trainer, double loss, nm_error *err)
{
    const nm_params *params = &trainer->model->params;
    const char *site = "", *name = "";
    for (size_t n = 0; n < params->n_norms && !*name; n++)
        for (int i = 0; i < params->norms[n]->shape.n_state && !*name; i++)
            if (!is_finite(trainer->backend, (size_t)params->norms[n]->shape.state[i].length,
                           params->norms[n]->state[i])) {
                site = params->norms[n]->site.name;
                name = params->norms[n]->shape.state[i].name;
            }
    return nm_fail(
        err, NM_DIVERGED,
        "validation at update %lld: loss %g%s%s%s%s%s%s; try a lower schedule.lr, a longer warm-up or "
        "another norm",
        (long long)trainer->state.update, isnan(loss) ? fabs(loss) : loss,
        *name ? "; running statistic " : "", site, *name ? "." : "", name, *name ? " is not finite" : "",
        checkpoint_note(trainer));
}

/* Whether the host reads the results of the passes after the last one. Messages to other processes and passes
 * in lockstep need them earlier. */
static bool reads_at_end(const nm_trainer *trainer)
{
    return trainer->comm->size == 1 && !trainer->lockstep;
}

/* Forward and backward pass of one shard. */
static nm_status pass(nm_trainer *trainer, nm_tape *tape, const nm_batch *batch, int64_t step,
                      nm_shard_sums *sums, nm_error *err)
{
    nm_tape_start(tape, true, (uint64_t)trainer->config->seed, (uint32_t)step);
    tape->n_targets = batch->n_targets;
    tape->mean_loss = trainer->task.type->mean_loss;
    double *device_sums = trainer->task.type->loss(&trainer->task, trainer->model, tape, batch, true);
    NM_TRY(nm_tape_backward(tape, err));
    double results[3] = {0};
    NM_TRY(reads_at_end(trainer) ? nm_results_add(&trainer->results, tape, device_sums, err)
                                 : nm_tape_results(tape, device_sums, results, err));
    *sums = (nm_shard_sums){.loss = results[0],
                            .nll = results[1],
                            .penalty = results[2],
                            .tokens = batch->tokens,
                            .targets = batch->n_targets,
                            .stop = nm_stop_is_set(trainer->callbacks.stop),
                            .whole_gradients = trainer->hooks_due,
                            .seconds = trainer->seconds_before + nm_clock() - trainer->started};
    return nm_backend_check(trainer->backend, err);
}

/* Whether the next update ends with a checkpoint, predicted from its number and its position in the epoch. */
static bool checkpoint_is_due(const nm_trainer *trainer)
{
    const nm_train_config *c = trainer->config;
    const nm_train_state *state = &trainer->state;
    int64_t update = state->update + 1;
    bool ends_epoch = state->batch + c->shards >= trainer->batches.n;
    return (trainer->total_updates && update == trainer->total_updates) ||
           (c->save_every && update % c->save_every == 0) ||
           (c->validate_every ? update % c->validate_every == 0 : ends_epoch);
}

static uint64_t hash_gradients(const nm_trainer *trainer)
{
    const nm_params *params = &trainer->model->params;
    NM_AUTO(nm_host_copies_release) nm_host_copies copies = {0};
    const size_t bytes = nm_params_bytes(params);
    return XXH3_64bits(nm_host_copies_add(&copies, trainer->backend, params->grads, bytes), bytes);
}

/* train.check_shard: if the next update ends with a checkpoint, chooses one of its shards, which another
 * process computes before its own ones, with the same result as its owner. */
static nm_status check_shard(nm_trainer *trainer, nm_error *err)
{
    const nm_train_state *state = &trainer->state;
    const int64_t n_shards = trainer->config->shards;
    const int32_t size = trainer->comm->size;
    trainer->check.due = trainer->config->check_shard && checkpoint_is_due(trainer);
    if (!trainer->check.due)
        return NM_OK;
    NM_TRY(nm_trainer_ready_batches(trainer, 0, err));
    const int64_t left = trainer->batches.n - state->batch, n = left < n_shards ? left : n_shards;
    const int64_t key[2] = {trainer->config->seed, state->update};
    const int64_t shard = (int64_t)(XXH3_64bits(key, sizeof key) % (uint64_t)n);
    int32_t owner = 0;
    while (nm_shard_range_of_rank(n_shards, owner, size).last <= shard)
        owner++;
    trainer->check.shard = shard;
    trainer->check.owner = owner;
    trainer->check.checker = (owner + 1) % size;
    if (trainer->comm->rank != trainer->check.checker)
        return NM_OK;
    nm_norm_snapshot snapshot = nm_norm_snapshot_save(&trainer->model->params);
    const int64_t step = state->step + shard;
    nm_shard_sums ignored;
    nm_batch batch = trainer->task.type->batch(&trainer->task, NM_SPLIT_TRAIN, &trainer->batches,
                                               state->batch + shard, (uint32_t)step, true, &trainer->host);
    nm_shard_tree_begin(&trainer->shards);
    nm_status status = pass(trainer, &trainer->tape, &batch, step, &ignored, err);
    if (status == NM_OK)
        trainer->check.second = hash_gradients(trainer);
    nm_norm_snapshot_restore(&snapshot, &trainer->model->params);
    return status;
}

/* NM_MISMATCH if both gradients differ; then the parameters are those of the last update. */
static nm_status compare_checked(nm_trainer *trainer, nm_error *err)
{
    nm_comm *comm = trainer->comm;
    if (!trainer->check.due)
        return NM_OK;
    uint64_t(*pairs)[2] = nm_allocate((size_t)comm->size * sizeof *pairs);
    pairs[comm->rank][0] = trainer->check.first;
    pairs[comm->rank][1] = trainer->check.second;
    nm_status status = nm_comm_gather(comm, pairs, sizeof *pairs, err);
    const int32_t owner = trainer->check.owner, checker = trainer->check.checker;
    const bool equal = pairs[owner][0] == pairs[checker][1];
    free(pairs);
    if (status != NM_OK || equal)
        return status;
    const long long update = (long long)trainer->state.update + 1, shard = (long long)trainer->check.shard;
    return owner == checker
               ? nm_fail(
                     err, NM_MISMATCH,
                     "update %lld: shard %lld has another gradient when it is computed again: this machine "
                     "computes wrong results; no checkpoint is written",
                     update, shard)
               : nm_fail(err, NM_MISMATCH,
                         "update %lld: shard %lld has another gradient on rank %d than on rank %d: a machine "
                         "computes wrong results; no checkpoint is written",
                         update, shard, owner, checker);
}

/* hooks NULL: none. */
static void listen(nm_tape *tape, const nm_train_hooks *hooks)
{
    tape->listen = hooks ? hooks->on_norm : NULL;
    tape->listen_residual = hooks ? hooks->on_residual : NULL;
    tape->listen_attention = hooks ? hooks->on_attention : NULL;
    tape->listener = hooks ? hooks->user : NULL;
}

static void start_hooks(nm_trainer *trainer)
{
    const nm_train_hooks *hooks = trainer->callbacks.hooks;
    trainer->hooks_due =
        hooks && hooks->is_due(hooks->user, trainer->state.update + 1, checkpoint_is_due(trainer));
    if (trainer->hooks_due)
        listen(trainer->lockstep ? &trainer->lanes[0].tape : &trainer->tape, hooks);
}

static double chance_loss(const nm_trainer *trainer)
{
    const nm_task *task = &trainer->task;
    return task->type->chance_loss ? task->type->chance_loss(task) : log((double)trainer->model->target_size);
}

/* One shard of an update. */
typedef struct shard_draw {
    int64_t batch_index, step;
    int64_t own; /* index among the shards of this process; -1: of another process */
    bool last;   /* the last shard of this process */
} shard_draw;

/* Advances to the next shard of the training data. All processes advance over all shards. */
static nm_status next_shard(nm_trainer *trainer, int64_t shard, shard_draw *draw, nm_error *err)
{
    const nm_shard_range own = nm_shard_range_of(trainer->config->shards, trainer->comm);
    NM_TRY(nm_trainer_ready_batches(trainer, shard, err));
    if (!shard)
        start_hooks(trainer);
    *draw = (shard_draw){.batch_index = trainer->state.batch++,
                         .step = trainer->state.step++,
                         .own = shard >= own.first && shard < own.last ? shard - own.first : -1,
                         .last = shard == own.last - 1};
    return NM_OK;
}

static nm_batch read_batch(nm_trainer *trainer, const shard_draw *draw, nm_arena *host)
{
    return trainer->task.type->batch(&trainer->task, NM_SPLIT_TRAIN, &trainer->batches, draw->batch_index,
                                     (uint32_t)draw->step, true, host);
}

static nm_status compute_separately(nm_trainer *trainer, nm_error *err)
{
    nm_params *params = &trainer->model->params;
    const nm_norm_config *norms = nm_options_find(trainer->options, "norm");
    for (int64_t shard = 0; shard < trainer->config->shards; shard++) {
        shard_draw draw;
        NM_TRY(next_shard(trainer, shard, &draw, err));
        if (draw.own < 0)
            continue;
        nm_batch batch = read_batch(trainer, &draw, &trainer->host);
        nm_shard_sums sums;
        nm_shard_tree_begin(&trainer->shards);
        nm_workers_load(&trainer->workers, params, shard);
        /* Gradients that are sent are combined with those of other shards, and then have no hash of their
         * shard. */
        if (draw.last && !trainer->check.due)
            trainer->tape.observer = nm_shard_tree_send_during(&trainer->shards, shard);
        nm_status status = pass(trainer, &trainer->tape, &batch, draw.step, &sums, err);
        listen(&trainer->tape, NULL);
        trainer->tape.observer = NULL;
        NM_TRY(status);
        if (trainer->check.due && shard == trainer->check.shard)
            trainer->check.first = hash_gradients(trainer);
        if (norms->state != NM_STATE_UPDATE)
            nm_params_update_norms(params, trainer->tape.grad_scale);
        nm_workers_store(&trainer->workers, params, shard);
        nm_shard_tree_end(&trainer->shards, shard, &sums);
    }
    return NM_OK;
}

static void run_lane(void *user, int32_t i, nm_norm_joiner *joiner)
{
    nm_trainer *trainer = user;
    nm_lane *lane = &trainer->lanes[i];
    lane->tape.joiner = joiner;
    lane->status = pass(trainer, &lane->tape, &lane->batch, lane->step, &lane->sums, &lane->error);
}

static nm_status compute_in_lockstep(nm_trainer *trainer, nm_error *err)
{
    for (int64_t shard = 0; shard < trainer->config->shards; shard++) {
        shard_draw draw;
        NM_TRY(next_shard(trainer, shard, &draw, err));
        if (draw.own < 0)
            continue;
        nm_lane *lane = &trainer->lanes[draw.own];
        lane->step = draw.step;
        lane->batch = read_batch(trainer, &draw, &lane->host);
    }
    nm_status status = nm_lockstep_run(trainer->lockstep, run_lane, trainer, err);
    listen(&trainer->lanes[0].tape, NULL);
    for (int32_t i = 0; status == NM_OK && i < trainer->n_lanes; i++) {
        nm_lane *lane = &trainer->lanes[i];
        if (lane->status != NM_OK && !lane->tape.joiner->failed) {
            *err = lane->error;
            return lane->status;
        }
    }
    NM_TRY(status);
    const int64_t first = nm_shard_range_of(trainer->config->shards, trainer->comm).first;
    for (int32_t i = 0; i < trainer->n_lanes; i++) {
        nm_shard_tree_begin(&trainer->shards);
        nm_lockstep_load(trainer->lockstep, i);
        nm_shard_tree_end(&trainer->shards, first + i, &trainer->lanes[i].sums);
    }
    return NM_OK;
}

/* Computes the shards of this rank for the next update, and combines them with those of the other ranks. The
 * current node of the tree is then the sum over all shards. */
static nm_status compute_shards(nm_trainer *trainer, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    nm_params *params = &trainer->model->params;
    nm_shard_tree_start(&trainer->shards);
    NM_TRY(check_shard(trainer, err));
    nm_results_start(&trainer->results);
    NM_TRY(trainer->lockstep ? compute_in_lockstep(trainer, err) : compute_separately(trainer, err));
    NM_TRY(nm_shard_tree_complete(&trainer->shards, err));
    NM_TRY(compare_checked(trainer, err));
    nm_params_update_norms(params, trainer->tape.grad_scale);
    nm_workers_load(&trainer->workers, params, 0); /* the state of the model */
    if (trainer->comm->size > 1) {
        trainer->stop = trainer->shards.current.sums.stop;
        state->seconds = trainer->shards.current.sums.seconds;
    }
    return NM_OK;
}

/* Counts an update, and adds it to the sums of the next line of the log. */
static void add_update(nm_train_state *state, const nm_shard_sums *total, double norm)
{
    state->update++;
    state->tokens += total->tokens;
    state->sum_loss += total->loss;
    state->sum_nll += total->nll;
    state->sum_penalty += total->penalty;
    state->sum_norm += norm;
    state->sum_tokens += total->tokens;
    state->sum_targets += total->targets;
    state->sum_updates++;
}

/* Computes the plan of the update in device memory, without waiting. */
static nm_status plan_update(nm_trainer *trainer, double max_loss, nm_error *err)
{
    nm_results *results = &trainer->results;
    const nm_shard_sums *sums = &trainer->shards.current.sums;
    NM_TRY(nm_optimizer_gradient_square(&trainer->optimizer, &results->plan[NM_PLAN_SQUARE], err));
    if (!reads_at_end(trainer))
        NM_TRY(nm_results_set(results, sums, err));
    NM_CALL(trainer->backend, plan_update, .targets = (double)sums->targets,
            .max_norm = trainer->config->max_grad_norm, .max_loss = max_loss, .passes = results->n_passes,
            .ends = results->ends, .numbers = results->numbers, .plan = results->plan);
    return NM_OK;
}

/* Waits for the results of the update. NM_DIVERGED */
static nm_status read_results(nm_trainer *trainer, nm_shard_sums *total, double max_loss, nm_error *err)
{
    const double *plan = trainer->results.host;
    NM_TRY(nm_results_read(&trainer->results, err));
    const bool diverged = isnan(plan[NM_PLAN_SCALE]);
    total->loss = plan[NM_PLAN_LOSS];
    total->nll = plan[NM_PLAN_NLL];
    total->penalty = plan[NM_PLAN_PENALTY];
    if (trainer->shards.sharded && (diverged || total->whole_gradients))
        NM_TRY(nm_shard_tree_gather(&trainer->shards, trainer->model->params.grads, 1,
                                    nm_dtype_bytes(trainer->backend->dtype), err));
    return diverged ? report_divergence(trainer, total->loss / (double)total->targets, max_loss, err) : NM_OK;
}

/* The host reads the results after it has queued the step of the optimizer, which does nothing if the update
 * has diverged, and before anything else that depends on the update. A later read would delay the log,
 * messages, validations and checkpoints by one update. Instruments that are due read gradients, and some
 * optimizers cannot skip a step: then the host reads before the step. */
static nm_status update(nm_trainer *trainer, nm_training_progress *progress, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    const double max_loss = trainer->config->divergence_factor * chance_loss(trainer);
    NM_TRY(compute_shards(trainer, err));
    nm_shard_sums total = trainer->shards.current.sums;
    const double n_targets = (double)total.targets;
    NM_TRY(plan_update(trainer, max_loss, err));
    const bool first =
        trainer->hooks_due || trainer->shards.sharded || !nm_optimizer_skips(&trainer->optimizer);
    if (first)
        NM_TRY(read_results(trainer, &total, max_loss, err));
    nm_schedule_plan(&trainer->schedule, state->update + 1, nm_trainer_time_fraction(trainer));
    const double lr = nm_schedule_lr(&trainer->schedule, state->update + 1);
    if (trainer->hooks_due)
        trainer->callbacks.hooks->on_gradients(trainer->callbacks.hooks->user, trainer->model, n_targets, lr);
    NM_TRY(nm_optimizer_step(&trainer->optimizer, state->update + 1, lr,
                             &trainer->results.plan[NM_PLAN_SCALE], err));
    if (!first)
        NM_TRY(read_results(trainer, &total, max_loss, err));
    const double norm = sqrt(trainer->results.host[NM_PLAN_SQUARE]) / n_targets,
                 loss = total.loss / n_targets;
    nm_ema_add(&trainer->ema, state->update + 1);
    add_update(state, &total, norm);
    *progress = (nm_training_progress){.update = state->update,
                                       .updates = trainer->total_updates,
                                       .epoch = state->epoch,
                                       .batch = state->batch,
                                       .batches = trainer->batches.n,
                                       .tokens = state->tokens,
                                       .loss = loss,
                                       .nll = total.nll / n_targets,
                                       .penalty = total.penalty / n_targets,
                                       .learning_rate = lr,
                                       .grad_norm = norm};
    return NM_OK;
}

nm_status nm_trainer_update(nm_trainer *trainer, nm_training_progress *progress, nm_error *err)
{
    bool profiled = trainer->device->profile && trainer->profile.warm;
    int64_t tokens = trainer->state.tokens;
    double began = nm_clock();
    trainer->unchanged = false;
    nm_backend_profile(trainer->backend, profiled);
    nm_status status = update(trainer, progress, err);
    nm_backend_profile(trainer->backend, false);
    if (profiled) {
        trainer->profile.seconds += nm_clock() - began;
        trainer->profile.tokens += trainer->state.tokens - tokens;
        trainer->profile.updates++;
    }
    trainer->profile.warm = true;
    return status;
}

nm_status nm_trainer_dry_run(nm_trainer *trainer, nm_error *err)
{
    nm_params *params = &trainer->model->params;
    nm_norm_snapshot snapshot = nm_norm_snapshot_save(params);
    nm_backend_dry_run(trainer->backend, true);
    nm_batch batch = trainer->task.type->largest(&trainer->task, &trainer->host);
    nm_shard_sums ignored;
    if (!trainer->lockstep)
        trainer->tape.observer = nm_shard_tree_plan(&trainer->shards);
    nm_status status = pass(trainer, &trainer->tape, &batch, 0, &ignored, err);
    trainer->tape.observer = NULL;
    nm_backend_dry_run(trainer->backend, false);
    nm_norm_snapshot_restore(&snapshot, params);
    /* slabs: parameters, gradients and copies of gradients. */
    const bool ema = trainer->ema.values != NULL; /* validations also use the memory of all gradients */
    size_t slabs = 2 + nm_shard_tree_slabs(trainer->config->shards, trainer->comm) + ema;
    size_t n_lanes = (size_t)trainer->n_lanes; /* each with gradients and activations */
    size_t n_skipping = n_lanes ? n_lanes : trainer->comm->size == 1; /* gradients that no copy fills */
    n_skipping -= ema && n_skipping;
    size_t skipped = n_skipping * nm_params_skipped(params) * nm_dtype_bytes(trainer->backend->dtype);
    trainer->peak_bytes =
        (slabs + n_lanes) * nm_params_bytes(params) - skipped + nm_optimizer_bytes(&trainer->optimizer) +
        (n_lanes ? n_lanes : 1) * (nm_tape_peak(&trainer->tape) + nm_backend_scratch_bytes(trainer->backend));
    return status;
}
