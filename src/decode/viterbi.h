/* The best tag sequence of a linear chain (Viterbi 1967): scores in double on the host. */
#ifndef NM_VITERBI_H
#define NM_VITERBI_H

#include "text/tags.h"

typedef struct nm_chain {
    int32_t tags;                      /* T */
    double *transitions, *start, *end; /* [T, T] from row to column, [T], [T]; one heap block */
} nm_chain;

/* All zero; nm_chain_release frees. */
void nm_chain_init(nm_chain *chain, int32_t tags);
void nm_chain_release(nm_chain *chain);
/* Adds -10000 to every transition, start and end that the scheme forbids, as fastNLP does: a forbidden one is taken only
 * where there is no other way. names: [T] valid tags. */
void nm_chain_forbid(nm_chain *chain, nm_tag_scheme scheme, const char *const *names);
/* Path of n tokens (n >= 1) with the highest score, which is returned; equal ones: the smaller tag, from the end. */
double nm_viterbi(const nm_chain *chain, const double *emissions, int32_t n, int32_t *path);

#endif
