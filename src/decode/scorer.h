/* Log probabilities of the next token under one model or an ensemble, whose probabilities are averaged as in fairseq. Only
 * the k best tokens of each hypothesis are copied to the host. */
#ifndef NM_SCORER_H
#define NM_SCORER_H

#include "decode/incremental.h"

typedef struct nm_scorer {
    nm_backend *backend;
    nm_incremental **models;
    nm_model **of; /* the models of `models` */
    int32_t n_models, vocab_size, eos, k;
    void *logits, *top, *eos_column, *given_column; /* device, for a block of rows */
    int32_t *top_columns, *given;
    void *raw;                      /* host: downloaded numbers of the backend */
    double *mixture;                /* host: log probabilities of the ensemble */
    double *values, *eos_values;    /* results, host: [n, k] in descending order, [n] */
    double *given_values;           /* results, host: [n] */
    double *all;                    /* results, host: [n, V] */
    int32_t *columns;               /* results, host: token ids, [n, k] */
    int32_t capacity, all_capacity; /* rows of the results */
} nm_scorer;

/* k: number of tokens per hypothesis. All models have the same backend and vocabulary size (asserted). */
nm_status nm_scorer_init(nm_scorer *scorer, nm_model *const *models, int32_t n_models, int32_t eos, int32_t k,
                         nm_error *err);
/* The same models for another batch, on a worker of the main scorer's backend; only the main scorer is refreshed. */
nm_status nm_scorer_init_worker(nm_scorer *scorer, const nm_scorer *main, nm_backend *worker, nm_error *err);
void nm_scorer_release(nm_scorer *scorer);

nm_status nm_scorer_refresh(nm_scorer *scorer, nm_error *err);
nm_status nm_scorer_start(nm_scorer *scorer, const nm_packing *sources, const int32_t *ids, nm_error *err);
/* Fills values, columns and eos_values (NM_SCORES_BEST), all (NM_SCORES_ALL) or these four, with step->given also given_values,
 * with log probabilities; those of tokens that may not be output are -infinity. The attention of an ensemble is the mean.
 * NM_DIVERGED if they are not finite. */
nm_status nm_scorer_step(nm_scorer *scorer, const nm_decode_step *step, nm_error *err);

#endif
