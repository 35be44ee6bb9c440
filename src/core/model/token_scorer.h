/* Log probabilities of the next token under one model or an ensemble, whose probabilities are averaged as in
 * fairseq. Only the k best tokens of each hypothesis are copied to the host, in one block, unless step.scores
 * requests all. */
#pragma once

#include "base/stop.h"
#include "model/incremental.h"

/* The tokens that may be output for each source of a batch, in place of all tokens of the vocabulary:
 * ids[offsets[s]] .. ids[offsets[s + 1] - 1] for source s, ascending, with eos. */
typedef struct nm_token_selection {
    int32_t n;          /* sources */
    int32_t *ids;       /* [offsets[n]] */
    size_t *offsets;    /* [n + 1] */
    int32_t *source_of; /* [source tokens] the source of each row of the packed sources */
} nm_token_selection;

typedef struct nm_token_scorer {
    nm_backend *backend;
    const nm_stop *stop; /* requested: nm_token_scorer_step returns NM_INTERRUPTED; NULL: never */
    nm_incremental **models;
    nm_model **of; /* the models of `models` */
    int32_t n_models, vocab_size, eos, k;
    void *logits;                        /* device, for a block of rows: [rows, V] */
    void *best, *best_host;              /* device and host: what is downloaded of a block of rows */
    int32_t *given;                      /* device: [rows] */
    void *raw;                           /* host, for `all`: [rows, V], in the type of the backend */
    const nm_token_selection *selection; /* of the batch; NULL: all tokens */
    void *selected;                      /* device: selection->ids */
    size_t selected_bytes;
    double *mixture; /* device, for a block of rows: log of the sum of the models' probabilities, [rows, V] */
    double *values, *eos_values;    /* results, host: [n, k] in descending order, [n] */
    double *given_values;           /* results, host: [n] */
    double *all;                    /* results, host: [n, V] */
    int32_t *columns;               /* results, host: token ids, [n, k] */
    int32_t capacity, all_capacity; /* rows of the results */
} nm_token_scorer;

/* k: number of best tokens per hypothesis; at most the vocabulary size is used. All models have the same
 * backend and vocabulary size (asserted). The caller calls nm_token_scorer_release in every case.
 * NM_UNSUPPORTED as nm_incremental_create; NM_MEMORY. */
nm_status nm_token_scorer_init(nm_token_scorer *scorer, nm_model *const *models, int32_t n_models,
                               int32_t eos, int32_t k, nm_error *err);
/* For another batch with the same models, on a worker of the main scorer's backend; nm_token_scorer_refresh
 * is for the main scorer only, which must outlive it. The caller calls nm_token_scorer_release in every case.
 * NM_MEMORY. */
nm_status nm_token_scorer_init_worker(nm_token_scorer *scorer, const nm_token_scorer *main,
                                      nm_backend *worker, nm_error *err);
void nm_token_scorer_release(nm_token_scorer *scorer);

/* nm_incremental_refresh and nm_incremental_start of every model. */
nm_status nm_token_scorer_refresh(nm_token_scorer *scorer, nm_error *err);
nm_status nm_token_scorer_start(nm_token_scorer *scorer, const nm_packing *sources, const int32_t *ids,
                                nm_error *err);
/* Restricts the steps that follow to tokens selected for each source; their probabilities have the sum 1. The
 * selection must be valid during these steps; NULL: all tokens. NM_MEMORY. */
nm_status nm_token_scorer_select(nm_token_scorer *scorer, const nm_token_selection *selection, nm_error *err);
/* Computes log probabilities: values, columns and eos_values (NM_SCORES_BEST), all (NM_SCORES_ALL) or these
 * four; with step->given also given_values. Those of tokens that may not be output are -infinity. The
 * attention of an ensemble is the mean over the models. NM_DIVERGED if log probabilities are not finite;
 * NM_MEMORY. */
nm_status nm_token_scorer_step(nm_token_scorer *scorer, const nm_decode_step *step, nm_error *err);
