/* Validation: the loss with running statistics; if norms use batch statistics also the loss with the
 * statistics of each batch (RBN reduces the difference of the two losses); the score of the task. The
 * training state does not change. */
#include <math.h>

#include "train/option_check.h"
#include "train/trainer_private.h"

typedef struct validation_loss {
    double loss, nll;         /* means over targets */
    int64_t targets, ignored; /* numbers of targets; of masked ones */
} validation_loss;

typedef struct batch_loss {
    double sums[2];
    int64_t n_targets, n_ignored;
} batch_loss;

/* Losses of the batches of this process; batch_stats: of all batches, with batch statistics, without dropout.
 * Ends early at a request to stop, which the caller has to check with nm_ranks_share_stop. */
static nm_status compute_losses(nm_trainer *trainer, const nm_batches *batches, bool batch_stats,
                                batch_loss *losses, nm_error *err)
{
    nm_backend *b = trainer->backend;
    const nm_comm *comm = trainer->comm;
    for (int64_t i = 0; i < batches->n; i++) {
        if (trainer->stop || nm_stop_is_set(trainer->callbacks.stop))
            break;
        if (!batch_stats && i % comm->size != comm->rank)
            continue;
        nm_batch batch =
            trainer->task.type->batch(&trainer->task, NM_SPLIT_VALID, batches, i, 0, false, &trainer->host);
        nm_tape_start(&trainer->tape, false, 0, 0);
        trainer->tape.batch_stats = batch_stats;
        double *device_sums =
            trainer->task.type->loss(&trainer->task, trainer->model, &trainer->tape, &batch, true);
        trainer->tape.batch_stats = false;
        if (batch_stats)
            nm_params_update_norms(&trainer->model->params, trainer->tape.grad_scale);
        if (!device_sums)
            return nm_fail(err, NM_MEMORY,
                           "out of memory for a validation batch of %d tokens: lower train.max_tokens",
                           batch.tokens);
        nm_backend_download(b, losses[i].sums, device_sums, sizeof losses[i].sums);
        NM_TRY(nm_backend_check(b, err));
        losses[i].n_targets = batch.n_targets;
        losses[i].n_ignored = batch.n_ignored;
    }
    return NM_OK;
}

/* Every process gets the losses of all batches; rank i mod (number of ranks) has computed batch i. */
static nm_status share_losses(nm_comm *comm, batch_loss *losses, int64_t n, nm_error *err)
{
    if (comm->size == 1)
        return NM_OK;
    size_t each = ((size_t)n + (size_t)comm->size - 1) / (size_t)comm->size;
    NM_AUTO_FREE batch_loss *all = nm_allocate((size_t)comm->size * each * sizeof *all);
    for (int64_t i = comm->rank; i < n; i += comm->size)
        all[(size_t)comm->rank * each + (size_t)(i / comm->size)] = losses[i];
    nm_status status = nm_comm_gather(comm, all, each * sizeof *all, err);
    for (int64_t i = 0; i < n; i++)
        losses[i] = all[(size_t)(i % comm->size) * each + (size_t)(i / comm->size)];
    return status;
}

/* Mean losses over all batches, summed in their order, so that the result does not depend on the number of
 * processes. With batch_stats the running statistics change from batch to batch, and every process computes
 * all batches. */
static nm_status loss_over(nm_trainer *trainer, const nm_batches *batches, bool batch_stats,
                           validation_loss *mean, nm_error *err)
{
    NM_AUTO_FREE batch_loss *losses = nm_allocate((size_t)batches->n * sizeof *losses);
    nm_status status = compute_losses(trainer, batches, batch_stats, losses, err);
    if (status == NM_OK && !batch_stats)
        status = share_losses(trainer->comm, losses, batches->n, err);
    NM_THEN(status, nm_ranks_share_stop(trainer, err));
    double sums[2] = {0};
    int64_t n_targets = 0, ignored = 0;
    for (int64_t i = 0; i < batches->n; i++) {
        sums[0] += losses[i].sums[0];
        sums[1] += losses[i].sums[1];
        n_targets += losses[i].n_targets;
        ignored += losses[i].n_ignored;
    }
    *mean = (validation_loss){sums[0] / (double)n_targets, sums[1] / (double)n_targets, n_targets, ignored};
    return status;
}

/* The loss with batch statistics. Its forward passes update the running statistics, which are restored
 * afterwards. */
static nm_status batch_loss_over(nm_trainer *trainer, const nm_batches *batches, nm_training_validation *v,
                                 nm_error *err)
{
    nm_norm_snapshot snapshot = nm_norm_snapshot_save(&trainer->model->params);
    validation_loss mean;
    nm_status status = loss_over(trainer, batches, true, &mean, err);
    nm_norm_snapshot_restore(&snapshot, &trainer->model->params);
    if (status == NM_OK) {
        v->batch_loss = mean.loss;
        v->batch_nll = mean.nll;
    }
    return status;
}

/* The epoch of the last update: a resumed run may already be at the beginning of the next one. */
static int64_t last_epoch(const nm_train_state *state)
{
    return state->batch || !state->epoch ? state->epoch : state->epoch - 1;
}

static void set_score(nm_training_validation *v, const nm_task_score *score)
{
    v->score_name = score->name;
    v->score_title = score->name ? score->title : NULL;
    v->signature = score->name ? score->signature : NULL;
    v->score = score->name ? score->value : NAN;
    v->samples = score->samples;
}

nm_status nm_trainer_validate(nm_trainer *trainer, nm_training_validation *v, nm_task_score *score,
                              nm_error *err)
{
    double start = nm_clock();
    *v = (nm_training_validation){.update = trainer->state.update,
                                  .epoch = last_epoch(&trainer->state),
                                  .batch_loss = NAN,
                                  .batch_nll = NAN,
                                  .noncausal = nm_task_is_noncausal(trainer->task.type, trainer->options),
                                  .training_seconds = trainer->state.seconds};
    *score = (nm_task_score){0};
    nm_batches batches;
    NM_TRY(trainer->task.type->epoch(&trainer->task, NM_SPLIT_VALID, 0, false, &batches, err));
    validation_loss mean = {.loss = NAN, .nll = NAN};
    nm_status status = loss_over(trainer, &batches, false, &mean, err);
    if (status == NM_OK && mean.targets && !isfinite(mean.loss)) /* the same on all ranks */
        status = nm_fail_validation(trainer, mean.loss, err);
    v->loss = mean.loss;
    v->nll = mean.nll;
    v->masked = mean.ignored;
    if (status == NM_OK && trainer->config->batch_loss && nm_model_uses_batch(&trainer->model->params) &&
        trainer->model->params.n_state)
        status = batch_loss_over(trainer, &batches, v, err);
    nm_batches_release(&batches);
    v->perplexity = nm_task_has_perplexity(trainer->task.type, trainer->options) ? exp(v->nll) : NAN;
    if (status == NM_OK && trainer->config->score) {
        status = trainer->task.type->score(&trainer->task, trainer->model, NM_SPLIT_VALID,
                                           trainer->config->validate_examples, score, err);
        const bool has_score = status == NM_OK;
        status = nm_ranks_share_interruption(trainer, status, err);
        if (has_score && status != NM_OK)
            nm_task_score_release(score);
    }
    set_score(v, score);
    v->seconds = nm_clock() - start;
    trainer->validating += v->seconds;
    return status;
}

void nm_task_score_release(nm_task_score *score)
{
    NM_FREE(score->samples, (void *)(uintptr_t)score->counts.values);
    *score = (nm_task_score){0};
}
