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
#pragma once

#include "base/record.h"
#include "train/task.h"

/* The bound of Lemma 2 is (gamma / psi_B)^2 |dL/dy|^2 of the feature. */
#define NM_LEMMA_SITE(F)                                                                                     \
    F(chars(128), name, "Name of the site", "site")                                                          \
    F(int, batches, "Number of batches", "")                                                                 \
    F(real, ratio, "Maximum of |dL/dh|^2, relative to the bound; at most 1 by the lemma")                    \
    F(real, equality, "Maximum difference between the two sides of the equation, relative to the bound")     \
    F(real, below_one, "Fraction of the features with |gamma| / psi_B <= 1, mean over the batches")          \
    F(real, shrink, "|dL/dh| / |dL/dy| over all elements of the site, mean over the batches")                \
    F(real, backward,                                                                                        \
      "Maximum difference between the norm's dL/dx and the formula, relative to the "                        \
      "largest |dL/dx|")
NM_RECORD(nm_lemma_site, NM_LEMMA_SITE)
const nm_field *nm_lemma_site_fields(void);

#define NM_THEOREM_SITE(F)                                                                                   \
    F(chars(128), name, "Name of the site", "site")                                                          \
    F(int, batches, "Number of batches", "")                                                                 \
    F(real, ratio,                                                                                           \
      "Maximum of |nu| / bound over the features after the first batch; at most 1 by the "                   \
      "theorem")                                                                                             \
    F(real, nu, "Maximum of |nu|")                                                                           \
    F(real, lambda, "Maximum of |Lambda|")                                                                   \
    F(real, gamma_least, "Minimum of Gamma")                                                                 \
    F(real, assumption, "Fraction of the features and batches with k Gamma <= 1")
NM_RECORD(nm_theorem_site, NM_THEOREM_SITE)
const nm_field *nm_theorem_site_fields(void);

#define NM_GROUP_GRADIENT(F)                                                                                 \
    F(chars(96), name, "Group of parameters: enc.0, dec.final, embed", "site")                               \
    F(real, norm, "Root mean square of its gradient norm over the batches")
NM_RECORD(nm_group_gradient, NM_GROUP_GRADIENT)
const nm_field *nm_group_gradient_fields(void);

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
