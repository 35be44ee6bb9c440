/* Lexical constraints of a translation: phrases that it must contain, and the state of a hypothesis with
 * respect to them. The search allocates its beam dynamically to hypotheses by the number of constraint tokens
 * met (Post and Vilar 2018, "Fast lexically constrained decoding with dynamic beam allocation for neural
 * machine translation"), in the vectorized variant of Hu et al. 2019, "Improved lexically constrained
 * decoding for translation and monolingual rewriting". */
#pragma once

#include "norma/status.h"

enum { NM_CONSTRAINTS_MAX = 64, NM_PHRASES_MAX = 2 * NM_CONSTRAINTS_MAX };

/* A constraint is a phrase, or two forms of it, one after the other, of which one must be met: in scripts
 * without spaces a phrase has other subwords at the boundary of a word than within it. */
typedef struct nm_phrase {
    const int32_t *ids;
    int32_t n;         /* > 0 */
    int32_t n_seconds; /* number of second forms among the phrases up to this one */
    bool inside;       /* it may begin within a word */
    bool initial;      /* nm_constraints_next returns it only for the beginning of the translation */
} nm_phrase;

typedef struct nm_constraints { /* of one translation */
    const nm_phrase *phrases;   /* [n], n <= NM_PHRASES_MAX, of at most NM_CONSTRAINTS_MAX constraints */
    int32_t n;
    /* [vocabulary] true for subwords that the next token continues (such as "play@@"): after them begin only
     * phrases with `inside`. NULL: none. */
    const bool *joined;
} nm_constraints;

/* {0}: before the first token. */
typedef struct nm_constraint_state {
    uint64_t met;      /* bit mask of the constraints that are met */
    int32_t n_met;     /* number of tokens of the constraints that are met, plus n_begun */
    int32_t phrase;    /* index of the phrase in progress, if n_begun > 0 */
    int32_t n_begun;   /* number of its tokens met: the last tokens of the hypothesis */
    bool began_inside; /* that phrase began within a word */
    bool inside_word;  /* the next token continues a word, see nm_constraints.joined */
    bool started;      /* there is a token */
} nm_constraint_state;

/* Number of tokens of all constraints, of the longer of two forms. */
int32_t nm_constraints_tokens(const nm_constraints *constraints);
bool nm_constraints_are_met(const nm_constraints *constraints, nm_constraint_state state);
/* The state after one more token. If the token does not continue the phrase in progress, the longest suffix
 * of the tokens that begins an unmet phrase is in progress instead, if there is one. A phrase that is part of
 * a met phrase is met, too. */
nm_constraint_state nm_constraints_advance(const nm_constraints *constraints, nm_constraint_state state,
                                           int32_t id);
/* Writes to ids [NM_PHRASES_MAX] the token that continues the phrase in progress or, without one, the
 * distinct tokens that begin an unmet phrase (within a word only those with `inside`). Returns their
 * number. */
int32_t nm_constraints_next(const nm_constraints *constraints, nm_constraint_state state, int32_t *ids);
