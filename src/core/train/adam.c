/* Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019): the kernel adam with its variants
 * (norma/backend.h). */
#include "train/optimizer_type.h"

static void update(const nm_optimizer_update *u, nm_adam_variant variant)
{
    const nm_adam adam = {.variant = variant,
                          .lr = u->lr,
                          .beta1 = u->config->beta1,
                          .beta2 = u->config->beta2,
                          .eps = u->config->eps,
                          .weight_decay = u->weight_decay,
                          .step = u->step};
    NM_CALL(u->backend, adam, .config = &adam, .scale = u->scale, .n = u->n, .p = u->p, .g = u->g, .m = u->m,
            .v = u->v);
}

static void update_torch(const nm_optimizer_update *u)
{
    update(u, NM_ADAM_TORCH);
}

static void update_fairseq(const nm_optimizer_update *u)
{
    update(u, NM_ADAM_FAIRSEQ);
}

static void update_adamw(const nm_optimizer_update *u)
{
    update(u, NM_ADAMW_TORCH);
}

#define ADAM .options = "beta1 beta2 eps weight_decay", .state = 0, .m = true, .v = true
const nm_optimizer_type nm_optimizer_adam = {ADAM, .update = update_torch};
const nm_optimizer_type nm_optimizer_adam_fairseq = {ADAM, .update = update_fairseq};
const nm_optimizer_type nm_optimizer_adamw = {ADAM, .update = update_adamw};
