/* Lexical shortlists: the target tokens that the translation of a source may contain are the likely
 * translations of its tokens and the most frequent tokens. The output layer is computed for them only, and
 * their probabilities have the sum 1. A shortlist is immutable, so threads may share it. */
#pragma once

#include "base/ids.h"

typedef struct nm_shortlist {
    int32_t source_size, target_size;
    size_t *offsets;  /* [source_size + 1] */
    int32_t *targets; /* of source token s: targets[offsets[s]] .. targets[offsets[s + 1] - 1] */
    nm_ids always;    /* the most frequent target tokens, eos, unk */
    uint8_t *allowed; /* [target_size] 1 for tokens that may be selected; NULL: all */
} nm_shortlist;

void nm_shortlist_release(nm_shortlist *shortlist);

/* Appends the selected tokens of a source to *selected, ascending, each once: the translations of its n ids,
 * the frequent tokens, and the required ones that are allowed. mark: [target size], zero at the call and
 * afterwards. */
void nm_shortlist_select(const nm_shortlist *shortlist, const int32_t *ids, int32_t n, const nm_ids *required,
                         uint8_t *mark, nm_ids *selected);
