/* Instruments: whoever wants to look at updates while a run trains fills this table (src/probe does); the trainer knows
 * no more of them than this. Nothing that is shown here may be changed. */
#ifndef NM_HOOKS_H
#define NM_HOOKS_H

#include <jansson.h>

#include "model/model.h"

typedef struct nm_train_hooks {
    void *user;
    /* Whether to look at this update (from 1); checkpoint: it will end in one, as far as can be known before. The
     * functions below are called for such updates only. */
    bool (*wants)(void *user, int64_t update, bool checkpoint);
    /* Every norm of the update's first batch, forward and backward: nm_tape.listen. */
    void (*norm)(void *user, const nm_norm_call *call, bool backward);
    /* The gradients of the update are there, summed over `units` target tokens or examples; the optimizer has not run. */
    void (*gradients)(void *user, const nm_model *model, double units);
    /* The optimizer has run: objects for the log, an array that the caller releases; NULL: none. */
    json_t *(*updated)(void *user, const nm_model *model);
} nm_train_hooks;

#endif
