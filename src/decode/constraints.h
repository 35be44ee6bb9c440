/* Lexical constraints of a translation: phrases that it must contain, and how far a hypothesis has met them. The search
 * allocates its beam dynamically to hypotheses by the number of constraint tokens that they have met (Post and Vilar 2018,
 * "Fast lexically constrained decoding with dynamic beam allocation for neural machine translation"), in the vectorized
 * form of Hu et al. 2019, "Improved lexically constrained decoding for translation and monolingual rewriting". */
#ifndef NM_CONSTRAINTS_H
#define NM_CONSTRAINTS_H

#include "norma/status.h"

enum { NM_CONSTRAINTS_MAX = 64 };

typedef struct nm_phrase {
    const int32_t *ids;
    int32_t n; /* > 0 */
} nm_phrase;

typedef struct nm_constraints { /* of one translation */
    const nm_phrase *phrases;   /* [n], n <= NM_CONSTRAINTS_MAX */
    int32_t n;
    /* [vocabulary] tokens that are joined with the next one, after which no phrase begins; the last token of a phrase is none
     * of them. NULL: none. */
    const bool *joined;
} nm_constraints;

/* {0}: before the first token. */
typedef struct nm_constraint_state {
    uint64_t met;   /* bit mask of phrases */
    int32_t n_met;  /* tokens of the phrases that are met and of the one in progress */
    int32_t phrase; /* the phrase of which the last `n_begun` tokens are the beginning, if n_begun > 0 */
    int32_t n_begun;
    bool inside_word; /* after a token that is joined with the next one */
} nm_constraint_state;

/* Number of tokens of all phrases. */
int32_t nm_constraints_tokens(const nm_constraints *constraints);
bool nm_constraints_are_met(const nm_constraints *constraints, nm_constraint_state state);
/* The state after one more token. A phrase in progress that the token does not continue is lost, except for a suffix of the
 * tokens that begins a phrase which is not met. A phrase within one that is met is met, too. */
nm_constraint_state nm_constraints_advance(const nm_constraints *constraints, nm_constraint_state state,
                                           int32_t id);
/* The tokens that continue the phrase in progress, or, without one, begin a phrase that is not met, without repetitions;
 * [NM_CONSTRAINTS_MAX]; none within a word. Returns their number. */
int32_t nm_constraints_next(const nm_constraints *constraints, nm_constraint_state state, int32_t *ids);

#endif
