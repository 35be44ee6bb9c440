/* Runs a model over the batches of a split with callbacks, for measurements of a trained model. Parameters
 * and running statistics are unchanged afterwards. */
#pragma once

#include "train/task.h"

typedef enum nm_eval_pass_kind {
    NM_EVAL_PASS_INFER,    /* inference: running statistics, no dropout */
    NM_EVAL_PASS_BATCH,    /* batch statistics, no dropout */
    NM_EVAL_PASS_GRADIENTS /* training without an update: batch statistics, dropout, backward */
} nm_eval_pass_kind;

typedef struct nm_eval_pass {
    nm_task *task;
    nm_model *model; /* with gradients for NM_EVAL_PASS_GRADIENTS */
    nm_split split;
    nm_eval_pass_kind kind;
    int64_t max_batches; /* 0: all */
    void *user;
    void (*norm)(void *user, const nm_norm_call *call, bool backward); /* nm_tape.listen; may be NULL */
    /* Called after each batch. The gradients are those of the loss summed over its targets. out: of the
     * batch; empty for NM_EVAL_PASS_GRADIENTS. May be NULL. */
    void (*batch)(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out);
} nm_eval_pass;

/* *n_batches (may be NULL): number of batches. Training batches are shuffled. NM_USAGE: the split is empty;
 * NM_MEMORY. */
nm_status nm_eval_pass_run(const nm_eval_pass *pass, int64_t *n_batches, nm_error *err);
