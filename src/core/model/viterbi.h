/* The tag sequence of a linear-chain CRF with the highest score (Viterbi 1967), in double on the host. */
#pragma once

#include <stdint.h>

typedef struct nm_chain {
    int32_t tags;                      /* T */
    double *transitions, *start, *end; /* [T, T] from row to column, [T], [T]; one heap block */
} nm_chain;

/* All scores are 0; free them with nm_chain_release. */
void nm_chain_init(nm_chain *chain, int32_t tags);
void nm_chain_release(nm_chain *chain);
/* Writes the path [n] with the highest score to path and returns the score. emissions: [n, T], n >= 1. Of
 * equal scores, the path with the smallest tag of the last token is returned, then of the token before,
 * etc. */
double nm_viterbi(const nm_chain *chain, const double *emissions, int32_t n, int32_t *path);
