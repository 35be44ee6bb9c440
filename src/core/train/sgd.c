/* SGD with momentum: the kernel sgd (norma/backend.h). */
#include "train/optimizer_type.h"

static void update(const nm_optimizer_update *u)
{
    NM_CALL(u->backend, sgd, .lr = u->lr, .momentum = u->config->momentum, .scale = u->scale,
            .clip = u->clip_value, .weight_decay = u->weight_decay, .n = u->n, .p = u->p, .g = u->g,
            .v = u->v);
}

const nm_optimizer_type nm_optimizer_sgd = {
    .options = "momentum clip_value weight_decay", .state = 1, .v = true, .update = update};
