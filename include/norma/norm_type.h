/* Interface of a normalization type, for authors of types and for models. A type is one file in src/core/norm
 * that ends in a constant nm_norm_type, and one line in src/core/norm/types.h. */
#ifndef NORMA_NORM_TYPE_H
#define NORMA_NORM_TYPE_H

#include "norma/norm.h"
#include "norma/option.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nm_norm_traits {
    NM_USES_BATCH = 1,      /* training uses statistics over rows */
    NM_HAS_STATE = 2,       /* running vectors or counters */
    NM_APPROX_GRAD = 4,     /* by design, backward is not the exact gradient */
    NM_HAS_PENALTY = 8,     /* train sets call->penalty */
    NM_SUMS_RESIDUAL = 16,  /* passes the residual connection of a call to its first and last kernel */
    NM_USES_FEATURES = 32,  /* statistics over the features of a token, without a token_spec */
    NM_HAS_TRANSITION = 64, /* validation losses may rise until the end of a transition */
    NM_COMPUTES_RELU = 128  /* computes the relu that follows it (nm_norm_call.relu) */
};

typedef struct nm_norm_vector { /* one parameter or running vector */
    const char *name;
    int32_t length;
    double initial;
    bool fixed;        /* a parameter that is not learned */
    bool of_gradients; /* a running vector of the backward pass, which the trainer checks for divergence */
    double decay_to;   /* value towards which weight decay pulls a parameter */
} nm_norm_vector;

/* How the statistics of several shards of n_i rows are combined:
 *     mean        sum(n_i m_i) / sum(n_i)
 *     variance    over the combined rows; the mean is the preceding statistic
 *     sum         sum(s_i) */
typedef enum nm_norm_combination {
    NM_STATISTIC_MEAN,
    NM_STATISTIC_VARIANCE,
    NM_STATISTIC_SUM
} nm_norm_combination;

typedef struct nm_norm_statistic { /* [width], from which update_state computes the new running state */
    const char *name;
    nm_norm_combination combination;
} nm_norm_statistic;

enum { NM_NORM_CAPACITY = 8, NM_NORM_MAX_PUBLISHED = 16 }; /* checked by the functions that append */

/* What a layer consists of. Filled by the type's `shape` through the functions below, in the order in which
 * the type indexes params, state, counters and statistics. If a type has weight and bias, they are parameters
 * 0 and 1. */
typedef struct nm_norm_shape {
    int n_params, n_state, n_counters, n_statistics;
    nm_norm_vector params[NM_NORM_CAPACITY], state[NM_NORM_CAPACITY];
    const char *counters[NM_NORM_CAPACITY];
    nm_norm_statistic statistics[NM_NORM_CAPACITY];
} nm_norm_shape;

/* Append a parameter, a running vector, a counter, a statistic. The vector may be changed further. name:
 * static. */
NM_API nm_norm_vector *nm_norm_shape_param(nm_norm_shape *shape, const char *name, int32_t length,
                                           double initial);
NM_API nm_norm_vector *nm_norm_shape_state(nm_norm_shape *shape, const char *name, int32_t length,
                                           double initial);
NM_API void nm_norm_shape_counter(nm_norm_shape *shape, const char *name);
NM_API void nm_norm_shape_statistic(nm_norm_shape *shape, const char *name, nm_norm_combination combination);

typedef struct nm_norm_published { /* a vector that instruments find by name */
    const char *name;
    void *data; /* device; valid until backward is done */
    int32_t length;
} nm_norm_published;

typedef struct nm_norm_call nm_norm_call;

/* Combines statistics of a call with the ones of the same call of other shards of an update (norm.statistics
 * = update). */
typedef struct nm_norm_joiner {
    bool failed; /* set by a join that failed */
    /* Replaces vectors[i], device, [width], over call->x.rows rows, by the combination of the vectors of all
     * shards, and sets call->joined_rows and n_targets. After a failure the vectors are unchanged and the
     * pass ends with an error. */
    void (*join)(struct nm_norm_joiner *joiner, nm_norm_call *call, int n, void *const *vectors,
                 const nm_norm_combination *combinations);
} nm_norm_joiner;

