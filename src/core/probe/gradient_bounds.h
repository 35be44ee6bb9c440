/* Gradient bounds of PowerNorm (Shen et al. 2020, sections 4.1 and 4.2), checked on the training batches of a
 * model.
 *
 * Lemma 2. For PN-V, feature by feature over the B rows of a batch, with z = h / psi_B and y = gamma z +
 * beta:
 *     dL/dh     = (gamma / psi_B) (dL/dy - z mean(dL/dy z))
 *     |dL/dh|^2 = (gamma / psi_B)^2 (|dL/dy|^2 - <dL/dy, z / sqrt(B)>^2)      because mean(z^2) = 1
 *              <= (gamma / psi_B)^2 |dL/dy|^2
 * so the normalization does not increase the L2 norm of the gradient if gamma / psi_B <= 1. If the mean is
 * subtracted as well, as in BatchNorm, <dL/dy, 1 / sqrt(B)>^2 is also subtracted on the right. The lemma is
 * checked for every norm that publishes batch statistics and whose backward pass is the exact derivative. h
 * is the norm's input after its row scaling, if any.
 *
 * Theorem 4. PowerNorm's nu, with k = 1 - alpha, follows
 *     nu     <- (1 - k Gamma) nu + k Lambda
 *     Gamma  = mean(z^2)
 *     Lambda = mean(gamma dL/dy z)
 * While k Gamma <= 1, nu is a weighted mean of its old value and Lambda / Gamma with non-negative weights.
 * Hence, for every feature, with the initial value nu_0 and maximum and minimum over the batches,
 *     |nu| <= max(|nu_0|, max |Lambda| / min Gamma)
 * and the gradient (gamma dL/dy - nu z) / psi is bounded, too. */
#ifndef NM_GRADIENT_BOUNDS_H
#define NM_GRADIENT_BOUNDS_H

#include "train/task.h"

/* Relative values are divided by the bound (gamma / psi_B)^2 |dL/dy|^2 of the feature. */
typedef struct nm_lemma_site {
    char name[128];
    int64_t batches;
    double equality;  /* maximum difference between the two sides of the equation, relative */
    double ratio;     /* maximum of |dL/dh|^2, relative; at most 1 by the lemma */
    double below_one; /* fraction of the features with |gamma| / psi_B <= 1, mean over the batches */
    double shrink;    /* |dL/dh|_2 / |dL/dy|_2 over all elements of the site, mean over the batches */
    /* maximum difference between the norm's dL/dx and the formula, relative to the largest |dL/dx| */
    double backward;
} nm_lemma_site;

typedef struct nm_theorem_site {
    char name[128];
    int64_t batches;
    /* maximum of |nu| / bound over the features, after the first batch; at most 1 by the theorem */
    double ratio;
    double nu, lambda;  /* maximum of |nu| and |Lambda| */
    double gamma_least; /* minimum of Gamma */
    double assumption;  /* fraction of the features and batches with k Gamma <= 1 */
} nm_theorem_site;

typedef struct nm_group_gradient {
    char name[96]; /* "enc.0", "dec.final", "embed" */
    double norm;   /* root mean square over the batches of the group's gradient norm */
} nm_group_gradient;

typedef struct nm_gradient_bounds {
    nm_lemma_site *lemma; /* sites in the order of the forward pass */
    nm_theorem_site *theorem;
    nm_group_gradient *groups;
    size_t n_lemma, n_theorem, n_groups;
    int64_t batches;
} nm_gradient_bounds;

/* Runs training batches with dropout and batch statistics, without updates. The model must have gradients,
 * which are overwritten; parameters and running statistics do not change. max_batches 0: all. Release with
 * nm_gradient_bounds_release; empty on failure. Errors as nm_eval_pass_run. */
nm_status nm_gradient_bounds_measure(nm_gradient_bounds *bounds, nm_task *task, nm_model *model,
                                     int64_t max_batches, nm_error *err);
void nm_gradient_bounds_release(nm_gradient_bounds *bounds);

#endif
