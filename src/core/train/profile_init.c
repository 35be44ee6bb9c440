/* The initialization Admin (Liu et al. 2020, Understanding the Difficulty of Training Transformers, section
 * 4.3) of the residual connections omega_i x_(i-1) + f_i of a stack: one forward pass with omega = 1 measures
 * the variances over all tokens and features, without dropout and augmentation, and then
 *     omega_1^2 = 1
 *     omega_i^2 = Var[x_0] + Var[f_1] + ... + Var[f_(i-1)]        i > 1, for all features
 * The paper's sum begins at f_1, which would make omega_1 zero; in the released code the input x_0 is its
 * first term, and omega_1 is 1. The pass reads the first batch of the training. */
#include <math.h>
#include <string.h>

#include "train/trainer_private.h"

enum { MAX_STACKS = 4 };

/* Sums of variances so far. */
typedef struct profile {
    struct {
        char name[32];
        double variance;
    } stacks[MAX_STACKS];
    int n;
} profile;

static void set_omega(void *user, const nm_residual_call *call)
{
    profile *p = user;
    nm_tensor *omega = call->omega;
    const size_t length = strcspn(call->site, "."), cols = omega ? (size_t)omega->cols : 0;
    int i = 0;
    if (!omega)
        return;
    while (i < p->n && (strncmp(p->stacks[i].name, call->site, length) || p->stacks[i].name[length]))
        i++;
    const bool first = i == p->n;
    if (first) {
        NM_ASSERT(i < MAX_STACKS && length < sizeof p->stacks[i].name);
        memcpy(p->stacks[p->n++].name, call->site, length);
        p->stacks[i].variance = nm_mat_variance(call->backend, call->stream);
    }
    /* This pass has read omega already: it was 1 in all of them. */
    const double value = first ? 1 : sqrt(p->stacks[i].variance);
    NM_AUTO_FREE double *values = nm_allocate(cols * sizeof *values);
    for (size_t k = 0; k < cols; k++)
        values[k] = value;
    nm_backend_write(call->backend, omega->data, values, cols);
    p->stacks[i].variance += nm_mat_variance(call->backend, call->branch);
}

nm_status nm_trainer_profile_init(nm_trainer *trainer, nm_error *err)
{
    nm_tape *tape = &trainer->tape;
    profile sums = {.n = 0};
    char *init = nm_options_get(trainer->options, "model.init");
    const bool profiled = init && !strcmp(init, "admin");
    free(init);
    if (!profiled)
        return NM_OK;
    NM_TRY(nm_trainer_ready_batches(trainer, 0, err));
    nm_norm_snapshot snapshot = nm_norm_snapshot_save(&trainer->model->params);
    const nm_batch batch = trainer->task.type->batch(&trainer->task, NM_SPLIT_TRAIN, &trainer->batches,
                                                     trainer->state.batch, 0, false, &trainer->host);
    nm_tape_start(tape, false, (uint64_t)trainer->config->seed, 0);
    tape->batch_stats = true;
    tape->n_targets = batch.n_targets;
    tape->mean_loss = trainer->task.type->mean_loss;
    tape->listen_residual = set_omega;
    tape->listener = &sums;
    trainer->task.type->loss(&trainer->task, trainer->model, tape, &batch, true);
    tape->batch_stats = false;
    tape->listen_residual = NULL;
    tape->listener = NULL;
    nm_norm_snapshot_restore(&snapshot, &trainer->model->params);
    return nm_tape_exhausted(tape) ? nm_fail(err, NM_MEMORY,
                                             "out of memory in the forward pass of "
                                             "model.init = admin")
                                   : NM_OK;
}
