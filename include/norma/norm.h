/* Normalization layers over plain arrays: create, train, infer, save, load.
 *
 * A layer normalizes X [rows, width], one row per token (no padding). In training, the forward pass may use
 * statistics of the whole batch, and updates the running state. Inference only reads the state, so the result
 * of a row does not depend on other rows. Formulas and sources are in src/core/norm, one file per type.
 * norma/norm_type.h is the interface of the types.
 *
 * Calls for layers on the same backend must not overlap: they share its workspace, and results would be
 * wrong. Layers of different threads have different backends or workers (nm_backend_create_worker). */
#ifndef NORMA_NORM_H
#define NORMA_NORM_H

#include "norma/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_norm nm_norm;
typedef struct nm_norm_pass nm_norm_pass;

/* Planned updates of the running state in a training run, which with norm.state = micro-batch are
 * micro-batches, and updates of its warm-up; 0: unknown or none. */
typedef struct nm_norm_plan {
    int64_t updates, warmup_updates;
} nm_norm_plan;

typedef enum nm_norm_site_kind {
    NM_SITE_SUBLAYER,
    NM_SITE_ENCODER_FINAL, /* after the last layer of an encoder that feeds a decoder */
    NM_SITE_BEFORE_OUTPUT  /* the last norm before the output projection of a decoder */
} nm_norm_site_kind;

typedef struct nm_norm_site {
    const char *name; /* "enc.3.ffn.norm", for messages; copied; NULL: the type's name */
    int32_t width;    /* number of features */
    /* Of features, at least 1, for GroupNorm and group scaling: the number of attention heads. Others ignore
     * it. */
    int32_t groups;
    /* Number of consecutive rows that are one image, for GroupNorm2d; all sequences of the model have this
     * length. 0: every row is a separate token. */
    int32_t rows;
    nm_norm_plan plan; /* for warm-ups and ramps */
    nm_norm_site_kind kind;
    bool sequences; /* of a model whose sequences differ in length: the option count_padding is possible */
} nm_norm_site;

/* Creates a layer of type `type` ("layer", "power", ...); free it with nm_norm_free before the backend.
 * settings: options of [norm.TYPE], "key=value key=value", or NULL. It owns parameters, gradients and state.
 * NM_USAGE: unknown type, option or value, or a width that the groups do not divide
 * NM_MEMORY */
NM_API nm_status nm_norm_create(nm_norm **norm, nm_backend *backend, const char *type, const char *settings,
                                const nm_norm_site *site, nm_error *err);
NM_API void nm_norm_free(nm_norm *norm); /* NULL: nothing happens */

/* Training: y = norm(x); updates the running state. x, y: [rows, width] in the backend's type, contiguous;
 * keep both until nm_norm_backward. Memory grows with the largest batch so far, or NM_MEMORY.
 * NM_USAGE: rows is below 1 */
NM_API nm_status nm_norm_forward(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err);
/* dx = gradient with respect to x of the last nm_norm_forward and its penalty (RBN). Adds the gradients of
 * parameters to nm_norm_param_grad, and updates the running state of the backward pass. NM_MEMORY as above.
 * NM_USAGE: no forward pass before */
NM_API nm_status nm_norm_backward(nm_norm *norm, const void *dy, void *dx, nm_error *err);
/* Inference: y = norm(x); only reads the state. Errors as nm_norm_forward. */
NM_API nm_status nm_norm_infer(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err);
/* Penalty of the last nm_norm_forward; 0 for types without one. */
NM_API double nm_norm_penalty(const nm_norm *norm);
/* Sets the gradients of all parameters to 0. */
NM_API void nm_norm_zero_grads(nm_norm *norm);

/* A forward pass and its backward pass, for a layer that runs again before the backward pass of the first
 * call (a layer that a model contains twice). A pass owns everything that its backward pass reads except x,
 * and may be used again afterwards. Free it with nm_norm_pass_free, before or after the layer.
 * nm_norm_forward and nm_norm_backward use a pass of the layer. */
NM_API nm_norm_pass *nm_norm_pass_create(nm_norm *norm);
NM_API void nm_norm_pass_free(nm_norm_pass *pass); /* NULL: nothing happens */
/* As nm_norm_forward. x may be moved and y changed before the backward pass. */
NM_API nm_status nm_norm_pass_forward(nm_norm_pass *pass, int32_t rows, const void *x, void *y,
                                      nm_error *err);
/* As nm_norm_infer; a backward pass may follow, which treats the running statistics as constants. */
NM_API nm_status nm_norm_pass_infer(nm_norm_pass *pass, int32_t rows, const void *x, void *y, nm_error *err);
/* As nm_norm_backward, once or more after a forward pass; x: the values of the forward pass. penalty_grad:
 * derivative of the loss with respect to nm_norm_pass_penalty, which dx includes: 1 as in nm_norm_backward, 0
 * without the penalty.
 * NM_UNSUPPORTED: after nm_norm_pass_infer of a layer that centers its output (mabn.center_weights) */
NM_API nm_status nm_norm_pass_backward(nm_norm_pass *pass, const void *x, const void *dy, double penalty_grad,
                                       void *dx, nm_error *err);
/* Penalty of the last nm_norm_pass_forward; 0 for types without one. */
NM_API double nm_norm_pass_penalty(const nm_norm_pass *pass);

/* Name of parameter, state vector or counter i, from 0; NULL: there is no such index. */
NM_API const char *nm_norm_param_name(const nm_norm *norm, int32_t i);
NM_API const char *nm_norm_state_name(const nm_norm *norm, int32_t i);
NM_API const char *nm_norm_counter_name(const nm_norm *norm, int32_t i);
/* Vectors by name: parameters ("weight", "bias", "scale"), their gradients, running state ("running_mean",
 * "running_phi"). NULL: the type has none of that name, or the parameter is not learned. length may be NULL.
 * Owned by the layer. */
NM_API void *nm_norm_param(nm_norm *norm, const char *name, int32_t *length);
NM_API void *nm_norm_param_grad(nm_norm *norm, const char *name, int32_t *length);
NM_API void *nm_norm_state(nm_norm *norm, const char *name, int32_t *length);
/* Whether the backward pass, not the forward pass, updates a running vector ("ema_gz"); false: none of that
 * name. */
NM_API bool nm_norm_state_of_gradients(const nm_norm *norm, const char *name);
/* Counters of updates by name ("iters", "num_batches_tracked"); NULL: none of that name. */
NM_API int64_t *nm_norm_counter(nm_norm *norm, const char *name);
/* Parameters, state and counters in a safetensors file. NM_IO: the file cannot be written or read
 * NM_FORMAT: nm_norm_load finds it malformed
 * NM_MISMATCH: nm_norm_load finds another type, width or length of a vector */
NM_API nm_status nm_norm_save(const nm_norm *norm, const char *path, nm_error *err);
NM_API nm_status nm_norm_load(nm_norm *norm, const char *path, nm_error *err);

#ifdef __cplusplus
}
#endif
#endif
