#include "train/muon.h"

#include <math.h>

#include "train/optimizer_type.h"

enum { ALIGN_ELEMENTS = 16 };

nm_muon nm_muon_default(void)
{
    return (nm_muon){.momentum = 0.95,
                     .eps = 1e-7,
                     .coefficients = {3.4445, -4.7750, 2.0315},
                     .steps = 5,
                     .nesterov = true};
}

static size_t aligned_elements(int32_t rows, int32_t cols)
{
    return ((size_t)rows * (size_t)cols + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

static int32_t shorter_side(int32_t rows, int32_t cols)
{
    return rows < cols ? rows : cols;
}

/* Two matrices [rows, cols], X before and after a step of Newton-Schulz, two of the shorter side, and a
 * double. */
size_t nm_muon_workspace(int32_t rows, int32_t cols)
{
    int32_t side = shorter_side(rows, cols);
    return 2 * aligned_elements(rows, cols) + 2 * aligned_elements(side, side) + ALIGN_ELEMENTS;
}

/* X = u / (|u| + eps), in place; inverse: device, workspace */
static void normalize(nm_backend *b, const nm_muon *muon, nm_mat x, double *inverse)
{
    const bool added = muon->eps_mode == NM_MUON_EPS_ADDED;
    NM_CALL(b, dot, .n = (size_t)x.rows * (size_t)x.cols, .a = x.data, .b = x.data, .inverse_norm = true,
            .least = added ? 0 : muon->eps, .eps = added ? muon->eps : 0, .total = inverse);
    NM_CALL(b, scale, .alpha = 1, .factor = inverse, .x = x, .y = x);
}

/* y = a x + (b A + c A A) x with A = x x^T, or y = a x + x (b A + c A A) with A = x^T x if x has more rows
 * than columns. The kernels of linear layers compute the products, so they have the precision of the run. A
 * is symmetric: A A = A A^T. */
static void newton_schulz_step(nm_backend *b, const double coefficients[3], nm_mat x, nm_mat gram,
                               nm_mat polynomial, nm_mat y)
{
    bool tall = x.rows > x.cols;
    if (tall) {
        NM_CALL(b, zero, .bytes = (size_t)gram.rows * (size_t)gram.cols * nm_dtype_bytes(b->dtype),
                .data = gram.data);
        NM_CALL(b, linear_grad_weight, .dy = x, .x = x, .dw = gram);
    } else {
        NM_CALL(b, linear, .x = x, .weight = x, .y = gram);
    }
    NM_CALL(b, linear, .x = gram, .weight = gram, .y = polynomial);
    NM_CALL(b, scale, .alpha = coefficients[2], .x = polynomial, .y = polynomial);
    NM_CALL(b, add, .alpha = coefficients[1], .x = gram, .y = polynomial);
    NM_CALL(b, scale, .alpha = coefficients[0], .x = x, .y = y);
    NM_CALL(b, linear_grad_input, .dy = tall ? x : polynomial, .weight = tall ? polynomial : x, .add = true,
            .dx = y);
}

static double scale_of(const nm_muon *muon, nm_mat p)
{
    double rows = p.rows, cols = p.cols;
    return muon->scale == NM_MUON_ORIGINAL ? sqrt(fmax(1, rows / cols)) : 0.2 * sqrt(fmax(rows, cols));
}

nm_mat nm_muon_step(nm_backend *b, const nm_muon *muon, nm_mat p, nm_mat g, nm_mat m, void *workspace)
{
    const size_t unit = nm_dtype_bytes(b->dtype), elements = aligned_elements(p.rows, p.cols);
    const int32_t side = shorter_side(p.rows, p.cols);
    char *at = workspace;
    nm_mat x = nm_mat_of(at, p.rows, p.cols), next = nm_mat_of(at + elements * unit, p.rows, p.cols);
    nm_mat gram = nm_mat_of(at + 2 * elements * unit, side, side),
           polynomial = nm_mat_of((char *)gram.data + aligned_elements(side, side) * unit, side, side);
    void *inverse = (char *)polynomial.data + aligned_elements(side, side) * unit;
    const double fresh = 1 - muon->momentum;
    NM_CALL(b, scale, .alpha = muon->momentum, .x = m, .y = m);
    NM_CALL(b, add, .alpha = fresh, .factor = muon->grad_scale, .x = g, .y = m);
    NM_CALL(b, scale, .alpha = muon->nesterov ? muon->momentum : 1, .x = m, .y = x);
    if (muon->nesterov)
        NM_CALL(b, add, .alpha = fresh, .factor = muon->grad_scale, .x = g, .y = x);
    normalize(b, muon, x, inverse);
    for (int64_t i = 0; i < muon->steps; i++) {
        newton_schulz_step(b, muon->coefficients, x, gram, polynomial, next);
        nm_mat before = x;
        x = next;
        next = before;
    }
    NM_CALL(b, scale, .alpha = 1 - muon->lr * muon->weight_decay, .x = p, .y = p);
    NM_CALL(b, add, .alpha = -muon->lr * scale_of(muon, p), .x = x, .y = p);
    return x;
}

static void update(const nm_optimizer_update *u)
{
    nm_optimizer_adamw.update(u);
}

static void update_matrix(const nm_optimizer_update *u, int32_t rows, int32_t cols, void *workspace)
{
    const nm_optim_config *c = u->config;
    nm_muon muon = nm_muon_default();
    muon.lr = u->lr * c->muon_lr_factor;
    muon.momentum = c->muon_momentum;
    muon.nesterov = c->muon_nesterov;
    muon.weight_decay = c->weight_decay;
    muon.steps = c->muon_steps;
    muon.scale = c->muon_scale;
    muon.grad_scale = u->scale;
    nm_muon_step(u->backend, &muon, nm_mat_of(u->p, rows, cols), nm_mat_of((void *)u->g, rows, cols),
                 nm_mat_of(u->m, rows, cols), workspace);
}

const nm_optimizer_type nm_optimizer_muon = {
    .options =
        "beta1 beta2 eps weight_decay muon_momentum muon_nesterov muon_steps muon_scale muon_lr_factor",
    .state = 2,
    .m = true,
    .v = true,
    .update = update,
    .matrix_workspace = nm_muon_workspace,
    .update_matrix = update_matrix,
};
