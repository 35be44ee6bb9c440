/* Folding of norms into linear layers, for inference. A norm that is a per-feature affine map at inference, y
 * = s x + t, is absorbed by the linear layers W, b that read y, if nothing else reads y:
 *     W y + b  =  (W diag(s)) x + (b + W t)
 * The norm's type computes s and t (`affine`); the model lists the readers of each norm. */
#pragma once

#include "nn/params.h"
#include "norma/option.h"

/* A linear layer that reads a norm's output; no other layer shares its weight. */
typedef struct nm_fold_linear {
    /* [out, width], [1, out]; without bias (NULL) only norms with t = 0 can be folded */
    nm_tensor *weight, *bias;
} nm_fold_linear;

typedef struct nm_fold_site {
    nm_norm *norm;
    const char *option; /* option that sets the type of this norm; must outlive the fold */
    int assignment;     /* index of the entry of norm.at that overrides the option; -1: none */
    /* All readers of the norm's output; empty if one of them is not a linear layer, e.g. a residual sum. */
    nm_fold_linear *readers;
    size_t n_readers, readers_capacity;
    double *scale, *shift; /* s and t, [width] each, set by nm_fold_run */
} nm_fold_site;

/* Initialize with {.assignments = ...}; freed by nm_fold_release. */
typedef struct nm_fold {
    const nm_norm_assignments *assignments; /* entries of norm.at, not owned */
    nm_fold_site *sites;
    size_t n, capacity;
} nm_fold;

/* Adds a norm without readers. */
void nm_fold_add_site(nm_fold *fold, nm_norm *norm, const char *option);
/* Adds a reader of the norm that was added last. */
void nm_fold_add_reader(nm_fold *fold, nm_tensor *weight, nm_tensor *bias);
/* Folds the norms that can be folded: changes the weights and biases of their readers and sets
 * nm_norm.folded, which makes the norm the identity. Norms that share an option, or an entry of norm.at, are
 * folded together or not at all, so that options can describe the result. */
void nm_fold_run(nm_fold *fold, nm_backend *backend);
/* Sets the options, norm.at included, to the types after folding: `none` for folded norms. */
void nm_fold_write_options(const nm_fold *fold, nm_options *options);
size_t nm_fold_count(const nm_fold *fold); /* number of folded norms; `none` is not counted */
void nm_fold_release(nm_fold *fold);
