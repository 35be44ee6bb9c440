/* Beam search over a batch, on the host. Two rules select the hypotheses of the next step:
 *   fairseq  2 beam candidates, ranked by the sum of log probabilities. Those among the first `beam` that end with eos are
 *            finished; the first `beam` of the others stay active. A sentence is done with `beam` finished hypotheses; eos is
 *            forced at the length limit.
 *   tears    the best `beam` candidates by score, after the length penalty. Finished hypotheses stay in the beam with their
 *            score. A sentence is done if all are finished or at the length limit (Nguyen and Salazar 2019).
 *
 * Diverse beam search (Vijayakumar et al. 2018) divides the beam into groups, which are searched one after another at each step:
 * a candidate ranks lower by diverse_strength for each hypothesis of an earlier group of the sentence that was extended
 * by the same token at this step (Hamming diversity). Scores do not include that term. Samples are drawn as groups of one
 * hypothesis each.
 *
 * With lexical constraints (decode/constraints.h), which need the fairseq rule, the candidates also have the tokens that
 * continue constraints, and eos only follows when all are met. The candidates of a step are divided into banks by the number
 * of constraint tokens met; the rule receives the best one of each bank, then the second best ones, and so on. */
#ifndef NM_BEAM_H
#define NM_BEAM_H

#include "decode/constraints.h"
#include "decode/decode.h"
#include "decode/scorer.h"

/* A partial or finished hypothesis: the decoder inputs of its node, and one more token. */
typedef struct nm_beam_entry {
    int32_t node; /* of the preceding token; -1: none */
    int32_t id;
    double token_score, sum, score; /* log probability of id; of all tokens; after the length penalty */
    bool finished;
    nm_constraint_state constraints; /* after id */
} nm_beam_entry;

typedef struct nm_beam_candidate {
    nm_beam_entry entry;
    double key;           /* rank criterion of the rule: sum or score */
    int32_t parent, rank; /* index in the beam, rank among its successors: order of equal keys */
    int32_t bank_rank;    /* with constraints: among the candidates with as many constraint tokens met */
} nm_beam_candidate;

typedef struct nm_beam_sentence {
    nm_beam_entry *live, *finals; /* [beam] each; with `tears` finished ones stay in live */
    int32_t n_live, n_finals, limit, first_row;
    bool done;
} nm_beam_sentence;

typedef struct nm_beam_rule {
    const char *name;
    int32_t candidates; /* per hypothesis and per sentence, in units of the beam size */
    bool forces_eos, keeps_finished, ranks_by_score;
    /* candidates: sorted, best first; n_tokens: length of the unfinished ones */
    void (*choose)(nm_beam_sentence *sentence, const nm_beam_candidate *candidates, int32_t n, int32_t beam,
                   int32_t n_tokens);
} nm_beam_rule;

extern const nm_beam_rule nm_beam_fairseq, nm_beam_tears;

/* The sentences of a batch. */
typedef struct nm_beam_batch {
    const nm_packing *sources;
    const int32_t *ids;         /* of all sources */
    const int32_t *limits;      /* maximum number of tokens before eos, at least the length of the prefix */
    const nm_id_list *prefixes; /* NULL: none */
    const nm_constraints *constraints; /* of each source, whose tokens fit into the limit; NULL: none */
} nm_beam_batch;

/* Number of groups of the beam or, for samples, of samples; and the number of tokens per hypothesis that the scorer must find
 * (its k). */
int32_t nm_beam_groups(const nm_decode_options *options);
int32_t nm_beam_tokens(const nm_beam_rule *rule, const nm_decode_options *options);
/* Translates one batch. */
nm_status nm_beam_run(nm_scorer *scorer, const nm_beam_rule *rule, const nm_decode_options *options,
                      const nm_special_tokens *special, const nm_beam_batch *batch, nm_translation *out,
                      nm_error *err);

#endif
