/* Beam search over a batch, on the host. Two rules say which candidates live on:
 *   fairseq  2 beam candidates by summed log probability; those ending among the first `beam` are final, of the others
 *            the first `beam` live on; a sentence ends with `beam` finals, at the length limit eos is forced
 *   tears    the best `beam` by score after the length penalty; ended ones stay and keep their score; a sentence ends
 *            when all have ended or at the length limit (Nguyen and Salazar 2019) */
#ifndef NM_BEAM_H
#define NM_BEAM_H

#include "decode/decode.h"
#include "decode/scorer.h"

/* A partial or ended translation: a last word behind the inputs fed so far. */
typedef struct nm_beam_entry {
    int32_t node; /* of the word before, -1 at the begin */
    int32_t id;
    double token_score, sum, score; /* of id; of all words; after the length penalty */
    bool ended;
} nm_beam_entry;

typedef struct nm_beam_candidate {
    nm_beam_entry entry;
    double key;            /* what the rule ranks by */
    int32_t parent, place; /* beam position and place in its row: equal keys go by these */
} nm_beam_candidate;

typedef struct nm_beam_sentence {
    nm_beam_entry *live, *finals; /* [beam] each; with `tears` ended ones stay in live */
    int32_t n_live, n_finals, limit, first_row;
    bool done;
} nm_beam_sentence;

typedef struct nm_beam_rule {
    const char *name;
    int32_t candidates; /* per hypothesis and sentence, times beam */
    bool forces_eos, keeps_ended, ranks_by_score;
    /* candidates are sorted, best first; n_words: length of the unended ones */
    void (*choose)(nm_beam_sentence *sentence, const nm_beam_candidate *candidates, int32_t n, int32_t beam,
                   int32_t n_words);
} nm_beam_rule;

extern const nm_beam_rule nm_beam_fairseq, nm_beam_tears;

/* Translates one batch. limits: most words before eos is forced or the search cut off, per sentence. */
nm_status nm_beam_run(nm_scorer *scorer, const nm_beam_rule *rule, const nm_decode_options *options,
                      const nm_decode_words *words, const nm_packing *sources, const int32_t *ids,
                      const int32_t *limits, nm_translation *out, nm_error *err);

#endif
