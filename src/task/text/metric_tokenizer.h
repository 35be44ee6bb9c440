/* The tokenizers of BLEU, with sacreBLEU's names and results:
 *
 *     13a       ASCII punctuation is split off, as by mteval-v13a (tokenize_13a.h)
 *     intl      Unicode punctuation and symbols are split off, as by mteval-v14 --international-tokenization
 *     zh        every Chinese character is a token; the rest is tokenized as by 13a
 *     char      every character is a token
 *     none      tokens are separated by spaces already
 *     ja-mecab  words of MeCab with the IPA dictionary, loaded at run time
 *     ko-mecab  words of MeCab-ko with mecab-ko-dic, loaded at run time
 *     spm       pieces of a SentencePiece model, such as that of flores200 */
#pragma once

#include "text/segment.h"

#define NM_METRIC_TOKENIZERS "13a|intl|zh|char|none|ja-mecab|ko-mecab|spm"

typedef struct nm_metric_tokenizer_config {
    const char *name;
    const char *spm_model; /* for spm: path of the model */
    /* for ja-mecab and ko-mecab: folder of the dictionary; "": that of Debian's mecab-ipadic-utf8, or
     * mecab-ko-dic in /usr/local */
    const char *mecab_dictionary;
    const char *mecab_library; /* for ja-mecab and ko-mecab: the shared library; "": libmecab.so.2 */
} nm_metric_tokenizer_config;

typedef struct nm_metric_tokenizer_type {
    const char *name;
    /* Creates the state; NULL: there is none. */
    nm_status (*open)(const nm_metric_tokenizer_config *config, void **state, nm_error *err);
    /* Appends the tokens of text, separated by whitespace. scratch is overwritten. */
    void (*tokenize)(void *state, const char *text, nm_buffer *scratch, nm_buffer *out);
    void (*close)(void *state); /* may be NULL */
} nm_metric_tokenizer_type;

extern const nm_metric_tokenizer_type nm_metric_tokenizer_japanese, nm_metric_tokenizer_korean;

/* An open tokenizer. It contains a workspace, so each thread opens its own. */
typedef struct nm_metric_tokenizer {
    const nm_metric_tokenizer_type *type;
    void *state;
} nm_metric_tokenizer;

/* NM_USAGE for an unknown name or if no model is given; the errors of nm_file_read and nm_spm_parse;
 * NM_UNSUPPORTED without MeCab or MeCab-ko, the message names the packages; NM_MISMATCH for another
 * dictionary, or MeCab in place of MeCab-ko. */
nm_status nm_metric_tokenizer_open(nm_metric_tokenizer *tokenizer, const nm_metric_tokenizer_config *config,
                                   nm_error *err);
void nm_metric_tokenizer_close(nm_metric_tokenizer *tokenizer);
/* Appends the tokens of text, whose trailing whitespace is ignored, separated by whitespace. scratch is
 * overwritten. */
void nm_metric_tokenize(const nm_metric_tokenizer *tokenizer, const char *text, nm_buffer *scratch,
                        nm_buffer *out);

/* The tokenizer for a language code such as "ja" or "zh_CN": zh for Chinese, char for other languages written
 * without spaces, otherwise 13a. */
const char *nm_metric_tokenizer_of_language(const char *language);
