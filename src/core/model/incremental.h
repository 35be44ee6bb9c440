/* Incremental decoding with a KV cache: the source is encoded once, and each decoder layer computes the keys
 * and values of a position once. Decoder-only models have no source: they do not use nm_incremental_start and
 * the lists of cross-attention.
 *
 * Each decoder input is one row of the self-attention caches, numbered in the order of the steps. A
 * hypothesis is the list of the rows that it attends to, the last of which is its own, so that reordering a
 * beam does not move cache entries. */
#pragma once

#include "model/model.h"

typedef struct nm_incremental nm_incremental;

/* The cross-attention weights of a step in one layer, of one head or averaged over the heads. */
typedef struct nm_attention_request {
    int32_t layer, head; /* from 0; head -1: the mean of all heads */
    double *weights;     /* host, [entries of cross_rows], overwritten */
} nm_attention_request;

/* Log probabilities that nm_token_scorer_step computes for each hypothesis. */
typedef enum nm_step_scores {
    NM_SCORES_BEST, /* the k best tokens and eos */
    NM_SCORES_ALL,  /* all tokens */
    NM_SCORES_ALL_AND_BEST
} nm_step_scores;

/* One step: n decoder inputs, each of another hypothesis, or several consecutive ones of a hypothesis (forced
 * decoding). Host arrays. List i of rows is rows[offsets[i]] .. rows[offsets[i + 1] - 1]. */
typedef struct nm_decode_step {
    int32_t n, position;      /* position: number of preceding inputs of each hypothesis */
    const int32_t *positions; /* [n] positions, if they differ; NULL: `position` for all */
    const int32_t *ids;       /* [n] input tokens; they become cache rows first_row .. first_row + n - 1 */
    int32_t first_row;
    /* cache rows of self-attention; each list ends with its own row */
    const int32_t *self_rows, *self_offsets;
    const int32_t *cross_rows, *cross_offsets; /* rows of the packed source */
    const nm_attention_request *attention;     /* NULL: none */
    /* For nm_token_scorer_step: [n] tokens whose log probabilities are computed, too, or NM_TARGET_IGNORED;
     * NULL: none. */
    const int32_t *given;
    nm_step_scores scores; /* for nm_token_scorer_step */
    /* For nm_token_scorer_step with the scores of all tokens: changes the log probabilities [V] of a row
     * before they are ranked; given tokens keep theirs. logits: [V], NULL for an ensemble or if
     * adjusts_logits is false. NULL: no change. */
    void (*adjust)(void *adjust_context, int32_t row, const double *logits, double *log_probs);
    void *adjust_context;
    bool adjusts_logits;
} nm_decode_step;

/* The model must outlive it. On a bf16 backend, or if the parameters are int8, the KV cache is in bf16,
 * otherwise in the backend's dtype. NM_UNSUPPORTED: the model does not generate text, or its attention has no
 * KV cache; NM_MEMORY. */
nm_status nm_incremental_create(nm_incremental **incremental, nm_model *model, nm_error *err);
/* For another batch with the same parameters and tables, on a worker of main's backend; `main` must outlive
 * it and may itself be a worker. nm_incremental_refresh and nm_incremental_release_weights are for the first
 * one only. NM_MEMORY. */
nm_status nm_incremental_create_worker(nm_incremental **incremental, const nm_incremental *main,
                                       nm_backend *worker, nm_error *err);
void nm_incremental_free(nm_incremental *incremental);

/* Computes FixNorm's tables and packed copies of the weights, which depend on the parameters only. The
 * parameters must not change until nm_incremental_release_weights. NM_MEMORY. */
nm_status nm_incremental_refresh(nm_incremental *incremental, nm_error *err);
/* Unregisters the packed weights; after that the parameters may change. */
void nm_incremental_release_weights(nm_incremental *incremental);
/* Encodes a batch of packed sources (host offsets), which replaces the previous one. ids: host [n_tokens].
 * NM_MEMORY. */
nm_status nm_incremental_start(nm_incremental *incremental, const nm_packing *sources, const int32_t *ids,
                               nm_error *err);
/* *hidden: output of the decoder stack, [n, d], device, valid until the next call. NM_MEMORY. */
nm_status nm_incremental_step(nm_incremental *incremental, const nm_decode_step *step, nm_mat *hidden,
                              nm_error *err);
/* The output projection (`hidden` is NULL), valid until the next nm_incremental_refresh. */
const nm_model_output *nm_incremental_output(const nm_incremental *incremental);