struct nm_norm_call { /* one forward pass of a layer and its backward pass */
    nm_backend *backend;
    nm_norm *norm;
    /* Device memory that is valid until backward is done. NULL: out of memory; then all later calls return
     * NULL too. */
    void *(*alloc)(void *allocator, size_t bytes);
    void *allocator;
    /* [rows, width], contiguous. In backward, x is unchanged; y may be at another address and, on a bf16
     * backend, rounded to bf16. */
    nm_mat x, y;
    /* Types with NM_SUMS_RESIDUAL. Forward: the first kernel that reads x computes it from sum; backward: the
     * kernel that writes dx also writes the gradient of the residual. NULL: neither. */
    const nm_residual_sum *sum;
    const nm_residual_grad *residual;
    bool relu;     /* types with NM_COMPUTES_RELU, in training: y = relu(norm + added); backward multiplies */
    nm_mat added;  /* dy by relu'(y), in place. Without data: 0 */
    nm_mat dy, dx; /* backward: [rows, width] */
    bool add;      /* backward: dx += instead of dx = */
    /* of the batch, or of all that are joined: the loss is a sum over them, of which the update takes the
     * mean */
    double n_targets;
    bool mean_loss;    /* the task's loss is a mean: a penalty of scale auto is multiplied by n_targets */
    double grad_scale; /* loss scale, a factor of dy; gradients of penalties must have it too */
    /* The pass repeats an earlier one (activation checkpointing): statistics are not collected again. */
    bool recomputed;
    nm_norm_joiner *joiner; /* NULL: statistics are over the rows of this call */
    double joined_rows;     /* of all shards, set by the joiner; 0: none, see nm_norm_rows */
    /* Fraction of padding, [0, 1), if the sequences of the batch were padded to the longest. For options
     * that reproduce programs whose statistics count padding; no row here is padding. */
    double padding;
    int64_t update;  /* number of this update, from 1; set by the train of types that count updates */
    double *penalty; /* device double, set by train of types with NM_HAS_PENALTY; NULL otherwise */
    nm_norm_published published[NM_NORM_MAX_PUBLISHED];
    int n_published;
};

typedef struct nm_norm_type {
    const char *name;    /* "rms", as in model.norm */
    const char *title;   /* "RMSNorm" */
    const char *formula; /* of training, one line */
    const char *source;  /* paper and equation */
    const char *remedy; /* remedy if a running vector of the backward pass grows; NULL without such vectors */
    unsigned traits;    /* of enum nm_norm_traits */
    const nm_option *options; /* section [norm.NAME] */
    const nm_preset *presets; /* may be NULL */
    size_t config_size;       /* of the struct of the options */
    /* NM_USAGE if the options do not fit the site; may be NULL. */
    nm_status (*check)(const void *config, const nm_norm_site *site, nm_error *err);
    /* Appends parameters, state, counters and statistics to an empty shape. NULL: the type has none. */
    void (*shape)(const void *config, const nm_norm_site *site, nm_norm_shape *shape);
    /* Types that normalize each token by its features: the specification of the kernel. Their train, infer
     * and backward are nm_norm_token_forward and nm_norm_token_backward. NULL for others. */
    nm_token_norm (*token_spec)(const nm_norm *norm);
    /* One line for the log of a training run: what follows from its planned updates. May be NULL. */
    void (*note)(const nm_norm *norm, char *text, size_t size);
    void (*train)(nm_norm_call *call);
    void (*infer)(nm_norm_call *call);
    void (*backward)(nm_norm_call *call); /* once per train, in reverse order of the calls */
    /* Gradients after infer, with running statistics as constants, for types with NM_USES_BATCH. NULL: those
     * of y = weight (h - running_mean) scale + bias. */
    void (*infer_backward)(nm_norm_call *call);
    /* Computes the new running state and counters from the statistics collected by train and backward since
     * the last call. NULL for types without state. Of `call` only backend, norm, grad_scale and update are
     * set. update is the number of the update whose backward pass was collected if later ones have had their
     * forward pass, otherwise 0. */
    void (*update_state)(nm_norm_call *call);
    /* Inference as y = scale x + shift per feature, into host arrays [width]; false: not affine with these
     * options. NULL: never affine. */
    bool (*affine)(const nm_norm *norm, nm_backend *backend, double *scale, double *shift);
    /* Whether training depends on the planned updates of the run, nm_norm_plan.updates. NULL: never. */
    bool (*follows_length)(const void *config);
} nm_norm_type;

