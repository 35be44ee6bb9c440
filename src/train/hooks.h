/* Hooks of a training run: callbacks inside an update, for instruments such as those of src/probe. Hooks
 * must not change what they receive. */
#ifndef NM_HOOKS_H
#define NM_HOOKS_H

#include <jansson.h>

#include "model/model.h"

typedef struct nm_train_hooks {
    void *user; /* first argument of every hook */
    /* Whether the other hooks are called for this update (numbered from 1). checkpoint: the update ends
     * with a checkpoint, if that can be predicted. */
    bool (*is_due)(void *user, int64_t update, bool checkpoint);
    /* For each norm of the first batch, after its forward pass and after its backward pass
     * (nm_tape.listen). */
    void (*on_norm)(void *user, const nm_norm_call *call, bool backward);
    /* After the last backward pass, before the optimizer: gradients summed over n_targets target tokens or
     * examples. */
    void (*on_gradients)(void *user, const nm_model *model, double n_targets);
    /* After the optimizer. Returns an array of records for the log, which the caller releases, or NULL. */
    json_t *(*on_update)(void *user, const nm_model *model);
} nm_train_hooks;

#endif
