/* A batch: sequences packed one after another, without padding, in host memory of the arena in which it was
 * packed. */
#pragma once

#include "norma/backend.h"

typedef struct nm_batch {
    int32_t n; /* examples */
    /* divisor of loss sums: number of target tokens that are not ignored, or of examples */
    int32_t n_targets;
    int32_t n_ignored;         /* number of target tokens that are NM_TARGET_IGNORED in target_out */
    int32_t tokens;            /* number of tokens for throughput and progress */
    const int64_t *index;      /* [n]: index of each example in the corpus */
    nm_packing source, target; /* host offsets only; target.n_seqs is 0 without a target */
    const int32_t *source_ids, *source_pos; /* [source.n_tokens]; positions from 0 within each sequence */
    /* [source.n_tokens, source_width]: inputs that are numbers, in place of ids; or NULL */
    const float *source_values;
    int32_t source_width;
    /* [target.n_tokens]: decoder input, gold tokens, positions; NULL without a target */
    const int32_t *target_in, *target_out, *target_pos;
    const void *more; /* further inputs of the task's model */
} nm_batch;
