/* What the PowerNorm paper proves of gradients, looked for in the numbers of a run (Shen et al. 2020, sections 4.1, 4.2).
 *
 * Lemma 2. For PN-V, feature by feature over the B rows of a batch, with z = h / psi_B and y = gamma z + beta,
 *     |dL/dh|^2 = (gamma / psi_B)^2 (|dL/dy|^2 - <dL/dy, z / sqrt(B)>^2) <= (gamma / psi_B)^2 |dL/dy|^2
 * so where gamma / psi_B <= 1 the norm makes no gradient longer. It is three lines of algebra from
 * dL/dh = (gamma / psi_B) (dL/dy - z mean(dL/dy z)) and mean(z^2) = 1. With a mean taken out, as in BatchNorm,
 * <dL/dy, 1 / sqrt(B)>^2 is subtracted too. Checked for every norm whose backward is the exact derivative and which
 * publishes batch statistics. h is the norm's input, behind the scaling of rows where there is one.
 *
 * Theorem 4. PowerNorm's nu follows nu <- (1 - k Gamma) nu + k Lambda, k = 1 - alpha, Gamma = mean(z^2),
 * Lambda = mean(gamma dL/dy z). While k Gamma <= 1 this is a mean of nu and Lambda / Gamma with weights that are not
 * negative, hence |nu| <= max(|nu at the start|, max |Lambda| / min Gamma) for every feature, and the gradient, which is
 * (gamma dL/dy - nu z) / psi, is bounded with it. */
#ifndef NM_GRADIENT_BOUNDS_H
#define NM_GRADIENT_BOUNDS_H

#include "train/task.h"

typedef struct nm_lemma_site {
    char name[128];
    int64_t batches;
    double equality;  /* largest |left - right| in shares of (gamma / psi_B)^2 |dL/dy|^2 */
    double ratio;     /* largest left side in the same shares: the lemma says at most 1 */
    double below_one; /* share of features with gamma / psi_B <= 1, over the batches */
    double shrink;    /* |dL/dh| / |dL/dy| over all numbers of the site, mean over the batches */
    double
        backward; /* largest difference between the norm's dL/dx and the formula's, in shares of the largest dL/dx */
} nm_lemma_site;

typedef struct nm_theorem_site {
    char name[128];
    int64_t batches;
    double ratio; /* largest |nu| / bound of a feature after the first batch: the theorem says at most 1 */
    double nu, lambda;  /* largest |nu|, |Lambda| */
    double gamma_least; /* smallest Gamma */
    double assumption;  /* share of (batch, feature) with k Gamma <= 1 */
} nm_theorem_site;

typedef struct
    nm_group_gradient { /* "enc.0", "dec.final", "embed": root of the mean square over the batches */
    char name[96];
    double norm;
} nm_group_gradient;

typedef struct nm_gradient_bounds {
    nm_lemma_site *lemma;
    nm_theorem_site *theorem;
    nm_group_gradient *groups;
    size_t n_lemma, n_theorem, n_groups;
    int64_t batches;
} nm_gradient_bounds;

/* Over training batches as in training (dropout, batch statistics), parameters at rest. The model must have gradients and
 * is left as it was, but for these. Release with nm_gradient_bounds_release. */
nm_status nm_gradient_bounds_measure(nm_gradient_bounds *bounds, nm_task *task, nm_model *model,
                                     int64_t max_batches, nm_error *err);
void nm_gradient_bounds_release(nm_gradient_bounds *bounds);

#endif
