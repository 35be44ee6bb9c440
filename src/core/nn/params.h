/* The parameters of a model: named matrices in one slab, their gradients in another slab of the same layout,
 * and the norms with their running state. */
#pragma once

#include "norm/norm_assignment.h"
#include "nn/tape.h"

/* Blocks of rows of a fused weight: those of q, k and v. */
enum { NM_PARAM_BLOCKS = 3 };

typedef struct nm_param {
    nm_tensor tensor; /* first member: a pointer to the parameter is a pointer to its tensor */
    nm_init init;
    int32_t scaled_from; /* initial values of the rows from this one on are multiplied by row_factor */
    double row_factor;   /* 1: none */
    size_t offset;       /* in the slab, in elements */
    bool fixed;          /* not learned: no gradient, no update */
    double decay_to;     /* value towards which weight decay pulls the elements */
    bool exact;          /* never quantized: neither the weight of a linear layer nor an embedding */
    /* Numbers of rows of the blocks of a hidden weight (nm_params_mark_hidden); all 0: no hidden weight. */
    int32_t block_rows[NM_PARAM_BLOCKS];
    void *packed_int8; /* packed int8 layout in nm_params.packed_int8, registered with the backend; or NULL */
} nm_param;

typedef struct nm_params {
    nm_backend *backend;
    nm_param **list;
    size_t n, capacity;
    nm_norm **norms;
    size_t n_norms, norms_capacity;
    nm_norm_assignments assignments; /* of norm.at; they override the type given to nm_params_add_norm */
    /* Device slabs: values and gradients of the parameters, running state and statistics of the norms.
     * Statistics are those of the current update. grads is NULL at inference; state and statistics are NULL
     * if no norm has any. */
    void *values, *grads, *state, *statistics;
    size_t n_elements, n_state, n_statistics; /* elements of the slabs, with padding for alignment */
    void *packed_int8;                        /* device: packed int8 layouts of all parameters, or NULL */
    bool int8;                                /* the parameters are quantized: nm_params_to_int8 */
} nm_params;

/* Elements of the slab for a parameter with n elements. */
size_t nm_params_padded(size_t n);
void nm_params_init(nm_params *params, nm_backend *backend);
void nm_params_release(nm_params *params);

/* Registers a matrix (rows = 1: a vector) with a name that no other parameter has; nm_params_allocate sets
 * its data. The pointer is valid until nm_params_release. */
nm_tensor *nm_params_add(nm_params *params, int32_t rows, int32_t cols, nm_init init, const char *name_format,
                         ...) __attribute__((format(printf, 5, 6)));
/* Sets the types of the norms of single sites that are added later: norm.at. NM_USAGE: it is malformed. */
nm_status nm_params_assign_norms(nm_params *params, const char *at, nm_error *err);
/* When all norms are added: NM_USAGE for an entry of norm.at without effect (nm_norm_assignments_check). */
nm_status nm_params_check_assignments(const nm_params *params, nm_error *err);
/* Registers a norm of the type at a site, whose name is copied; its vectors become parameters "SITE.weight"
 * etc. The norm is valid until nm_params_release. Errors as nm_norm_prepare. */
nm_status nm_params_add_norm(nm_params *params, const char *type, const nm_options *options,
                             const nm_norm_site *site, nm_norm **norm, nm_error *err);
/* Multiplies the initial values of the rows from `first` on by a factor. */
void nm_params_scale_rows(nm_tensor *matrix, int32_t first, double factor);
/* Excludes a matrix from int8 quantization and from rounding to bf16 in model files. */
void nm_params_keep_exact(nm_tensor *matrix);
/* Declares the weight of a linear layer of a stack, whose inputs and outputs are hidden features. Muon
 * orthogonalizes each of its blocks of rows; the numbers of their rows add up to the rows of the weight, and
 * 0 means no block. */
void nm_params_mark_hidden(nm_tensor *weight, const int32_t block_rows[NM_PARAM_BLOCKS]);
/* Makes a parameter constant: it is not learned. Call it before nm_params_allocate. */
void nm_params_fix(nm_tensor *matrix);
/* Applies nm_params_fix to the parameters that match a comma-separated list of patterns: a name, the
 * beginning of names up to a dot, or either with * for any characters. Call it before nm_params_allocate.
 * NM_USAGE for a pattern that matches no parameter, or if all parameters are fixed. */
