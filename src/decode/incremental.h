/* A sequence-to-sequence model, or a language model with soft-max attention, run one target token at a time: the encoder
 * once, keys and values kept. A language model has no source: nm_incremental_start and the cross lists are not for it.
 *
 * Every decoder input is one row of the self-attention caches, numbered in the order of the steps; a hypothesis is
 * the list of rows it sees, its own last. Reordering a beam therefore moves no cache. */
#ifndef NM_INCREMENTAL_H
#define NM_INCREMENTAL_H

#include "model/seq2seq.h"

typedef struct nm_incremental nm_incremental;

/* One step of n hypotheses. Host arrays; lists are packed one after another, offsets have n + 1 numbers. */
typedef struct nm_decode_step {
    int32_t n, position; /* position: how many target inputs came before; the same for all */
    const int32_t *ids;  /* [n] target inputs; they become the cache rows first_row .. first_row + n - 1 */
    int32_t first_row;
    const int32_t *self_rows, *self_offsets; /* cache rows of target inputs, each list ending with its own */
    const int32_t *cross_rows, *cross_offsets; /* rows of the packed source */
} nm_decode_step;

/* The model must outlive it. NM_UNSUPPORTED for models of another kind, NM_MEMORY. */
nm_status nm_incremental_create(nm_incremental **incremental, nm_model *model, nm_error *err);
/* A second one for the same parameters, with a batch of its own on a worker of the first one's backend: it takes no part
 * in refresh and rest, which are the first one's. */
nm_status nm_incremental_create_worker(nm_incremental **incremental, const nm_incremental *main,
                                       nm_backend *worker, nm_error *err);
void nm_incremental_free(nm_incremental *incremental);

/* Takes over the parameters as they are now: FixNorm's tables, and weights in the form the backend likes (a copy of
 * them). They must stay as they are until nm_incremental_rest. */
nm_status nm_incremental_refresh(nm_incremental *incremental, nm_error *err);
void nm_incremental_rest(nm_incremental *incremental);
/* Encodes a batch of packed sources (host offsets) and forgets the one before. */
nm_status nm_incremental_start(nm_incremental *incremental, const nm_packing *sources, const int32_t *ids,
                               nm_error *err);
/* hidden: [n, d], device, until the next call. */
nm_status nm_incremental_step(nm_incremental *incremental, const nm_decode_step *step, nm_mat *hidden,
                              nm_error *err);
/* The map from hidden vectors to the vocabulary: [V, d], and a bias or NULL. */
nm_mat nm_incremental_output(const nm_incremental *incremental, const void **bias);

#endif
