/* The way of a text to its units: tokenizer, lower case, BPE; the same in training and in use, as the model says. */
#ifndef NM_TEXT_CODER_H
#define NM_TEXT_CODER_H

#include "text/bpe.h"
#include "text/tokenizer.h"

typedef struct nm_text_coder {
    nm_tokenizer tokenizer;
    bool lowercase;
    nm_bpe *bpe; /* NULL: units are words */
    nm_bpe_applier *applier;
    nm_buffer words, lower, units;
} nm_text_coder;

typedef struct nm_text_coder_config {
    const char *tokenizer, *language;
    bool lowercase;
    const char *codes, *codes_name; /* text of BPE codes, or NULL; its name in messages */
} nm_text_coder_config;

nm_status nm_text_coder_open(nm_text_coder *coder, const nm_text_coder_config *config, nm_error *err);
/* Units parted by spaces, in coder->units until the next call. The text is valid UTF-8 without a zero byte. */
void nm_text_coder_run(nm_text_coder *coder, const char *text, size_t bytes);
void nm_text_coder_close(nm_text_coder *coder);

#endif
