/* A generative model run one target position at a time with a KV cache: the source is encoded once; per decoder layer, keys
 * and values of every position are computed once and kept. Decoder-only models have no source: nm_incremental_start and the
 * cross lists are not for them.
 *
 * Every decoder input is one row of the self-attention caches, numbered in the order of the steps. A hypothesis is the list
 * of rows that it attends to, its own last, so reordering a beam moves no cache entries. */
#ifndef NM_INCREMENTAL_H
#define NM_INCREMENTAL_H

#include "model/model.h"

typedef struct nm_incremental nm_incremental;

/* Cross-attention of a step: the probabilities of one layer, of a head or averaged over the heads. */
typedef struct nm_attention_request {
    int32_t layer, head; /* from 0; head -1: the mean of all */
    double *weights;     /* host, =; one number per entry of cross_rows */
} nm_attention_request;

/* One step: n target inputs, of as many hypotheses, or several consecutive ones of a hypothesis (forced decoding). Host
 * arrays; lists are packed one after another, offsets have n + 1 numbers. */
/* What nm_scorer_step computes for each hypothesis. */
typedef enum nm_step_scores {
    NM_SCORES_BEST, /* the k best tokens and eos */
    NM_SCORES_ALL,  /* all tokens */
    NM_SCORES_ALL_AND_BEST
} nm_step_scores;

typedef struct nm_decode_step {
    int32_t n, position;      /* position: number of preceding target inputs, the same for all */
    const int32_t *positions; /* [n]: of each, instead of position; NULL: the same for all */
    const int32_t *ids;       /* [n] target inputs; they become cache rows first_row .. first_row + n - 1 */
    int32_t first_row;
    const int32_t *self_rows,
        *self_offsets; /* cache rows of target inputs; each list ends with its own row */
    const int32_t *cross_rows, *cross_offsets; /* rows of the packed source */
    const nm_attention_request *attention;     /* NULL: none */
    /* For nm_scorer_step: [n] target tokens whose log probabilities are computed too, or NM_TARGET_IGNORED; NULL: none. */
    const int32_t *given;
    nm_step_scores scores;
} nm_decode_step;

/* The model must outlive it. NM_UNSUPPORTED: the model does not generate text, or its attention has no KV cache; NM_MEMORY. */
nm_status nm_incremental_create(nm_incremental **incremental, nm_model *model, nm_error *err);
/* A second one for the same parameters and another batch, on a worker of the main one's backend; `main` may be such a second
 * one itself. Only the main one is
 * refreshed and released with nm_incremental_release_weights. */
nm_status nm_incremental_create_worker(nm_incremental **incremental, const nm_incremental *main,
                                       nm_backend *worker, nm_error *err);
void nm_incremental_free(nm_incremental *incremental);

/* Computes what depends on parameters only: FixNorm's tables and packed copies of the weights. The parameters must not
 * change until nm_incremental_release_weights. */
nm_status nm_incremental_refresh(nm_incremental *incremental, nm_error *err);
/* Unregisters the packed weights; after that the parameters may change. */
void nm_incremental_release_weights(nm_incremental *incremental);
/* Encodes a batch of packed sources (host offsets) in place of the previous one. */
nm_status nm_incremental_start(nm_incremental *incremental, const nm_packing *sources, const int32_t *ids,
                               nm_error *err);
/* hidden: [n, d], device, valid until the next call. */
nm_status nm_incremental_step(nm_incremental *incremental, const nm_decode_step *step, nm_mat *hidden,
                              nm_error *err);
/* The output projection; parameters or tables, valid until the next refresh. */
const nm_model_output *nm_incremental_output(const nm_incremental *incremental);

#endif
