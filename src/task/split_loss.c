#include "task/split_loss.h"

typedef struct evaluation {
    nm_task *task;
    nm_model *model;
    nm_split split;
    nm_tape tape;
    nm_arena host;
} evaluation;

static nm_status add_batches(evaluation *self, const nm_batches *batches, nm_split_loss *total, nm_error *err)
{
    for (int64_t i = 0; i < batches->n; i++) {
        double sums[2];
        nm_batch batch = self->task->type->batch(self->task, self->split, batches, i, 0, false, &self->host);
        nm_tape_start(&self->tape, false, 0, 0);
        const double *device_sums =
            self->task->type->loss(self->task, self->model, &self->tape, &batch, true);
        if (!device_sums)
            return nm_fail(err, NM_MEMORY, "a batch of %d tokens doesn't fit", batch.tokens);
        nm_backend_download(self->model->backend, sums, device_sums, sizeof sums);
        total->loss += sums[0];
        total->nll += sums[1];
        total->targets += batch.n_targets;
        total->masked += batch.n_ignored;
    }
    return NM_OK;
}

nm_status nm_split_loss_measure(nm_task *task, nm_model *model, nm_split split, nm_split_loss *loss,
                                nm_error *err)
{
    evaluation self = {.task = task, .model = model, .split = split};
    nm_batches batches;
    NM_TRY(task->type->epoch(task, split, 0, false, &batches, err));
    *loss = (nm_split_loss){.skipped = batches.skipped};
    nm_tape_init_growing(&self.tape, model->backend);
    nm_arena_init(&self.host, SIZE_MAX);
    nm_status status = add_batches(&self, &batches, loss, err);
    nm_arena_release(&self.host);
    nm_tape_release(&self.tape);
    nm_batches_release(&batches);
    loss->loss /= (double)loss->targets;
    loss->nll /= (double)loss->targets;
    return status;
}
