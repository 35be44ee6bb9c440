#include "probe/eval_pass.h"

static nm_status run_batch(const nm_eval_pass *pass, nm_tape *tape, const nm_batch *batch, int64_t i,
                           nm_error *err)
{
    nm_model *model = pass->model;
    nm_model_output out = {0};
    bool gradients = pass->kind == NM_EVAL_PASS_GRADIENTS;
    nm_tape_start(tape, gradients, pass->task->seed, (uint32_t)i);
    tape->batch_stats = pass->kind == NM_EVAL_PASS_BATCH;
    tape->n_targets = batch->n_targets;
    tape->mean_loss = pass->task->type->mean_loss;
    if (gradients) {
        nm_params_zero_grads(&model->params, model->params.grads);
        pass->task->type->loss(pass->task, model, tape, batch, true);
        NM_TRY(nm_tape_backward(tape, err));
    } else {
        out = model->type->forward(model, tape, batch);
        if (nm_tape_exhausted(tape))
            return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", batch->tokens);
    }
    if (pass->batch)
        pass->batch(pass->user, tape, batch, &out);
    return NM_OK;
}

static nm_status run_batches(const nm_eval_pass *pass, const nm_batches *batches, int64_t n, nm_error *err)
{
    NM_AUTO(nm_arena_release) nm_arena host = {0};
    nm_tape tape;
    nm_status status = NM_OK;
    nm_arena_init(&host, SIZE_MAX);
    nm_tape_init_growing(&tape, pass->model->backend);
    tape.listen = pass->norm;
    tape.listener = pass->user;
    for (int64_t i = 0; i < n && status == NM_OK; i++) {
        nm_batch batch = pass->task->type->batch(pass->task, pass->split, batches, i, (uint32_t)i,
                                                 pass->kind == NM_EVAL_PASS_GRADIENTS, &host);
        status = run_batch(pass, &tape, &batch, i, err);
        nm_params_update_norms(&pass->model->params, tape.grad_scale);
        NM_THEN(status, nm_check_stop(pass->task->stop, err));
    }
    nm_tape_release(&tape);
    return status;
}

nm_status nm_eval_pass_run(const nm_eval_pass *pass, int64_t *n_batches, nm_error *err)
{
    nm_batches batches = {0};
    /* The first batches of a training set that is sorted by length are not representative. */
    bool shuffle = pass->split == NM_SPLIT_TRAIN;
    NM_TRY(pass->task->type->epoch(pass->task, pass->split, 0, shuffle, &batches, err));
    int64_t n = pass->max_batches && pass->max_batches < batches.n ? pass->max_batches : batches.n;
    nm_norm_snapshot statistics = nm_norm_snapshot_save(&pass->model->params);
    nm_status status = run_batches(pass, &batches, n, err);
    nm_norm_snapshot_restore(&statistics, &pass->model->params);
    nm_batches_release(&batches);
    if (n_batches)
        *n_batches = n;
    return status;
}
