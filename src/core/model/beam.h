/* Beam search over a batch, on the host. Two rules select the hypotheses of the next step:
 *   fairseq  The best 2 beam candidates by sum of log probabilities. Those among the first `beam` that end
 *            with eos are
 *            finished; the first `beam` of the others stay active. A sentence is done with `beam` finished
 *            hypotheses; eos is
 *            forced at the length limit.
 *   tears    The best `beam` candidates by score, after the length penalty. Finished hypotheses stay in the
 *            beam with their
 *            score. A sentence is done if all are finished or at the length limit (Nguyen and Salazar 2019).
 *
 * Diverse beam search (Vijayakumar et al. 2018) divides the beam into groups, which are searched one after
 * another at each step: the rank criterion of a candidate is reduced by diverse_strength for each hypothesis
 * of an earlier group of the sentence that was extended by the same token at this step (Hamming diversity).
 * Scores do not include that term. Sampling uses one group of one hypothesis per sample.
 *
 * With lexical constraints (constraints.h), which need the fairseq rule, the tokens that continue
 * constraints are additional candidates, and eos is a candidate only after all constraints are met. The
 * candidates of a step are divided into banks by the number of constraint tokens met; the rule receives the
 * best candidate of each bank, then the second best ones, and so on. */
#pragma once

#include "model/constraints.h"
#include "model/decode.h"
#include "model/token_scorer.h"

/* A partial or finished hypothesis: the decoder inputs of its node, and one more token. */
typedef struct nm_beam_entry {
    int32_t node; /* decoder input of the preceding token; -1: none */
    int32_t id;
    double token_score; /* log probability of id */
    /* sum of the log probabilities of all tokens; the same divided by the length penalty */
    double sum, score;
    bool finished;
    nm_constraint_state constraints; /* after id */
} nm_beam_entry;

typedef struct nm_beam_candidate {
    nm_beam_entry entry;
    double key; /* rank criterion: sum or score, minus the diversity term */
    /* index of the hypothesis in the beam, rank among its successors; they order equal keys */
    int32_t parent, rank;
    /* with constraints: rank among the candidates with the same number of constraint tokens met */
    int32_t bank_rank;
} nm_beam_candidate;

typedef struct nm_beam_sentence { /* one group of a sentence */
    /* [beam] each: active and finished; with `tears` finished ones stay in live */
    nm_beam_entry *live, *finals;
    int32_t n_live, n_finals;
    int32_t limit;     /* maximum number of tokens before eos */
    int32_t first_row; /* row of the first active hypothesis in the current step */
    bool done;
} nm_beam_sentence;

typedef struct nm_beam_rule {
    const char *name;
    int32_t candidates; /* number per hypothesis and per sentence, as a multiple of the beam size */
    bool forces_eos, keeps_finished, ranks_by_score;
    /* Sets live, finals and done of the sentence. candidates: [n], best first; n_tokens: length of the
     * unfinished ones. */
    void (*choose)(nm_beam_sentence *sentence, const nm_beam_candidate *candidates, int32_t n, int32_t beam,
                   int32_t n_tokens);
} nm_beam_rule;

extern const nm_beam_rule nm_beam_fairseq, nm_beam_tears;

/* The sentences of a batch. */
typedef struct nm_beam_batch {
    const nm_packing *sources;
    const int32_t *ids; /* [tokens of all sources] */
    /* [sources] maximum number of tokens before eos, at least the length of the prefix */
    const int32_t *limits;
    const nm_id_list *prefixes;        /* [sources]; NULL: none */
    const nm_constraints *constraints; /* [sources], their tokens fit into the limits; NULL: none */
} nm_beam_batch;

/* Number of best tokens per hypothesis that the search needs: nm_token_scorer.k. */
int32_t nm_beam_tokens(const nm_beam_rule *rule, const nm_decode_options *options);
/* Translates one batch: out[i] gets the best hypotheses of source i, released by the caller. Errors as
 * nm_decode. */
nm_status nm_beam_run(nm_token_scorer *scorer, const nm_beam_rule *rule, const nm_decode_options *options,
                      const nm_special_tokens *special, const nm_beam_batch *batch, nm_translation *out,
                      nm_error *err);

/* Divisor of the sum of log probabilities of n tokens, eos included, see decode.length_penalty. */
double nm_length_penalty(const nm_decode_options *options, int32_t n);
