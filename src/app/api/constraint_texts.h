/* The constraints of translations: their texts as phrases of token ids. */
#pragma once

#include "base/stop.h"
#include "model/constraints.h"
#include "task/text_coder.h"
#include "task/translation.h"

typedef struct nm_constraint_texts {
    /* Set by the caller; not owned. */
    const nm_translation_parts *parts;
    nm_text_coder *coder; /* of the target side */
    nm_text_format format;
    const nm_stop *stop; /* NULL: never */
    /* Results of nm_constraint_texts_encode: */
    nm_constraints *lists; /* [texts] */
    nm_ids ids;
    nm_phrase *phrases; /* [n]; their ids are set after all phrases have been encoded */
    size_t n, capacity;
    bool *joined; /* [vocabulary], BPE subwords that do not end a word; NULL without BPE */
    /* Workspace: */
    size_t first;         /* index of the first phrase of the current text */
    size_t n_constraints; /* of the current text */
    nm_spm_coder *inside; /* created when needed */
    nm_buffer pieces;
} nm_constraint_texts;

/* Encodes the tab-separated phrases of n texts. NM_UNSUPPORTED for byte-level BPE; NM_MISMATCH for a phrase
 * with unknown tokens and NM_USAGE for too many phrases, with the number of the text; NM_INTERRUPTED. The
 * caller releases the results in every case. */
nm_status nm_constraint_texts_encode(nm_constraint_texts *self, const char *const *texts, size_t n,
                                     nm_error *err);
void nm_constraint_texts_release(nm_constraint_texts *self);
