/* Forced decoding: the log probabilities of given targets, computed as in the search. For a translation that the search has
 * found they are bitwise identical to its token scores. */
#ifndef NM_FORCED_H
#define NM_FORCED_H

#include "decode/decode.h"
#include "decode/scorer.h"

/* One batch; targets: of each source, ending with eos. Fills out[i].ids, n, token_scores and attention, not the score. */
nm_status nm_forced_run(nm_scorer *scorer, const nm_special_tokens *special,
                        const nm_attention_choice *attention, const nm_packing *sources, const int32_t *ids,
                        const nm_id_list *targets, nm_hypothesis *out, nm_error *err);

#endif
