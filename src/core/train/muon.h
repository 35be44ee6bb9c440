/* Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"): SGD with momentum for
 * weight matrices, whose updates are approximately orthogonalized by a Newton-Schulz iteration. One step of a
 * matrix p [rows, cols] with the gradient g:
 *     m = mu m + (1 - mu) g
 *     u = (1 - mu) g + mu m                     with Nesterov momentum, otherwise u = m
 *     X = u / (|u| + eps)                       |u|: Frobenius norm
 *     A = X X^T, X = a X + (b A + c A A) X      steps times
 *     p = (1 - lr wd) p - lr s X
 * Five steps map singular values of 0.01 or more to 0.68 .. 1.14. The factor s:
 *     original     s = sqrt(max(1, rows/cols))      Jordan et al. 2024
 *     match-rms    s = 0.2 sqrt(max(rows, cols))    Liu et al. 2025, "Muon is Scalable for LLM Training"
 * With match-rms the root mean square of an update of a matrix of full rank is about 0.2 lr, which is typical
 * of Adam.
 *
 * Differences from the authors' code: it iterates in bfloat16; here the iteration has the backend's type, in
 * bf16 runs float, because the kernel gemm does not round its operands. A matrix with more rows than columns
 * is not transposed:
 *     A = X^T X, X = a X + X (b A + c A A)
 * is the transpose of the same iteration. */
#pragma once

#include "norma/backend.h"

#define NM_MUON_SCALES(C) C(NM_MUON_MATCH_RMS, "match-rms") C(NM_MUON_ORIGINAL, "original")
NM_CHOICES(nm_muon_scale, NM_MUON_SCALES);
/* What |u| is divided by: |u| + eps (the authors' code), or max(|u|, eps) (PyTorch). */
typedef enum nm_muon_eps { NM_MUON_EPS_ADDED, NM_MUON_EPS_CLAMPED } nm_muon_eps;

typedef struct nm_muon {
    double lr, momentum, weight_decay, eps;
    const double *grad_scale; /* device, [1]: gradients are multiplied by this first; NULL: 1 */
    double coefficients[3];   /* a, b, c */
    int64_t steps;            /* of Newton-Schulz; 0: X = u / (|u| + eps) */
    nm_muon_scale scale;
    nm_muon_eps eps_mode;
    bool nesterov;
} nm_muon;

/* Nesterov momentum 0.95, a = 3.4445, b = -4.7750, c = 2.0315, 5 steps, eps = 1e-7 (added), match-rms; lr and
 * weight_decay 0, grad_scale NULL. */
nm_muon nm_muon_default(void);

/* Elements of the workspace of nm_muon_step for a matrix [rows, cols]. */
size_t nm_muon_workspace(int32_t rows, int32_t cols);

/* One step: updates p and m [rows, cols] with the gradient g, all contiguous in device memory. Returns X,
 * which is in the workspace. */
nm_mat nm_muon_step(nm_backend *backend, const nm_muon *muon, nm_mat p, nm_mat g, nm_mat m, void *workspace);
