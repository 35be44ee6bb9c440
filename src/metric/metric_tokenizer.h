/* The tokenizers of BLEU, with sacreBLEU's names and results:
 *
 *     13a       punctuation of ASCII is split off, as mteval-v13a (metric/tokenize_13a.h)
 *     intl      punctuation and symbols of Unicode are split off, as mteval-v14 --international-tokenization
 *     zh        every Chinese character is a token; the rest is tokenized as by 13a
 *     char      every character is a token
 *     none      tokens are separated by spaces already
 *     ja-mecab  words of MeCab with the IPA dictionary, loaded at run time
 *     spm       pieces of a SentencePiece model, such as that of flores200 */
#ifndef NM_METRIC_TOKENIZER_H
#define NM_METRIC_TOKENIZER_H

#include "metric/segment.h"

#define NM_METRIC_TOKENIZERS "13a|intl|zh|char|none|ja-mecab|spm"

typedef struct nm_metric_tokenizer_config {
    const char *name;
    const char *spm_model;  /* path; of spm */
    const char *dictionary; /* folder; of ja-mecab; "": that of Debian's mecab-ipadic-utf8 */
} nm_metric_tokenizer_config;

typedef struct nm_metric_tokenizer_type {
    const char *name;
    nm_status (*open)(const nm_metric_tokenizer_config *config, void **state,
                      nm_error *err); /* NULL: no state */
    /* Appends the tokens of text, separated by white space. scratch is overwritten. */
    void (*tokenize)(void *state, const char *text, nm_buffer *scratch, nm_buffer *out);
    void (*close)(void *state);
} nm_metric_tokenizer_type;

extern const nm_metric_tokenizer_type nm_metric_tokenizer_mecab;

/* Has a workspace: one per thread. */
typedef struct nm_metric_tokenizer {
    const nm_metric_tokenizer_type *type;
    void *state;
} nm_metric_tokenizer;

/* NM_USAGE for an unknown name or a missing model; NM_UNSUPPORTED with the packages to install if MeCab is missing. */
nm_status nm_metric_tokenizer_open(nm_metric_tokenizer *tokenizer, const nm_metric_tokenizer_config *config,
                                   nm_error *err);
void nm_metric_tokenizer_close(nm_metric_tokenizer *tokenizer);
/* Appends the tokens of text, without the white space at its end, separated by white space. scratch is overwritten. */
void nm_metric_tokenize(const nm_metric_tokenizer *tokenizer, const char *text, nm_buffer *scratch,
                        nm_buffer *out);

/* A tokenizer for a language by its code ("ja", "zh_CN"): zh; char for other languages without spaces; else 13a. */
const char *nm_metric_tokenizer_of_language(const char *language);

#endif
