/* Functions that several normalization types use: vectors of a call, statistics of an update, scaling of
 * rows, warm-ups, per-token norms.
 *
 * Allocations of a call can fail. After one failure all later ones fail, so a type tests only the last
 * pointer, before it changes gradients of parameters or statistics. */
#pragma once

#include "norma/norm_type.h"

/* Allocates a vector and publishes it under `name` (static text) for backward and instruments; NULL: out of
 * memory. */
void *nm_norm_publish(nm_norm_call *call, const char *name, int32_t length);
/* Publishes state vector i under its name: the values before the update. */
void nm_norm_publish_state(nm_norm_call *call, int i);
/* A vector published before; it must exist. */
void *nm_norm_find(const nm_norm_call *call, const char *name);
/* An unpublished vector; NULL: out of memory. */
void *nm_norm_scratch(nm_norm_call *call, int32_t length);

/* An elementwise operation on vectors of the layer's width, by the names of nm_vec_args:
 *     NM_NORM_VEC(call, MUL_ADD, .out = y, .a = x, .b = weight, .c = bias, .s = 1, .t = 1)
 * Arguments that are left out are NULL or 0. */
#define NM_NORM_VEC(call_, op_, ...)                                                                         \
    NM_CALL((call_)->backend, vec, .op = NM_VEC_##op_, .n = (call_)->norm->site.width, __VA_ARGS__)
/* running = old running + fresh_weight fresh */
void nm_norm_average(nm_norm_call *call, void *running, double old, const void *fresh, double fresh_weight);
/* Adds the statistic of this call, [width], to statistic i of the update: NM_STATISTIC_MEAN or
 * NM_STATISTIC_SUM. */
void nm_norm_collect(nm_norm_call *call, int i, const void *value);
/* The same for statistics i, a mean, and i + 1, the variance. */
void nm_norm_collect_moments(nm_norm_call *call, int i, const void *mean, const void *variance);
/* Limit of stored variances and mean squares, as in the kernels; an unbiased one is up to twice as large. */
double nm_norm_largest_square(const nm_backend *backend);
/* Replaces vectors of this call by those of all shards of the update, if norm.statistics = update. Collect
 * statistics before: nm_norm_collect expects those of this call. */
void nm_norm_join_one(nm_norm_call *call, void *vector, nm_norm_combination combination);
/* A mean and the variance. */
void nm_norm_join_moments(nm_norm_call *call, void *mean, void *variance);
/* Sums of the backward pass that this call also needs without the join: *out is a copy that is joined, or the
 * vector itself without a joiner. NULL: out of memory. */
void nm_norm_join_sums(nm_norm_call *call, int n, void *const *sums, void **out);
/* Rows of the joined statistics: those of this call without a joiner. */
double nm_norm_rows(const nm_norm_call *call);
/* Vector = the number *scalar in every element; rows: memory of [width]. */
void nm_norm_repeat(nm_norm_call *call, const void *scalar, void *rows, void *vector);
/* *scalar += factor sum of the elements of vector; sum: memory of [1]. */
void nm_norm_add_sum(nm_norm_call *call, const void *vector, double factor, void *sum, void *scalar);
/* Adds sum(dy z) and sum(dy) to the gradients of "weight" and "bias". */
void nm_norm_add_grads(nm_norm_call *call, const void *sum_dy_z, const void *sum_dy);

/* Reads a device vector of the layer's width into host memory. */
void nm_norm_read_vector(const nm_norm *norm, nm_backend *backend, const void *vector, double *out);
/* For `affine` of z = (x - mean) scale, y = weight z + bias: on input scale is that of z; on output y = scale
 * x + shift. mean: device, or NULL. */
void nm_norm_affine(const nm_norm *norm, nm_backend *backend, const void *mean, double *scale, double *shift);

/* `shape` of types whose parameters are weight (initially 1) and bias (0), without state. */
void nm_norm_shape_affine(const void *config, const nm_norm_site *site, nm_norm_shape *shape);
/* Scaling of rows before the norm, without parameters; means over the row, or over each of norm.groups groups
 * of features:
 *     h  = x / sqrt(mean(x^2) + 1e-5)
 *     dx = (dh - h mean(dh h)) / sqrt(mean(x^2) + 1e-5)
 *
 * The constant is that of GroupScaling1D in PowerNorm's code, whatever the epsilon of the norm is. */
#define NM_NORM_SCALING_EPSILON 1e-5
#define NM_NORM_SCALINGS(C)                                                                                  \
    C(NM_SCALING_NONE, "none") C(NM_SCALING_LAYER, "layer") C(NM_SCALING_GROUP, "group")
NM_CHOICES(nm_norm_scaling, NM_NORM_SCALINGS);
#define NM_NORM_SCALING_HELP                                                                                 \
    "Scaling of rows by their root mean square before the norm: none, over the row, or per group (head)."
/* Number of groups; 0 without scaling. */
int32_t nm_norm_scaling_groups(nm_norm_scaling scaling, const nm_norm_site *site);
/* NM_USAGE unless groups is at least 1 and divides the width. */
nm_status nm_norm_check_groups(int64_t groups, const nm_norm_site *site, nm_error *err);
/* The same for the groups of a scaling. */
nm_status nm_norm_check_scaling(nm_norm_scaling scaling, const nm_norm_site *site, nm_error *err);
/* NM_USAGE if padding is counted where all sequences are equally long or unknown. */
nm_status nm_norm_check_padding(bool count_padding, const nm_norm_site *site, nm_error *err);
/* Kernel specification for rows scaled in `groups` groups; *row_scale is allocated and published if groups >
 * 0. */
nm_feature_norm nm_norm_row_scaling(nm_norm_call *call, int32_t groups, void **row_scale);
/* Inference with running statistics: y = weight (x - shift) scale + bias, rows scaled in `groups` groups.
 * set_scale writes the published vector "scale"; shift: a vector of features, or NULL. */
void nm_norm_infer_running(nm_norm_call *call, int32_t groups, const void *shift,
                           void (*set_scale)(nm_norm_call *call, void *scale));
/* sums[0], sums[1]: sums of dy and of dy z over the rows, z = (x - shift) scale; published as "grad_sum" and
 * "grad_sum_z". False if memory is exhausted. */
bool nm_norm_grad_sums(nm_norm_call *call, const nm_feature_norm *spec, const void *row_scale,
                       const void *shift, const void *scale, void *sums[2]);

/* Option warmup of a type: "lr" (lr_updates, that of the learning rate) or a number of updates; check:
 * NM_USAGE for other texts. */
nm_status nm_norm_check_warmup(const nm_norm_type *type, const char *warmup, nm_error *err);
int64_t nm_norm_warmup(const char *warmup, int64_t lr_updates);
/* Text for nm_norm_type.note. */
void nm_norm_note_warmup(int64_t updates, char *text, size_t size);

/* train, infer and backward of types with a token_spec. Publish scale and, if centered, shift. */
void nm_norm_token_forward(nm_norm_call *call);
void nm_norm_token_backward(nm_norm_call *call);

/* NM_USAGE: no type has this name; the message lists all of them. */
nm_status nm_norm_unknown(const char *name, nm_error *err);
