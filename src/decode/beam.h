/* Beam search over a batch, on the host. Two rules select the hypotheses of the next step:
 *   fairseq  2 beam candidates, ranked by the sum of log probabilities. Those among the first `beam` that end with eos are
 *            finished; the first `beam` of the others stay active. A sentence is done with `beam` finished hypotheses; eos is
 *            forced at the length limit.
 *   tears    the best `beam` candidates by score, after the length penalty. Finished hypotheses stay in the beam with their
 *            score. A sentence is done if all are finished or at the length limit (Nguyen and Salazar 2019). */
#ifndef NM_BEAM_H
#define NM_BEAM_H

#include "decode/decode.h"
#include "decode/scorer.h"

/* A partial or finished hypothesis: the decoder inputs of its node, and one more token. */
typedef struct nm_beam_entry {
    int32_t node; /* of the preceding token; -1: none */
    int32_t id;
    double token_score, sum, score; /* log probability of id; of all tokens; after the length penalty */
    bool finished;
} nm_beam_entry;

typedef struct nm_beam_candidate {
    nm_beam_entry entry;
    double key;           /* rank criterion of the rule: sum or score */
    int32_t parent, rank; /* index in the beam, rank among its successors: order of equal keys */
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

/* Translates one batch. limits: maximum number of tokens before eos, per sentence. */
nm_status nm_beam_run(nm_scorer *scorer, const nm_beam_rule *rule, const nm_decode_options *options,
                      const nm_special_tokens *special, const nm_packing *sources, const int32_t *ids,
                      const int32_t *limits, nm_translation *out, nm_error *err);

#endif
