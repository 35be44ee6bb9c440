/* Exponential moving average of the parameters (train.ema_decay), as Marian's exponential smoothing and the
 * EMA of fairseq:
 *
 *     d  = min(decay, (1 + t) / (10 + t))      t: number of updates
 *     a := d a + (1 - d) p                     after each update
 *
 * Validations and best.safetensors use a in place of the parameters p; training and checkpoints use p, and
 * the training state has a. Running statistics of norms are not averaged again: they are those of p. */
#pragma once

#include "base/safetensors.h"
#include "nn/params.h"

typedef struct nm_ema {
    nm_params *params;
    double decay;
    void *values; /* device, with the layout of params->values; NULL: no average */
} nm_ema;

/* decay 0: no average, and the functions below have no effect. params must outlive it. Release it in every
 * case.
 *
 * NM_MEMORY  out of memory */
nm_status nm_ema_init(nm_ema *ema, nm_params *params, double decay, nm_error *err);
void nm_ema_release(nm_ema *ema);
/* Makes the average equal to the parameters. */
void nm_ema_start(nm_ema *ema);
/* After the update with this number, from 1. */
void nm_ema_add(nm_ema *ema, int64_t update);
/* Exchanges the parameters for the average until nm_ema_restore. In between, the memory of the gradients has
 * the parameters. */
void nm_ema_use(nm_ema *ema);
void nm_ema_restore(nm_ema *ema);

/* Whether best.safetensors has the average of the training state as parameters, the first tensors of its
 * type, and the other tensors of the checkpoint's model.
 *
 * NM_FORMAT  it has not */
nm_status nm_ema_check_model(const nm_safetensors *best, const nm_safetensors *model,
                             const nm_safetensor *average, nm_error *err);
