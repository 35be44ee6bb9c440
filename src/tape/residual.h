/* Residual connections whose result a norm computes. */
#ifndef NM_RESIDUAL_H
#define NM_RESIDUAL_H

#include "tape/tape.h"

typedef struct nm_residual_saved {
    nm_dropout drop;
    nm_residual_sum sum;
    bool has_df; /* the norm after it has computed the gradient of f */
} nm_residual_saved;

/* Records *out = x + drop(f) without computing it; the node, or NULL if memory is exhausted. */
nm_node *nm_residual_record(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate, nm_tensor **out);
/* Computes the result of a recorded connection. */
void nm_residual_compute(nm_tape *tape, const nm_node *residual, nm_tensor *y);
/* The gradient of f, which the caller then computes; returns df, whose data is NULL if memory is exhausted. */
nm_mat nm_residual_grad_of(nm_tape *tape, nm_node *residual, nm_residual_grad *grad);

#endif
