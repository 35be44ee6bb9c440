/* Normalization layers: usable alone (plain arrays, nm_norm_create and friends) and inside Norma's models.
 *
 * A layer sees X [rows, width], one row per real token. Training forward may use the whole batch and updates running
 * state; inference reads state only, so that no other row can change a result. Backward belongs to the last training
 * forward. Equations and sources: one file per type in src/norm/. */
#ifndef NORMA_NORM_H
#define NORMA_NORM_H

#include "norma/backend.h"
#include "norma/option.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ a layer on its own */

typedef struct nm_norm nm_norm;

typedef struct nm_norm_plan { /* of the training run, in updates; 0: unknown or none */
    int64_t updates, warmup_updates;
} nm_norm_plan;

typedef enum nm_norm_site_kind {
    NM_SITE_SUBLAYER,
    NM_SITE_ENCODER_FINAL, /* after the last layer of an encoder that feeds a decoder */
    NM_SITE_BEFORE_OUTPUT  /* the last norm before the output projection of a decoder */
} nm_norm_site_kind;

typedef struct nm_norm_site { /* what a layer must know of where it stands */
    const char *name;         /* "enc.3.ffn.norm"; copied */
    int32_t width;            /* features */
    int32_t groups; /* of features, for GroupNorm and group scaling: the number of attention heads */
    nm_norm_plan plan;
    nm_norm_site_kind kind;
} nm_norm_site;

/* Creates a layer of type `type` ("layer", "power", ...) with settings "key=value key=value" (may be NULL) of the
 * options listed by nm_norm_options; owns its parameters, gradients and state. Free with nm_norm_free.
 * NM_USAGE: unknown type, option or value; NM_MEMORY. backend must outlive the layer. */
nm_status nm_norm_create(nm_norm **norm, nm_backend *backend, const char *type, const char *settings,
                         const nm_norm_site *place, nm_error *err);
void nm_norm_free(nm_norm *norm);

/* y = norm(x), training: batch statistics where the type uses them; updates state (that of the backward pass in
 * nm_norm_backward). x, y: [rows, width] of the
 * backend's type, contiguous; x and y must stay unchanged until backward. max_rows memory is taken at the first call
 * of a larger batch. NM_MEMORY. */
nm_status nm_norm_forward(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err);
/* dx = gradient with respect to x of the last forward; gradients of parameters are added to nm_norm_param_grad.
 * RBN: contains the penalty's gradient. */
nm_status nm_norm_backward(nm_norm *norm, const void *dy, void *dx, nm_error *err);
/* y = norm(x), inference: reads state only. */
nm_status nm_norm_infer(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err);
/* The penalty of the last training forward (0 for most types). */
double nm_norm_penalty(const nm_norm *norm);
void nm_norm_zero_grads(nm_norm *norm);

/* Learned and running vectors by name ("weight", "bias", "scale"; "running_mean", "running_phi", ...): pointer and
 * length; NULL when the type has none of that name. Memory belongs to the layer. */
void *nm_norm_param(nm_norm *norm, const char *name, int32_t *length);
void *nm_norm_param_grad(nm_norm *norm, const char *name, int32_t *length);
void *nm_norm_state(nm_norm *norm, const char *name, int32_t *length);
/* Counters ("iters", "num_batches_tracked") are integers; NULL when absent. */
int64_t *nm_norm_counter(nm_norm *norm, const char *name);

/* Parameters, state and counters to and from a safetensors file. Load checks type, width and every length: NM_MISMATCH. */
nm_status nm_norm_save(const nm_norm *norm, const char *path, nm_error *err);
nm_status nm_norm_load(nm_norm *norm, const char *path, nm_error *err);

/* ------------------------------------------------------------------ what a type is */

enum nm_norm_traits {
    NM_USES_BATCH = 1, /* training statistics run over rows */
    NM_HAS_STATE = 2,
    NM_APPROX_GRAD = 4, /* backward is deliberately not the derivative (PN, MABN) */
    NM_HAS_PENALTY = 8
};

enum {
    NM_NORM_MAX_PARAMS = 2,
    NM_NORM_MAX_STATE = 4,
    NM_NORM_MAX_COUNTERS = 2,
    NM_NORM_MAX_STATISTICS = 4,
    NM_NORM_MAX_STATS = 12
};

typedef struct nm_norm_vector { /* one learned or running vector */
    const char *name;
    int32_t length;
    double initial;
    bool fixed; /* a parameter that isn't learned (ScaleNorm's fixed g) */
    bool
        of_gradients; /* a running vector of the backward pass, which can run away unseen: the trainer watches it */
} nm_norm_vector;

/* How the statistics of several micro-batches are combined, n_i rows each:
 *     mean        sum(n_i m_i) / sum(n_i)
 *     variance    that of the joined rows; the mean is the statistic before it
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

typedef struct nm_norm_shape { /* filled by a type's `shape` */
    int n_params, n_state, n_counters, n_statistics;
    nm_norm_statistic statistics[NM_NORM_MAX_STATISTICS];
    nm_norm_vector params[NM_NORM_MAX_PARAMS], state[NM_NORM_MAX_STATE];
    const char *counters[NM_NORM_MAX_COUNTERS];
} nm_norm_shape;

