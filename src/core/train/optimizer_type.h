/* An optimizer is one file that ends with an nm_optimizer_type, and a line in train/optimizers.h. */
#pragma once

#include "train/train_options.h"

/* One update of n consecutive elements, or of a matrix. */
typedef struct nm_optimizer_update {
    nm_backend *backend;
    const nm_optim_config *config;
    int64_t step; /* from 1 */
    double lr, weight_decay;
    /* Device, [1]: gradients are multiplied by this first: 1/tokens and clipping. NaN: nothing changes,
     * except by update_matrix. */
    const double *scale;
    double clip_value; /* train.clip_value */
    size_t n;
    const void *g;
    void *p, *m,
        *v; /* device; m and v: moments, initially zero, NULL if the type has none; updated in place */
} nm_optimizer_update;

typedef struct nm_optimizer_type {
    /* Fields of nm_optim_config that it reads, and clip_value if it reads that, separated by spaces. The
     * other options have no effect, which users are told. */
    const char *options;
    /* Layout of the state in checkpoints: types with the same moments of the same meaning share a number, of
     * other types it differs. */
    int64_t state;
    bool m, v; /* which moments it has; others need no memory */
    void (*update)(const nm_optimizer_update *u);
    /* For types that update each hidden weight (nm_params_mark_hidden) as a matrix; others: NULL. These
     * weights have no v. workspace: device, matrix_workspace elements. */
    size_t (*matrix_workspace)(int32_t rows, int32_t cols);
    void (*update_matrix)(const nm_optimizer_update *u, int32_t rows, int32_t cols, void *workspace);
} nm_optimizer_type;

/* The type of optim.name. */
const nm_optimizer_type *nm_optimizer_type_of(const nm_optim_config *config);
/* Whether the type reads the option. */
bool nm_optimizer_uses(const nm_optimizer_type *type, const char *option);

#define NM_OPTIMIZER_DECLARE(constant, name, type, phrase) extern const nm_optimizer_type type;
NM_OPTIMIZERS(NM_OPTIMIZER_DECLARE)
#undef NM_OPTIMIZER_DECLARE
