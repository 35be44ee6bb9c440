/* One update: micro-batches forward and backward, the gradient's norm, clipping, the optimizer; and the dry run of the
 * largest batch that tells the memory before the first step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/trainer_private.h"

typedef struct sums {
    double loss, nll, penalty;
    int64_t tokens, units;
} sums;

nm_status nm_trainer_ready_batches(nm_trainer *trainer, nm_error *err)
{
    nm_train_state *state = &trainer->state;
    if (trainer->batches_ready && state->batch < trainer->batches.n)
        return NM_OK;
    if (trainer->batches_ready) {
        state->epoch++;
        state->batch = 0;
    }
    nm_batches_release(&trainer->batches);
    trainer->batches_ready = false;
    NM_TRY(trainer->task.type->epoch(&trainer->task, NM_SPLIT_TRAIN, (uint32_t)state->epoch, true,
                                     &trainer->batches, err));
    trainer->batches_ready = true;
    if (state->batch > trainer->batches.n)
        return nm_fail(err, NM_MISMATCH, "checkpoint stands at batch %lld of an epoch of %lld",
                       (long long)state->batch, (long long)trainer->batches.n);
    return state->batch < trainer->batches.n ? NM_OK : nm_trainer_ready_batches(trainer, err);
}

/* The first tensor that is not finite, looked for where the trouble showed: outputs in the order they are computed,
 * then running statistics, then gradients. */
static nm_status name_bad_tensor(nm_trainer *trainer, double loss, nm_error *err)
{
    nm_backend *b = trainer->backend;
    const nm_params *params = &trainer->model->params;
    const char *what = "loss", *bad = "itself";
    double square;
    for (size_t i = 0; i < params->n; i++) {
        nm_tensor *t = &params->list[i]->tensor;
        NM_CALL(b, dot, .n = (size_t)t->rows * (size_t)t->cols, .a = t->data, .b = t->data, .out = &square);
        if (!isfinite(square))
            return nm_fail(err, NM_DIVERGED,
                           "update %lld: parameter %s is not finite; go back to an earlier checkpoint, "
                           "lower schedule.lr or set train.max_grad_norm = 1",
                           (long long)trainer->state.update + 1, t->name);
    }
    for (size_t n = 0; n < params->n_norms; n++)
        for (int i = 0; i < params->norms[n]->shape.n_state; i++) {
            NM_CALL(b, dot, .n = (size_t)params->norms[n]->shape.state[i].length,
                    .a = params->norms[n]->state[i], .b = params->norms[n]->state[i], .out = &square);
            if (!isfinite(square))
                return nm_fail(
                    err, NM_DIVERGED,
                    "update %lld: loss %g; first bad tensor: running statistic %s.%s; the last "
                    "checkpoint is kept; try a lower schedule.lr, a longer warm-up or another norm here",
                    (long long)trainer->state.update + 1, loss, params->norms[n]->site.name,
                    params->norms[n]->shape.state[i].name);
        }
    for (size_t i = 0; i < params->n; i++) {
        nm_tensor *t = &params->list[i]->tensor;
        NM_CALL(b, dot, .n = (size_t)t->rows * (size_t)t->cols, .a = t->grad, .b = t->grad, .out = &square);
        if (!isfinite(square)) {
            what = "gradient of";
            bad = t->name;
            break;
        }
    }
    return nm_fail(err, NM_DIVERGED,
                   "update %lld: loss %g; first bad tensor: %s %s; the last checkpoint is kept; try a "
                   "lower schedule.lr, a longer warm-up, train.max_grad_norm = 1 or pre-norm",
                   (long long)trainer->state.update + 1, loss, what, bad);
}

static nm_status micro_batch(nm_trainer *trainer, const nm_batch *batch, sums *total, nm_error *err)
{
    nm_backend *b = trainer->backend;
    nm_tape *tape = &trainer->tape;
    nm_tape_start(tape, true, (uint64_t)trainer->config->seed, (uint32_t)trainer->state.step);
    tape->n_targets = batch->units;
    tape->mean_loss = trainer->task.type->mean_loss;
    double *device_sums = trainer->task.type->loss(&trainer->task, trainer->model, tape, batch, true);
    NM_TRY(nm_tape_backward(tape, err));
    double pair[2], penalty = 0;
    nm_backend_download(b, pair, device_sums, sizeof pair);
    for (int i = 0; i < tape->n_penalties; i++) {
        double one;
        nm_backend_download(b, &one, tape->penalties[i], sizeof one);
        penalty += one;
    }
    total->loss += pair[0];
    total->nll += pair[1];
    total->penalty += penalty;
    total->tokens += batch->tokens;
    total->units += batch->units;
    return NM_OK;
}

static double gradient_norm(const nm_trainer *trainer)
{
    nm_backend *b = trainer->backend;
    double square;
    NM_CALL(b, dot, .n = trainer->model->params.n_elements, .a = trainer->model->params.grads,
            .b = trainer->model->params.grads, .out = &square);
    return sqrt(square);
}

_Static_assert((int)NM_OPTIM_ADAM == (int)NM_ADAM_TORCH &&
                   (int)NM_OPTIM_ADAM_FAIRSEQ == (int)NM_ADAM_FAIRSEQ &&
                   (int)NM_OPTIM_ADAMW == (int)NM_ADAMW_TORCH,
               "the Adam variants have the same order in options and backend");

int64_t nm_optimizer_state_kind(const nm_optim_config *optim)
{
    return optim->name == NM_OPTIM_SGD;
}