typedef struct
    nm_norm_stat { /* published by name for instruments; device memory, lives until backward is done */
    const char *name;
    void *data;
    int32_t length;
} nm_norm_stat;

typedef struct nm_norm_call { /* one use of a layer in one step */
    nm_backend *backend;
    nm_norm *norm;
    void *(*take)(void *from, size_t bytes); /* device memory that lives until backward is done */
    void *from;
    nm_mat x, y;       /* set for forward; both stay valid until backward */
    nm_mat dy, dx;     /* set for backward */
    bool add;          /* backward: dx += instead of dx = */
    double n_targets;  /* of the batch: the loss is a sum over them, of which the update takes the mean */
    bool mean_loss;    /* the task's loss is a mean: a penalty of scale auto is multiplied by n_targets */
    double grad_scale; /* loss scale: upstream gradients carry it, penalties must too */
    /* train: this is the second forward pass of a recomputed segment, whose statistics are not collected again */
    bool recomputed;
    int64_t update;  /* number of this update, from 1; set by the train of types that count updates */
    double *penalty; /* device double, set by forward of types with NM_HAS_PENALTY; NULL otherwise */
    nm_norm_stat stats[NM_NORM_MAX_STATS];
    int n_stats;
} nm_norm_call;

typedef struct nm_norm_type {
    const char *name, *title, *source; /* "rms", "RMSNorm", paper and equation */
    unsigned traits;
    const nm_option *options; /* section [norm.NAME] */
    const nm_preset *presets; /* may be NULL */
    size_t config_size;
    nm_status (*check)(const void *config, const nm_norm_site *place,
                       nm_error *err); /* NM_USAGE; may be NULL */
    /* One line for the log of a training run: what follows from its planned updates. May be NULL. */
    void (*note)(const nm_norm *norm, char *text, size_t size);
    void (*shape)(const void *config, const nm_norm_site *place, nm_norm_shape *shape);
    void (*train)(nm_norm_call *call);
    void (*infer)(nm_norm_call *call);
    void (*backward)(nm_norm_call *call); /* runs once per train, in reverse order of the calls */
    /* Computes the new running state and counters from the statistics collected by train and backward since the last
     * call. call: backend, norm and grad_scale only. NULL for types without state. */
    void (*update_state)(nm_norm_call *call);
    /* Inference as one map per feature, y = scale x + shift, into host numbers [width]; false when with these settings it
     * is none. NULL: never. */
    bool (*affine)(const nm_norm *norm, nm_backend *backend, double *scale, double *shift);
} nm_norm_type;

struct nm_norm {
    const nm_norm_type *type;
    const void *config; /* the type's options, owned by whoever created the options */
    nm_norm_site site;
    nm_norm_shape shape;
    void *params[NM_NORM_MAX_PARAMS], *param_grads[NM_NORM_MAX_PARAMS]; /* device; grads NULL when fixed */
    void *state[NM_NORM_MAX_STATE];                                     /* device */
    int64_t counters[NM_NORM_MAX_COUNTERS];                             /* host */
    void *statistics[NM_NORM_MAX_STATISTICS];                           /* device; of the present update */
    double collected_rows[NM_NORM_MAX_STATISTICS];                      /* rows in each of them */
    bool folded; /* the linear maps behind it do its work at inference: x passes through */
    void *alone; /* what a layer on its own owns besides; NULL inside a model */
};

/* The registered types, NULL at the end; and one by name, or NULL. */
extern const nm_norm_type *const nm_norm_types[];
const nm_norm_type *nm_norm_type_find(const char *name);
/* Registers the section [norm], and [norm.NAME] of every type. */
void nm_norm_options_add(nm_options *options);

/* Inside a model: fills type, config, place, shape; the caller then sets params, param_grads and state to device
 * memory of the lengths in shape (nm_norm_initialize writes the first values and zeroes the counters). */
nm_status nm_norm_prepare(nm_norm *norm, const char *type, const void *config, const nm_norm_site *place,
                          nm_error *err);
void nm_norm_initialize(nm_norm *norm, nm_backend *backend);
/* Updates running state and counters from the statistics of the micro-batches since the last call; without any, nothing
 * changes. train and backward only read the state. grad_scale: that of the calls. */
void nm_norm_update_state(nm_norm *norm, nm_backend *backend, double grad_scale);
/* Discards the statistics collected since the last update of the state. */
void nm_norm_discard_statistics(nm_norm *norm);

/* Section [norm]: what holds for every type. */
typedef struct nm_norm_config {
    const char *at; /* norms of single sites, see nn/norm_assignment.h */
    enum { NM_STATE_UPDATE, NM_STATE_MICRO_BATCH } state;
    int64_t groups; /* 0: that of the site */
} nm_norm_config;

#ifdef __cplusplus
}
#endif
#endif
