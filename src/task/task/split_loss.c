#include "task/split_loss.h"

#include "base/memory.h"

typedef struct evaluation {
    nm_task *task;
    nm_model *model;
    nm_split split;
    nm_tape tape;
    nm_arena host;
} evaluation;

typedef struct batch_loss {
    double loss, nll; /* sums over targets */
    int64_t targets, masked;
} batch_loss;

static nm_status measure_batch(evaluation *self, const nm_batches *batches, int64_t i, batch_loss *loss,
                               nm_error *err)
{
    double sums[2];
    nm_batch batch = self->task->type->batch(self->task, self->split, batches, i, 0, false, &self->host);
    nm_tape_start(&self->tape, false, 0, 0);
    const double *device_sums = self->task->type->loss(self->task, self->model, &self->tape, &batch, true);
    if (!device_sums)
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", batch.tokens);
    nm_backend_download(self->model->backend, sums, device_sums, sizeof sums);
    NM_TRY(nm_backend_check(self->model->backend, err));
    *loss = (batch_loss){sums[0], sums[1], batch.n_targets, batch.n_ignored};
    return NM_OK;
}

/* The batches are divided among the processes; the losses are added in the order of the batches. */
static nm_status add_batches(evaluation *self, const nm_batches *batches, nm_split_loss *total, nm_error *err)
{
    nm_comm alone = {.type = &nm_comm_none, .size = 1}, *comm = self->task->comm ? self->task->comm : &alone;
    size_t each = ((size_t)batches->n + (size_t)comm->size - 1) / (size_t)comm->size;
    NM_AUTO_FREE batch_loss *losses = nm_allocate(((size_t)comm->size * each + 1) * sizeof *losses);
    nm_status status = NM_OK;
    for (int64_t i = comm->rank; i < batches->n && status == NM_OK; i += comm->size)
        status = measure_batch(self, batches, i,
                               &losses[(size_t)comm->rank * each + (size_t)(i / comm->size)], err);
    NM_THEN(status, nm_comm_gather(comm, losses, each * sizeof *losses, err));
    for (int64_t i = 0; i < batches->n && status == NM_OK; i++) {
        const batch_loss *loss = &losses[(size_t)(i % comm->size) * each + (size_t)(i / comm->size)];
        total->loss += loss->loss;
        total->nll += loss->nll;
        total->targets += loss->targets;
        total->masked += loss->masked;
    }
    return status;
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
