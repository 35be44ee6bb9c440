/* Forced decoding: the log probabilities of given targets, bitwise identical to the token scores that a
 * search computes for the same tokens. */
#pragma once

#include "model/decode.h"
#include "model/token_scorer.h"

/* One batch. ids: tokens of all sources; targets: [sources], ending with eos; attention: NULL for none. Sets
 * all members of out[i] but score; the caller frees them, also after an error. Errors as nm_decode. */
nm_status nm_forced_run(nm_token_scorer *scorer, const nm_special_tokens *special,
                        const nm_attention_choice *attention, const nm_packing *sources, const int32_t *ids,
                        const nm_id_list *targets, nm_hypothesis *out, nm_error *err);