nm_status nm_params_freeze(nm_params *params, const char *patterns, nm_error *err);
/* Allocates the slabs and binds all tensors and norms to them. NM_MEMORY. */
nm_status nm_params_allocate(nm_params *params, bool with_grads, nm_error *err);
/* Binds the norms again after the data of their parameters has moved. */
void nm_params_bind_norms(nm_params *params);
/* Binds all tensors and norms to other slabs of gradients and statistics with the same layout, for
 * micro-batches whose sums are kept apart. */
void nm_params_bind(nm_params *params, void *grads, void *statistics);
/* The element of a slab after parameter i and its padding. */
size_t nm_params_end(const nm_params *params, size_t i);
/* Sets a slab of gradients to zero, without touching the memory of fixed parameters to which no operation has
 * written. */
void nm_params_zero_grads(const nm_params *params, void *grads);
/* Number of elements of a slab of gradients that nm_params_zero_grads does not touch. */
size_t nm_params_skipped(const nm_params *params);
/* Random initialization: a function of the seed and of each parameter's index. */
void nm_params_initialize(nm_params *params, uint64_t seed);

nm_param *nm_params_find(const nm_params *params, const char *name); /* or NULL */
size_t nm_params_learned(const nm_params *params);                   /* number of learned elements */
bool nm_param_is_hidden(const nm_param *param);                      /* see nm_params_mark_hidden */
/* Whether nm_params_to_int8 quantizes the parameter: a matrix (rows > 1) without nm_params_keep_exact. */
bool nm_param_is_int8(const nm_param *param);
/* For inference only: symmetric per-row int8 weight quantization. Matrices are rounded in place, and their
 * matrix multiplications then run in int8 (nm_backend_register_weight_int8). NM_MEMORY. */
nm_status nm_params_to_int8(nm_params *params, nm_error *err);
/* Unregisters the int8 weights, e.g. before other values are loaded; the rounding remains. */
void nm_params_from_int8(nm_params *params);
size_t nm_params_bytes(const nm_params *params); /* bytes of the value slab */

/* Copies the values to a slab on the device with their layout, which is allocated if *copy is NULL.
 * NM_MEMORY. */
nm_status nm_params_copy(const nm_params *params, void **copy, nm_error *err);
void nm_params_copy_free(nm_backend *backend, void **copy); /* *copy may be NULL, and is afterwards */

/* Updates the running state of all norms from the micro-batches since the last call, see
 * nm_norm_update_state. grad_scale: nm_tape.grad_scale of the backward pass. With another value PowerNorm,
 * MABN and Unified Normalization misread their own gradients and do not learn. */
void nm_params_update_norms(nm_params *params, double grad_scale);

/* Combines the statistics of earlier micro-batches with those of the norms, in this order, into the norms.
 * statistics: of the earlier ones, device, with the layout of the slab; overwritten. rows:
 * [n_norms][NM_NORM_CAPACITY], their collected_rows. */
void nm_params_add_statistics(nm_params *params, void *statistics, const double *rows);

/* Copies nm_norm.collected_rows of all norms to and from rows [n_norms][NM_NORM_CAPACITY]. */
void nm_params_get_rows(const nm_params *params, double *rows);
void nm_params_set_rows(nm_params *params, const double *rows);

/* A snapshot of the running state of all norms, for forward passes in training mode that must not change it
 * (dry runs, instruments). Each snapshot is restored, and thereby freed, once. */
typedef struct nm_norm_snapshot {
    void *state;       /* host copy of the state slab */
    int64_t *counters; /* host, [n_norms][NM_NORM_CAPACITY] */
} nm_norm_snapshot;

nm_norm_snapshot nm_norm_snapshot_save(const nm_params *params);
/* Restores the running state, discards the statistics collected since then and frees the snapshot. */
void nm_norm_snapshot_restore(nm_norm_snapshot *snapshot, nm_params *params);
