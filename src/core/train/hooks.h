/* Hooks of a training run: callbacks inside an update, for instruments such as those of src/core/probe. Hooks
 * must not change the calls and models that they receive. */
#pragma once

#include <jansson.h>

#include "model/model.h"

typedef struct nm_train_hooks {
    void *user; /* first argument of every hook */
    /* Whether the other hooks are called for this update, from 1. checkpoint: the update ends with a
     * checkpoint, if this can be predicted. */
    bool (*is_due)(void *user, int64_t update, bool checkpoint);
    /* For each norm in the first batch of the update, after its forward call and after its backward call
     * (nm_tape.listen). */
    void (*on_norm)(void *user, const nm_norm_call *call, bool backward);
    /* The same for each residual connection and softmax attention of the stacks, after its forward call; may
     * be NULL. */
    void (*on_residual)(void *user, const nm_residual_call *call);
    void (*on_attention)(void *user, const nm_attention_call *call);
    /* After the last backward pass, before the optimizer: gradients summed over n_targets target tokens or
     * examples, and the learning rate of the schedule. */
    void (*on_gradients)(void *user, const nm_model *model, double n_targets, double learning_rate);
    /* After the optimizer. Returns an array of records for the log, which the caller releases, or NULL. */
    json_t *(*on_update)(void *user, const nm_model *model);
} nm_train_hooks;
