/* A model maps a batch to hidden vectors and an output projection. Each kind of model is one file that
 * defines an nm_model_type; no other code depends on the kind. */
#pragma once

#include "model/batch.h"
#include "nn/fold.h"
#include "nn/params.h"
#include "nn/transformer.h"

/* Output bias of a token that must not be generated, in converted models; finite, so that no NaN can
 * arise. */
#define NM_EXCLUDED_LOGIT (-1e9)

typedef struct nm_model nm_model;

typedef struct nm_model_output {
    nm_tensor *hidden;        /* [target tokens, d] */
    nm_tensor *weight, *bias; /* [V, d], [1, V] or NULL: logits = hidden weight^T + bias */
    /* Adaptive softmax: the head's cluster entries [n, d] and [1, n], and the clusters; NULL: plain
     * softmax. */
    nm_tensor *cluster_weight, *cluster_bias;
    const nm_adaptive_clusters *clusters;
} nm_model_output;

/* Embeddings and output projection of a generative model; with FixNorm their rows are L2-normalized. */
typedef struct nm_generator_tables {
    nm_tensor *source, *target; /* embeddings; source NULL without an encoder */
    nm_model_output output;     /* hidden is NULL */
} nm_generator_tables;

/* What decoding needs from a model that generates text. */
typedef struct nm_generator {
    /* The stack that runs with a KV cache; returns NULL if the configuration does not support one (block-term
     * attention). */
    const nm_stack *(*decoder)(const nm_model *model);
    const nm_stack *(*encoder)(const nm_model *model); /* NULL: decoder-only */
    /* Maximum length in tokens of a source or a target sequence, or the context length of a language
     * model. */
    int32_t (*context)(const nm_model *model);
    bool (*is_causal)(const nm_model *model); /* NULL: always causal */
    /* The tensors are parameters, or belong to the tape (FixNorm). */
    nm_generator_tables (*tables)(nm_model *model, nm_tape *tape);
    /* Input of a stack, [n, d]. ids, pos: host [n], tokens and positions in their sequences; table:
     * tables.source or tables.target. */
    nm_tensor *(*embed)(nm_model *model, nm_tape *tape, nm_tensor *table, const int32_t *ids,
                        const int32_t *pos, int32_t n);
} nm_generator;

typedef struct nm_model_type {
    const char *name;
    const nm_option *options; /* section [model] */
    const nm_preset *presets;
    const nm_option_rule *rules; /* options without effect in some configurations; may be NULL */
    size_t config_size;
    nm_status (*build)(nm_model *model, nm_error *err); /* sets parts, registers parameters and norms */
    /* computes tables after nm_params_allocate; may be NULL */
    nm_status (*ready)(nm_model *model, nm_error *err);
    nm_model_output (*forward)(nm_model *model, nm_tape *tape, const nm_batch *batch);
    void (*release)(nm_model *model); /* frees parts, also after a build that failed */
    /* Adds the norms and their readers (nn/fold.h); NULL: no norm can be folded. */
    void (*fold)(const nm_model *model, nm_fold *fold);
    const nm_generator *generator; /* NULL: the model does not generate text */
    /* A warning about the cost of training with this configuration, heap, freed by the caller; returns NULL
     * for none. The function may be NULL. */
    char *(*warning)(const nm_model *model);
} nm_model_type;

struct nm_model {
    const nm_model_type *type;
    nm_backend *backend;
    const nm_options *options; /* [model], [norm], [norm.*]; must outlive the model */
    const void *config;
    nm_params params;
    int32_t source_size, target_size; /* sizes of the vocabularies */
    const void *more_sizes;           /* nm_model_sizes.more */
    nm_norm_plan plan;                /* of the training run */
    uint8_t *allowed;                 /* device [target_size]: 1 for tokens that may be output; NULL: all */
    void *parts;                      /* of the type, owned */
};

/* Registers [model] of the type. */
void nm_model_options_add(nm_options *options, const nm_model_type *type);

typedef struct nm_model_sizes {
    int32_t source, target;
    nm_norm_plan plan; /* of the training run */
    const void *more;  /* further sizes, of a type that task and model share; must outlive the model */
} nm_model_sizes;

/* Declares a model: its parameters have shapes, but no memory. Free it with nm_model_free. NM_USAGE or
 * NM_MISMATCH if options do not fit together or do not fit the sizes. */
nm_status nm_model_declare(nm_model **model, const nm_model_type *type, nm_backend *backend,
                           const nm_options *options, const nm_model_sizes *sizes, nm_error *err);
/* Allocates the parameters of a declared model, all zero, and computes its constant tables. NM_MEMORY;
 * NM_USAGE if model.freeze is invalid. */
nm_status nm_model_allocate(nm_model *model, bool with_grads, nm_error *err);
/* nm_model_declare and nm_model_allocate. nm_params_initialize or nm_model_file_load then sets the
 * parameters. */
nm_status nm_model_create(nm_model **model, const nm_model_type *type, nm_backend *backend,
                          const nm_options *options, const nm_model_sizes *sizes, bool with_grads,
                          nm_error *err);
void nm_model_free(nm_model *model);
/* The same model on a worker of its backend, for concurrent inference: parameters, tables and norms are
 * shared and must not change while it exists. `main` must outlive it. NM_UNSUPPORTED: see
 * nm_backend_create_worker. */
nm_status nm_model_create_worker(nm_model **worker, const nm_model *main, nm_error *err);
void nm_model_free_worker(nm_model *worker);
/* Restricts the output to tokens with 1 in allowed (host [target_size], copied); replaces an earlier
 * restriction. NM_MEMORY. */
nm_status nm_model_allow(nm_model *model, const uint8_t *allowed, nm_error *err);

/* For inference only: folds norms into linear layers where this changes outputs by rounding only. options,
 * unless NULL, are set to the norms after folding, for a model file; they may be the model's own options if
 * it is not built again. Returns the number of folded norms. */
size_t nm_model_fold(nm_model *model, nm_options *options);

extern const nm_model_type nm_model_seq2seq, nm_model_lm, nm_model_classifier, nm_model_tagger,
    nm_model_image;
