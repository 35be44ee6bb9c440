/* Scores of the next word under one model or several: the probabilities of an ensemble are averaged (as fairseq
 * does). Only the best words of each hypothesis come to the host. */
#ifndef NM_SCORER_H
#define NM_SCORER_H

#include "decode/incremental.h"

typedef struct nm_scorer {
    nm_backend *backend;
    nm_incremental **models;
    nm_model **of; /* the model behind each */
    int32_t n_models, words, eos, k;
    void *logits, *top, *eos_column; /* device, for a block of rows */
    int32_t *top_columns;
    void *raw;                   /* host, what a download gives */
    double *mixture;             /* host, for ensembles */
    double *values, *eos_values; /* host results: [n, k] descending, [n] */
    int32_t *columns;            /* [n, k] */
    int32_t capacity;            /* rows of the results */
} nm_scorer;

/* k: how many words per hypothesis. Models must share backend and vocabulary (asserted). */
nm_status nm_scorer_init(nm_scorer *scorer, nm_model *const *models, int32_t n_models, int32_t eos, int32_t k,
                         nm_error *err);
/* The same models for a batch of its own, on a worker of main's backend; refreshing is main's. */
nm_status nm_scorer_init_worker(nm_scorer *scorer, const nm_scorer *main, nm_backend *worker, nm_error *err);
void nm_scorer_release(nm_scorer *scorer);

nm_status nm_scorer_refresh(nm_scorer *scorer, nm_error *err);
nm_status nm_scorer_start(nm_scorer *scorer, const nm_packing *sources, const int32_t *ids, nm_error *err);
/* Fills values, columns and eos_values with log probabilities. NM_DIVERGED when they are not numbers. */
nm_status nm_scorer_step(nm_scorer *scorer, const nm_decode_step *step, nm_error *err);

#endif
