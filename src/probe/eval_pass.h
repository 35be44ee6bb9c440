/* Walking a model over batches of a split and listening, for measurements after the fact. The model is left as it was:
 * what norms remember is put back. */
#ifndef NM_EVAL_PASS_H
#define NM_EVAL_PASS_H

#include "train/task.h"

typedef enum nm_eval_pass_kind {
    NM_EVAL_PASS_INFER,    /* as in use: remembered statistics, no dropout */
    NM_EVAL_PASS_BATCH,    /* statistics of the batch, no dropout */
    NM_EVAL_PASS_GRADIENTS /* as in training: dropout, statistics of the batch, backward; no update */
} nm_eval_pass_kind;

typedef struct nm_eval_pass {
    nm_task *task;
    nm_model *model; /* with gradients for NM_EVAL_PASS_GRADIENTS */
    nm_split split;
    nm_eval_pass_kind kind;
    int64_t max_batches; /* 0: all */
    void *user;
    void (*norm)(void *user, const nm_norm_call *call, bool backward); /* nm_tape.listen; may be NULL */
    /* After each batch; gradients are of this batch alone, summed over its units. out is empty for NM_EVAL_PASS_GRADIENTS.
     * May be NULL. */
    void (*batch)(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out);
} nm_eval_pass;

/* *n_batches (may be NULL): how many there were. NM_USAGE: the split is empty; NM_MEMORY. */
nm_status nm_eval_pass_run(const nm_eval_pass *pass, int64_t *n_batches, nm_error *err);

#endif
