/* The parameters of a model: named matrices in one slab, their gradients in another of the same layout, and
 * the norms with their running state. Update, clipping and checkpoint are one loop or one write each. */
#ifndef NM_PARAMS_H
#define NM_PARAMS_H

#include "nn/norm_assignment.h"
#include "tape/tape.h"

typedef struct nm_param {
    nm_tensor tensor; /* first: a parameter is used as a tensor */
    nm_init init;
    size_t offset; /* elements from the slab's begin */
    bool fixed;    /* not learned: no gradient, no update */
    bool exact;    /* never int8: a matrix that is neither a linear map nor a table of vectors */
    void *form;    /* in int8, which the backend holds; or NULL */
} nm_param;

typedef struct nm_params {
    nm_backend *backend;
    nm_param **list;
    size_t n, capacity;
    nm_norm **norms;
    size_t n_norms, norms_capacity;
    nm_norm_assignments
        assignments; /* of norm.at; take precedence over the types given to nm_params_add_norm */
    void *values, *grads, *state,
        *statistics;                          /* device slabs; statistics: of norms, for the present update */
    size_t n_elements, n_state, n_statistics; /* elements, counting the gaps that align each vector */
    void *forms;                              /* device: the parameters' forms in int8 */
    bool int8;                                /* nm_params_to_int8 has run */
} nm_params;

void nm_params_init(nm_params *params, nm_backend *backend);
void nm_params_release(nm_params *params);

/* Registers a matrix (rows = 1: a vector); memory comes with nm_params_allocate. The tensor stays where it
 * is. */
nm_tensor *nm_params_add(nm_params *params, int32_t rows, int32_t cols, nm_init init, const char *name_format,
                         ...) __attribute__((format(printf, 5, 6)));
/* Registers a norm of the type at this place; its vectors become parameters "PLACE.weight" and so on. */
nm_status nm_params_add_norm(nm_params *params, const char *type, const nm_options *options,
                             const nm_norm_site *place, nm_norm **norm, nm_error *err);
/* Marks a matrix that stays as it is where others become int8. */
void nm_params_keep_exact(nm_tensor *matrix);
/* Takes the slabs and writes the first values, drawn from seed and each parameter's place in the list. */
nm_status nm_params_allocate(nm_params *params, bool with_grads, nm_error *err);
void nm_params_initialize(nm_params *params, uint64_t seed);

nm_param *nm_params_find(const nm_params *params, const char *name); /* NULL when unknown */
size_t nm_params_learned(const nm_params *params);                   /* number of learned numbers */
/* Whether it is one of those that nm_params_to_int8 changes: a matrix (rows > 1) that need not be exact. */
bool nm_param_is_int8(const nm_param *param);
/* For inference alone: these matrices take the nearest numbers that int8 with one scale a row can hold, and products with
 * them are int8 from then on (nm_backend_register_weight_int8). NM_MEMORY. Undone, but for the rounding, before other numbers come. */
nm_status nm_params_to_int8(nm_params *params, nm_error *err);
void nm_params_from_int8(nm_params *params);
size_t nm_params_bytes(const nm_params *params); /* of the value slab */

/* Updates the running state of all norms from the micro-batches since the last call, see nm_norm_update_state. */
void nm_params_update_norms(nm_params *params, double grad_scale);

/* What norms remember (running vectors and counters), set aside before something that must leave no trace, a dry run or
 * a measurement in training form, and put back afterwards. Put back frees; each is used once. */
typedef struct nm_norm_snapshot {
    void *state; /* host copy of the state slab */
    int64_t *counters;
} nm_norm_snapshot;

nm_norm_snapshot nm_norm_snapshot_save(const nm_params *params);
void nm_norm_snapshot_restore(nm_norm_snapshot *memory, nm_params *params);

#endif
