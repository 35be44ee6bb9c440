/* How well conditioned the inputs of layers are (Wang et al. 2022, figures 6 and 7): singular values of X [tokens, d], the
 * input features of a layer, over the batches of a split, as in use (remembered statistics, no dropout):
 *     C_p = s_1 / s_ceil(p d), p = 0.5, 0.8        C_max = s_1
 * The input of a layer is what its first norm reads (pre-norm) or what the last norm of the layer before it gives
 * (post-norm); so in post-norm the first layer, whose input no norm has made, is left out. */
#ifndef NM_CONDITIONING_H
#define NM_CONDITIONING_H

#include "train/task.h"

typedef struct nm_layer_condition {
    char stack[32];
    int layer; /* from 0 */
    int64_t rows;
    double c50, c80, largest;
} nm_layer_condition;

typedef struct nm_conditioning {
    nm_layer_condition *layers;
    size_t n;
    int64_t batches;
} nm_conditioning;

/* Release with nm_conditioning_release. */
nm_status nm_conditioning_measure(nm_conditioning *conditioning, nm_task *task, nm_model *model,
                                  nm_split split, int64_t max_batches, nm_error *err);
void nm_conditioning_release(nm_conditioning *conditioning);

#endif