struct nm_norm {
    const nm_norm_type *type;
    const void *config; /* the type's options; owned by the nm_options */
    nm_norm_site site;
    nm_norm_shape shape;
    void *params[NM_NORM_CAPACITY],
        *param_grads[NM_NORM_CAPACITY];      /* device; grads NULL if the type fixes it */
    void *state[NM_NORM_CAPACITY];           /* device */
    int64_t counters[NM_NORM_CAPACITY];      /* host */
    void *statistics[NM_NORM_CAPACITY];      /* device; of the present update */
    double collected_rows[NM_NORM_CAPACITY]; /* rows in each of them */
    bool learns;      /* a parameter is learned: neither the type nor model.freeze fixes all of them */
    bool folded;      /* the next linear layer contains it: x passes through at inference */
    void *standalone; /* further data of a layer of nm_norm_create; NULL inside a model */
};

/* The registered types, NULL at the end; one by name, or NULL. */
NM_API extern const nm_norm_type *const nm_norm_types[];
NM_API const nm_norm_type *nm_norm_type_find(const char *name);

#define NM_NORM_STATISTICS(C) C(NM_STATISTICS_SHARD, "shard") C(NM_STATISTICS_UPDATE, "update")
NM_CHOICES(nm_norm_statistics, NM_NORM_STATISTICS);

#define NM_NORM_STATE_MODES(C)                                                                               \
    C(NM_STATE_UPDATE, "update") C(NM_STATE_MICRO_BATCH, "micro-batch") C(NM_STATE_WORKER, "worker")
NM_CHOICES(nm_norm_state_mode, NM_NORM_STATE_MODES);

/* Section [norm]: options of all types. */
typedef struct nm_norm_config {
    const char *at; /* norms of single sites, see norm/norm_assignment.h */
    nm_norm_statistics statistics;
    nm_norm_state_mode state;
    int64_t groups; /* 0: as in the site */
} nm_norm_config;

/* Registers the section [norm], and [norm.NAME] of every type. */
NM_API void nm_norm_options_add(nm_options *options);

/* Sets type, config, site and shape. The caller then sets params, param_grads, state and statistics to device
 * memory of the lengths in shape, and calls nm_norm_initialize. NM_USAGE: unknown type, or options that do
 * not fit the site. */
NM_API nm_status nm_norm_prepare(nm_norm *norm, const char *type, const void *config,
                                 const nm_norm_site *site, nm_error *err);
/* Writes the initial values of parameters and state, and zeroes the counters. */
NM_API void nm_norm_initialize(nm_norm *norm, nm_backend *backend);
/* Updates running state and counters from the statistics of the micro-batches since the last call; without
 * any, nothing changes. train and backward only read the state. grad_scale: as in calls. */
NM_API void nm_norm_update_state(nm_norm *norm, nm_backend *backend, double grad_scale);
/* Combines statistics of earlier micro-batches, collected over `rows` rows each, with the norm's, as
 * if the earlier micro-batches had been collected before. earlier: device, [n_statistics][width];
 * overwritten. */
NM_API void nm_norm_add_statistics(nm_norm *norm, nm_backend *backend, void *const *earlier,
                                   const double *rows);
/* own = earlier combined with own, n vectors of the width over earlier_rows and own_rows rows each. A
 * variance follows its mean. earlier is overwritten. */
NM_API void nm_norm_combine(nm_backend *backend, int32_t width, int n,
                            const nm_norm_combination *combinations, void *const *own, const double *own_rows,
                            void *const *earlier, const double *earlier_rows);
/* Discards the statistics collected since the last update of the state. */
NM_API void nm_norm_discard_statistics(nm_norm *norm);

#ifdef __cplusplus
}
#endif
#endif
