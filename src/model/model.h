/* A model turns a batch into hidden vectors and says which matrix maps them to the vocabulary. What kind it
 * is, is known to its own file alone (nm_model_type). */
#ifndef NM_MODEL_H
#define NM_MODEL_H

#include "data/batch.h"
#include "nn/fold.h"
#include "nn/params.h"

typedef struct nm_model nm_model;

typedef struct nm_model_output {
    nm_tensor *hidden;        /* [target tokens, d] */
    nm_tensor *weight, *bias; /* [V, d], [1, V] or NULL: logits = hidden weight^T + bias */
    /* Adaptive softmax: the head's cluster entries [n, d] and [1, n], and the clusters; NULL: plain softmax. */
    nm_tensor *cluster_weight, *cluster_bias;
    const nm_adaptive_clusters *clusters;
} nm_model_output;

typedef struct nm_model_type {
    const char *name;
    const nm_option *options; /* section [model] */
    const nm_preset *presets;
    size_t config_size;
    nm_status (*build)(nm_model *model, nm_error *err); /* registers parameters and norms by name */
    nm_status (*ready)(nm_model *model, nm_error *err); /* after memory is there: tables; may be NULL */
    nm_model_output (*forward)(nm_model *model, nm_tape *tape, const nm_batch *batch);
    void (*release)(nm_model *model);
    /* Lists the norms and what reads them (nn/fold.h); NULL: none of them joins anything. */
    void (*fold)(const nm_model *model, nm_fold *fold);
    const nm_option_rule *rules; /* options without effect in some configurations; may be NULL */
} nm_model_type;

struct nm_model {
    const nm_model_type *type;
    nm_backend *backend;
    const nm_options *options; /* [model], [norm.*]; must outlive the model */
    const void *config;
    nm_params params;
    int32_t source_size, target_size; /* vocabularies */
    const void *more_sizes;           /* of nm_model_sizes */
    nm_norm_plan plan;                /* of the training run */
    uint8_t *allowed;                 /* device [target_size]: words that may be output; NULL: all */
    void *parts;                      /* the type's own */
};

/* Registers [model] of the type and [norm.*]. */
void nm_model_options_add(nm_options *options, const nm_model_type *type);

typedef struct nm_model_sizes {
    int32_t source, target;
    nm_norm_plan plan; /* of the training run */
    const void *more;  /* further sizes, known to the task and its model alone; must outlive the model */
} nm_model_sizes;

/* Builds with zero parameters; nm_params_initialize or a checkpoint fills them. Free with nm_model_free. */
nm_status nm_model_create(nm_model **model, const nm_model_type *type, nm_backend *backend,
                          const nm_options *options, const nm_model_sizes *sizes, bool with_grads,
                          nm_error *err);
void nm_model_free(nm_model *model);
/* Only these words (host [target_size], 1 or 0) may be output. */
nm_status nm_model_allow(nm_model *model, const uint8_t *allowed, nm_error *err);

/* For inference alone: joins norms with the linear maps behind them where results stay the same but for rounding.
 * options, unless NULL, then say what the norms have become, for a file; they may be the model's own when it is not
 * built again. Returns how many norms are joined. */
size_t nm_model_fold(nm_model *model, nm_options *options);

extern const nm_model_type nm_model_seq2seq, nm_model_lm, nm_model_classifier, nm_model_tagger;

#endif
