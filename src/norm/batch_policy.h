/* Normalization of each feature by the numbers of the batch: what BatchNorm, PN-V and Regularized BatchNorm
 * share. centered:    z = (h - mean) / sqrt(variance + epsilon) otherwise:   z = h / sqrt(mean(h^2) +
 * epsilon) y = weight z + bias        dh = (q - [mean(q)] - z mean(q z)) / sqrt(... + epsilon), q = weight dy
 * with h = x scaled per row and group where groups > 0. With clamp the divisor is sqrt(max(variance,
 * epsilon)), and a clamped variance is a constant in the backward pass.
 *
 * State: "running_mean" when centered, then "running_var" (mean square when not centered); decay is the
 * weight of the old value. Published: batch_mean and batch_var, or batch_square; running_mean, running_var as
 * they were before this call; scale; grad_sum and grad_sum_z (sums over rows of dy and dy z). */
#ifndef NM_BATCH_POLICY_H
#define NM_BATCH_POLICY_H

#include "norm/common.h"

typedef struct nm_batch_norm_policy {
    bool centered, clamp;
    bool unbiased_running; /* n/(n - 1) on the variance that goes into the running value */
    int32_t groups;
    double decay, epsilon;
} nm_batch_norm_policy;

void nm_batch_norm_shape(bool centered, const nm_norm_site *place, nm_norm_shape *shape);
/* False: out of memory, and nothing has changed. */
bool nm_batch_norm_train(nm_norm_call *call, const nm_batch_norm_policy *policy);
void nm_batch_norm_infer(nm_norm_call *call, const nm_batch_norm_policy *policy);
/* False when rows are scaled first. */
bool nm_batch_norm_affine(const nm_norm *norm, nm_backend *backend, const nm_batch_norm_policy *policy,
                          double *scale, double *shift);
/* extra_mean and extra_z, or NULL, are added to dh as extra_mean + extra_z z: gradients of a penalty. */
void nm_batch_norm_backward(nm_norm_call *call, const nm_batch_norm_policy *policy, const void *extra_mean,
                            const void *extra_z);

#endif
