/* Residual connections x + drop(f) that a norm computes together with its own output
 * (nm_residual_normalize). */
#pragma once

#include "nn/tape.h"

typedef struct nm_residual_saved {
    nm_dropout drop;
    nm_residual_sum sum;
    bool has_df; /* the backward pass of the norm has computed the gradient of f */
} nm_residual_saved;

/* Records *out = x + drop(f) without computing it. Returns the node, or NULL if the tape is exhausted. */
nm_node *nm_residual_record(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate, nm_tensor **out);
/* Computes the result y of a recorded connection. */
void nm_residual_compute(nm_tape *tape, const nm_node *residual, nm_tensor *y);
/* Sets *grad for a caller that then computes the gradient of f. Returns grad->df, whose data is NULL if the
 * tape is exhausted. */
nm_mat nm_residual_grad_of(nm_tape *tape, nm_node *residual, nm_residual_grad *grad);
/* dx += dy for the result y of x + .., whose gradient is not needed afterwards: x takes over its memory if it
 * has no gradient yet. */
void nm_residual_pass_gradient(nm_tape *tape, nm_tensor *y, nm_tensor *x);
