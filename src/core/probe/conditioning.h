/* Condition numbers of the inputs of layers (Wang et al. 2022, figures 6 and 7). X [tokens, d] is the input
 * of a layer at inference (running statistics, no dropout) over the batches of a split, and s_1 >= s_2 >= ...
 * are its singular values:
 *     C_p   = s_1 / s_ceil(p d)        p = 0.5, 0.8
 *     C_max = s_1
 * In pre-norm models the input of a layer is the input of its first norm, in post-norm models the output of
 * the last norm of the previous layer. The first layer of a post-norm model, whose input is not the output of
 * a norm, is omitted. */
#pragma once

#include "base/record.h"
#include "train/task.h"

#define NM_LAYER_CONDITION(F)                                                                                \
    F(chars(32), stack, "Name of the stack")                                                                 \
    F(code, layer, "Number of the layer, from 0")                                                            \
    F(real, c50, "C_50 = s_1 / s_ceil(0.5 d)")                                                               \
    F(real, c80, "C_80 = s_1 / s_ceil(0.8 d)")                                                               \
    F(real, c_max, "C_max = s_1, the largest singular value of the input", "cmax")                           \
    F(int, rows, "Number of tokens", "tokens")
NM_RECORD(nm_layer_condition, NM_LAYER_CONDITION)
const nm_field *nm_layer_condition_fields(void);

typedef struct nm_conditioning {
    nm_layer_condition *layers; /* [n], in the order of the forward pass */
    size_t n;
    int64_t batches;
} nm_conditioning;

/* max_batches 0: all. Release with nm_conditioning_release; empty on failure, and with norms inside or of
 * both positions (model.norm_position = inside, mix), where the inputs of some layers are not next to a norm.
 * Errors as nm_eval_pass_run. */
nm_status nm_conditioning_measure(nm_conditioning *conditioning, nm_task *task, nm_model *model,
                                  nm_split split, int64_t max_batches, nm_error *err);
void nm_conditioning_release(nm_conditioning *conditioning);
