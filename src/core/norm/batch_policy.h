/* Batch statistics of each feature: the common part of BatchNorm, PN-V, Regularized BatchNorm and RepBN.
 *
 * Definition, over the n rows (tokens) of the batch; h = x, or x scaled per row and group (option scaling):
 *
 *     centered (BatchNorm, RBN)                        not centered (PN-V)
 *     mu     = mean(h)                 batch_mean
 *     s2     = mean((h - mu)^2)        batch_var       p   = mean(h^2)               batch_square
 *     sigma  = sqrt(s2 + epsilon)      1 / scale       psi = sqrt(p + epsilon)       1 / scale
 *     z      = (h - mu) / sigma                        z   = h / psi
 *
 *     y      = weight z + bias
 *
 *     With count_padding and a fraction f of padding rows, which have the value mu, s2 is (1 - f) mean((h -
 *     mu)^2) and the term z mean(q z) is multiplied by 1 - f: means over the padded batch, whose padding has
 *     no gradient. n/(n - 1) counts tokens.
 *
 *     With clamp, sigma = sqrt(max(s2, epsilon)); where s2 <= epsilon, sigma is a constant, and dh has no
 *     term z mean(q z).
 *
 * Inference: running_mean and running_var replace mu and s2 (or p).
 *
 * Backward, q = weight dy:
 *
 *     dh      = (q - mean(q) - z mean(q z)) / sigma          dh = (q - z mean(q z)) / psi
 *     dweight = sum(dy z)
 *     dbias   = sum(dy)
 *
 * Running state, once per update; decay is the weight of the old value:
 *
 *     running_mean = decay running_mean + (1 - decay) mu
 *     running_var  = decay running_var  + (1 - decay) s2 n/(n - 1)      (n/(n - 1): option unbiased_running)
 *     running_var  = decay running_var  + (1 - decay) p                 not centered
 */
#pragma once

#include "norm/common.h"

/* The first member of the options of every type that uses these functions. */
typedef struct nm_batch_norm_policy {
    double decay, epsilon;
    nm_norm_scaling scaling;
    bool clamp, unbiased_running, count_padding;
} nm_batch_norm_policy;

nm_status nm_batch_norm_check(const void *policy, const nm_norm_site *site, nm_error *err);
/* Parameters weight, bias; state running_mean, running_var; statistics of the mean and the variance. */
void nm_batch_norm_shape_centered(const void *policy, const nm_norm_site *site, nm_norm_shape *shape);
/* The same without the mean: running_var and its statistic are mean squares. */
void nm_batch_norm_shape_uncentered(const void *policy, const nm_norm_site *site, nm_norm_shape *shape);
/* Publishes batch_mean and batch_var, or batch_square; running_mean, running_var; scale. */
void nm_batch_norm_train(nm_norm_call *call);
/* The first half of nm_batch_norm_train, up to the statistics; the other half is
 *     y = weight (h - mean) scale + bias                 kernel feature_norm
 * False if memory is exhausted; then nothing has been collected. */
typedef struct nm_batch_norm_measured {
    nm_feature_norm spec;
    void *row_scale, *mean, *square,
        *scale; /* mean: NULL if not centered; square: the variance or the mean square */
} nm_batch_norm_measured;
bool nm_batch_norm_measure(nm_norm_call *call, nm_batch_norm_measured *m);
void nm_batch_norm_infer(nm_norm_call *call);
void nm_batch_norm_update_state(nm_norm_call *call);
/* out = the running value after an update by the batch of this call only; i: index of the state. */
void nm_batch_norm_next_state(nm_norm_call *call, int i, const void *statistic, double rows, void *out);
/* Publishes grad_sum, the sum of dy over rows, and grad_sum_z, that of dy z. */
void nm_batch_norm_backward(nm_norm_call *call);
/* The same for factor y, with further terms: dh += terms.dy dy + terms.mean + terms.z z; vectors [width], or
 * NULL. */
typedef struct nm_batch_norm_terms {
    double factor;
    const void *dy, *mean, *z;
} nm_batch_norm_terms;
void nm_batch_norm_backward_with(nm_norm_call *call, const nm_batch_norm_terms *terms);
/* False if rows are scaled first. */
bool nm_batch_norm_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift);
