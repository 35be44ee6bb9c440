/* Gradient bounds of PowerNorm (Shen et al. 2020, sections 4.1 and 4.2), checked on the training batches of a model.
 *
 * Lemma 2. For PN-V, feature by feature over the B rows of a batch, with z = h / psi_B and y = gamma z + beta:
 *     dL/dh     = (gamma / psi_B) (dL/dy - z mean(dL/dy z))
 *     |dL/dh|^2 = (gamma / psi_B)^2 (|dL/dy|^2 - <dL/dy, z / sqrt(B)>^2)      because mean(z^2) = 1
 *              <= (gamma / psi_B)^2 |dL/dy|^2
 * so the norm does not increase the norm of the gradient if gamma / psi_B <= 1. If the mean is subtracted as well, as in
 * BatchNorm, <dL/dy, 1 / sqrt(B)>^2 is subtracted on the right, too. Checked for every norm that publishes batch
 * statistics and whose backward pass is the exact derivative. h is the norm's input after its row scaling, if any.
 *
 * Theorem 4. PowerNorm's nu, with k = 1 - alpha, follows
 *     nu     <- (1 - k Gamma) nu + k Lambda
 *     Gamma  = mean(z^2)
 *     Lambda = mean(gamma dL/dy z)
 * While k Gamma <= 1, nu is a weighted mean of its old value and Lambda / Gamma with non-negative weights, hence for
 * every feature
 *     |nu| <= max(|nu at the start|, max |Lambda| / min Gamma)
 * and the gradient (gamma dL/dy - nu z) / psi is bounded, too. */
#ifndef NM_GRADIENT_BOUNDS_H
#define NM_GRADIENT_BOUNDS_H

#include "train/task.h"

/* Relative values are divided by the bound (gamma / psi_B)^2 |dL/dy|^2 of the feature. */
typedef struct nm_lemma_site {
    char name[128];
    int64_t batches;
    double equality;  /* maximum of |left - right| of the equation, relative */
    double ratio;     /* maximum of |dL/dh|^2, relative: at most 1 by the lemma */
    double below_one; /* fraction of the features with gamma / psi_B <= 1, mean over the batches */
    double shrink;    /* |dL/dh|_2 / |dL/dy|_2 over all elements of the site, mean over the batches */
    double
        backward; /* maximum difference between the norm's dL/dx and the formula's, relative to the largest |dL/dx| */
} nm_lemma_site;

typedef struct nm_theorem_site {
    char name[128];
    int64_t batches;
    double ratio; /* maximum of |nu| / bound of a feature after the first batch: at most 1 by the theorem */
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

/* Over training batches with dropout and batch statistics; parameters are fixed. The model must have gradients, which
 * change; its other contents do not. Release with nm_gradient_bounds_release. */
nm_status nm_gradient_bounds_measure(nm_gradient_bounds *bounds, nm_task *task, nm_model *model,
                                     int64_t max_batches, nm_error *err);
void nm_gradient_bounds_release(nm_gradient_bounds *bounds);

#endif
