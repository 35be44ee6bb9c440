/* A batch: sequences packed one after another, no padding. Host memory, owned by whoever made it. */
#ifndef NM_BATCH_H
#define NM_BATCH_H

#include "norma/backend.h"

typedef struct nm_batch {
    int32_t n;       /* examples */
    int32_t units;   /* what sums of losses are divided by: target tokens without ignored ones, or examples */
    int32_t ignored; /* target tokens that are NM_TARGET_IGNORED in target_out */
    int32_t tokens;  /* what speed and progress are counted in */
    const int64_t *index;      /* [n]: which example of the corpus each one is */
    nm_packing source, target; /* host offsets only; target.n_seqs is 0 when there is no target */
    const int32_t *source_ids, *source_pos; /* [source.n_tokens]; pos counts from 0 within each sequence */
    const int32_t *target_in, *target_out, *target_pos; /* [target.n_tokens]: input, and what to predict */
    const void *more; /* further inputs, known to the task and its model alone */
} nm_batch;

#endif
