/* A batch: sequences packed one after another, no padding. Host memory, owned by the caller that built it. */
#ifndef NM_BATCH_H
#define NM_BATCH_H

#include "norma/backend.h"

typedef struct nm_batch {
    int32_t n;                 /* examples */
    int32_t n_targets;         /* divisor of loss sums: target tokens without ignored ones, or examples */
    int32_t n_ignored;         /* target tokens that are NM_TARGET_IGNORED in target_out */
    int32_t tokens;            /* tokens counted in throughput and progress */
    const int64_t *index;      /* [n]: index of each example in the corpus */
    nm_packing source, target; /* host offsets only; target.n_seqs is 0 without a target */
    const int32_t *source_ids, *source_pos; /* [source.n_tokens]; pos counts from 0 within each sequence */
    /* [target.n_tokens]: decoder input, gold tokens, positions */
    const int32_t *target_in, *target_out, *target_pos;
    const void *more; /* further inputs of the task's model */
} nm_batch;

#endif
