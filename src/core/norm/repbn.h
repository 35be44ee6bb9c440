/* RepBN as a part of other norms: the functions of repbn.c for factor y. */
#pragma once

#include "norm/batch_policy.h"

/* The first member of the options of every type that uses these functions. */
typedef struct nm_repbn_policy {
    nm_batch_norm_policy batch; /* without scaling and clamp */
    double alpha_init, weight_init;
} nm_repbn_policy;

/* Parameters weight, bias, alpha; state and statistics of nm_batch_norm_shape_centered. */
void nm_repbn_shape(const void *policy, const nm_norm_site *site, nm_norm_shape *shape);
typedef struct nm_repbn_parts { /* of a forward pass in training */
    nm_batch_norm_measured batch;
    void *alpha, *weight, *bias, *zero; /* [width] */
} nm_repbn_parts;
/* Computes the statistics. Publishes what nm_batch_norm_measure does, and alpha, [width]. False if memory is
 * exhausted; then nothing has been collected. */
bool nm_repbn_measure(nm_norm_call *call, nm_repbn_parts *parts);
/* y = factor RepBN(x), or y += */
void nm_repbn_apply(nm_norm_call *call, const nm_repbn_parts *parts, double factor, bool add);
/* Gradients of factor RepBN(x). */
void nm_repbn_backward_scaled(nm_norm_call *call, double factor);
/* Allocate the memory of nm_repbn_measure and of nm_repbn_backward_scaled without their computations: the
 * memory of a training step must not depend on the update. False if memory is exhausted. */
bool nm_repbn_reserve(nm_norm_call *call);
bool nm_repbn_reserve_backward(nm_norm_call *call);
void nm_repbn_infer(nm_norm_call *call);
void nm_repbn_infer_backward(nm_norm_call *call);
bool nm_repbn_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift);
