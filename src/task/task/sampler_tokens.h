/* The tokens of a language model for text generation (model/sampler.h). */
#pragma once

#include "model/sampler.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

/* Whether a token is never generated: <s>, <pad>, <unk> unless `unknown`, and the padding of the
 * dictionary. */
bool nm_lm_excludes(const nm_vocab *vocab, int32_t id, bool unknown);

typedef struct nm_sampler_texts {
    const nm_vocab *vocab; /* defines the special tokens */
    int32_t first_input;   /* from which the first token of a text is predicted */
    /* whether eos ends a document, in which tokens of byte-level BPE or of `spm` contain newlines; otherwise
     * it is a newline */
    bool documents;
    const nm_spm *spm; /* the SentencePiece model; NULL: byte-level BPE */
} nm_sampler_texts;

/* For nm_sampler_create, which takes ownership. unknown: sample.unknown. */
nm_sampler_tokens nm_lm_sampler_tokens(const nm_sampler_texts *texts, bool unknown);