static void optimize(nm_trainer *trainer, double lr, double grad_scale)
{
    nm_backend *b = trainer->backend;
    const nm_optim_config *o = trainer->optim;
    const nm_params *params = &trainer->model->params;
    size_t unit = nm_dtype_bytes(b->dtype);
    nm_adam adam = {.lr = lr,
                    .beta1 = o->beta1,
                    .beta2 = o->beta2,
                    .eps = o->eps,
                    .weight_decay = o->weight_decay,
                    .grad_scale = grad_scale,
                    .step = trainer->state.update + 1,
                    .variant = (nm_adam_variant)o->name};
    for (size_t s = 0; s < trainer->n_spans; s++) {
        size_t at = trainer->spans[s].first * unit, n = trainer->spans[s].n;
        char *p = (char *)params->values + at, *g = (char *)params->grads + at;
        if (o->name == NM_OPTIM_SGD)
            NM_CALL(b, sgd, .lr = lr, .momentum = o->momentum, .grad_scale = grad_scale,
                    .clip = trainer->config->clip_value, .n = n, .p = p, .g = g,
                    .v = (char *)trainer->v + at);
        else
            NM_CALL(b, adam, .config = &adam, .n = n, .p = p, .g = g, .m = (char *)trainer->m + at,
                    .v = (char *)trainer->v + at);
    }
}

/* Whether the coming update ends in a checkpoint, as far as its number and place in the epoch tell. */
static bool checkpoint_follows(const nm_trainer *trainer)
{
    const nm_train_config *c = trainer->config;
    const nm_train_state *state = &trainer->state;
    int64_t update = state->update + 1;
    bool ends_epoch = state->batch + c->accumulate >= trainer->batches.n;
    return (trainer->total_updates && update == trainer->total_updates) ||
           (c->save_every && update % c->save_every == 0) ||
           (c->validate_every ? update % c->validate_every == 0 : ends_epoch);
}

static void start_watching(nm_trainer *trainer)
{
    const nm_train_hooks *watch = trainer->listener.watch;
    trainer->watched =
        watch && watch->wants(watch->user, trainer->state.update + 1, checkpoint_follows(trainer));
    if (trainer->watched) {
        trainer->tape.listen = watch->norm;
        trainer->tape.listener = watch->user;
    }
}

static double ignorance(const nm_trainer *trainer)
{
    const nm_task *task = &trainer->task;
    return task->type->ignorance ? task->type->ignorance(task) : log((double)trainer->model->target_size);
}

static nm_status update(nm_trainer *trainer, nm_progress *progress, nm_error *err)
{
    nm_backend *b = trainer->backend;
    nm_train_state *state = &trainer->state;
    const nm_norm_config *norms = nm_options_find(trainer->options, "norm");
    sums total = {0};
    nm_backend_zero(b, trainer->model->params.grads, nm_params_bytes(&trainer->model->params));
    for (int64_t micro = 0; micro < trainer->config->accumulate; micro++) {
        NM_TRY(nm_trainer_ready_batches(trainer, err));
        if (!micro)
            start_watching(trainer);
        nm_batch batch = trainer->task.type->batch(&trainer->task, NM_SPLIT_TRAIN, &trainer->batches,
                                                   state->batch, (uint32_t)state->step, true, &trainer->host);
        nm_status status = micro_batch(trainer, &batch, &total, err);
        trainer->tape.listen = NULL;
        NM_TRY(status);
        state->batch++;
        state->step++;
        if (norms->state == NM_STATE_MICRO_BATCH || micro + 1 == trainer->config->accumulate)
            nm_params_update_norms(&trainer->model->params, trainer->tape.grad_scale);
    }
    double units = (double)total.units, norm = gradient_norm(trainer) / units, loss = total.loss / units;
    double limit = trainer->config->divergence_factor * ignorance(trainer);
    if (!isfinite(loss) || !isfinite(norm) || !isfinite(total.penalty) || (limit > 0 && loss > limit))
        return name_bad_tensor(trainer, loss, err);
    double scale = 1 / units, lr = nm_schedule_lr(&trainer->schedule, state->update + 1);
    if (trainer->config->max_grad_norm > 0 && norm > trainer->config->max_grad_norm)
        scale *= trainer->config->max_grad_norm / (norm + 1e-6);
    if (trainer->watched)
        trainer->listener.watch->gradients(trainer->listener.watch->user, trainer->model, units);
    optimize(trainer, lr, scale);
    state->update++;
    state->tokens += total.tokens;
    state->sum_loss += total.loss;
    state->sum_nll += total.nll;
    state->sum_penalty += total.penalty;
    state->sum_norm += norm;
    state->sum_tokens += total.tokens;
    state->sum_units += total.units;
    state->sum_updates++;
    *progress = (nm_progress){.update = state->update,
                              .updates = trainer->total_updates,
                              .epoch = state->epoch,
                              .batch = state->batch,
                              .batches = trainer->batches.n,
                              .tokens = state->tokens,
                              .loss = loss,
                              .nll = total.nll / units,
                              .penalty = total.penalty / units,
                              .lr = lr,
                              .grad_norm = norm};
    return NM_OK;
}

nm_status nm_trainer_update(nm_trainer *trainer, nm_progress *progress, nm_error *err)
{
    bool profiled = trainer->device->profile && trainer->profile.warm;
    int64_t tokens = trainer->state.tokens;
    double began = nm_clock();
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
    nm_norm_snapshot memory = nm_norm_snapshot_save(params);
    nm_backend_dry_run(trainer->backend, true);
    nm_batch batch = trainer->task.type->largest(&trainer->task, &trainer->host);
    sums ignored = {0};
    nm_status status = micro_batch(trainer, &batch, &ignored, err);
    nm_backend_dry_run(trainer->backend, false);
    nm_norm_snapshot_restore(&memory, params);
    /* values, gradients, two moments; the soft-max's block of logits and scratch come on top and are small */
    trainer->peak_bytes = 4 * nm_params_bytes(params) + nm_tape_peak(&trainer->tape);
    return status;
}
