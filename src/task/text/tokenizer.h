/* Tokenizers by name, which convert raw text to tokens separated by single spaces, and back. */
#pragma once

#include "norma/choice.h"
#include "norma/status.h"
#include "base/buffer.h"
#include "text/counter.h"
#include "text/sentencepiece.h"

/* Rules that split text into words before byte-level BPE: those of the tokenizers of GPT-2, of Llama 3 (and
 * OLMo 2), and of Qwen 2 and 3, which also normalizes text to NFC. */
/* clang-format off */
#define NM_PRETOKENIZERS(C) \
    C(NM_PRETOKENIZER_GPT2, "gpt2") C(NM_PRETOKENIZER_LLAMA3, "llama3") C(NM_PRETOKENIZER_QWEN2, "qwen2") \
    C(NM_PRETOKENIZER_SMOLLM, "smollm")
/* clang-format on */
NM_CHOICES(nm_pretokenizer, NM_PRETOKENIZERS);

typedef struct nm_tokenizer_options {
    const char *language; /* "de", "en", ...: abbreviations and apostrophes */
    bool aggressive;      /* "well-known" becomes "well @-@ known" */
    bool escape;          /* & | < > ' " [ ] become &amp; &#124; ... */
    bool protect;         /* addresses of pages, mail addresses and tags of markup are one token */
    /* abbreviations, "Dr Prof | No"; those after | before digits only. Empty or NULL: those of the language
     * */
    const char *prefixes;
    const nm_spm *spm;            /* for the tokenizer sentencepiece; must outlive it */
    nm_pretokenizer pretokenizer; /* for the tokenizer byte_level */
    /* comma-separated (user_symbols.h), unless the tokenizer keeps the text; NULL: none */
    const char *user_symbols;
} nm_tokenizer_options;

/* English, without splitting of hyphens, with escaping: the defaults of the Moses scripts. */
nm_tokenizer_options nm_tokenizer_options_default(void);

/* tokenize and detokenize take one line per call, valid UTF-8 without its newline, and append the result. */
typedef struct nm_tokenizer_type {
    const char *name, *title;
    /* It reads the text as it is, after lowercasing, and detokenize restores it from subwords. Otherwise
     * lowercasing follows tokenization, and detokenize reads tokens. */
    bool keeps_text;
    nm_status (*create)(const nm_tokenizer_options *options, void **state, nm_error *err);
    void (*tokenize)(void *state, const char *line, size_t bytes, nm_buffer *out);
    void (*detokenize)(void *state, const char *line, size_t bytes, nm_buffer *out);
    void (*free)(void *state);
} nm_tokenizer_type;

extern const nm_tokenizer_type nm_tokenizer_none, nm_tokenizer_moses, nm_tokenizer_basic_english,
    nm_tokenizer_sentencepiece, nm_tokenizer_byte_level;
#define NM_TOKENIZER_NAMES "none|moses|basic_english|sentencepiece|byte_level"
/* All tokenizers; the last entry is NULL. */
extern const nm_tokenizer_type *const nm_tokenizer_types[];

/* The tokenizer of this name; NULL: unknown. */
const nm_tokenizer_type *nm_tokenizer_find(const char *name);
/* Whether the language option applies to this tokenizer. Callers open the others with the default language,
 * because the suffixes of corpus files, from which languages are derived, may be any text. */
bool nm_tokenizer_has_language(const char *name);

/* An open tokenizer. It contains a workspace, so each thread opens its own. */
typedef struct nm_tokenizer {
    const nm_tokenizer_type *type;
    void *state;
    nm_counter user_symbols;
} nm_tokenizer;

/* NM_USAGE for an unknown name, a language that is not a code of two or three lower-case letters, a missing
 * spm, or a user symbol that is not possible or that detokenization would change. The caller closes the
 * tokenizer, also after an error. */
nm_status nm_tokenizer_open(nm_tokenizer *tokenizer, const char *name, const nm_tokenizer_options *options,
                            nm_error *err);
void nm_tokenizer_close(nm_tokenizer *tokenizer);
/* The text between two user symbols is tokenized separately. */
void nm_tokenize(const nm_tokenizer *tokenizer, const char *line, size_t bytes, nm_buffer *out);
/* Appends a line of tokens with each user symbol as a token. */
void nm_tokenizer_separate_symbols(const nm_tokenizer *tokenizer, const char *line, size_t bytes,
                                   nm_buffer *out);
void nm_detokenize(const nm_tokenizer *tokenizer, const char *line, size_t bytes, nm_buffer *out);
