/* Segmentation of text into subwords, identical in training and at inference: tokenization, lowercasing and
 * BPE; byte-level BPE; or SentencePiece. */
#pragma once

#include "text/bpe.h"
#include "text/clean.h"
#include "text/documents.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

/* Format of input: raw text; words as `norma prepare` writes them before BPE (lines of text, if
 * the tokenizer keeps the text); or subwords
 * as in the dictionary. */
#define NM_WORD_FORMATS(C) C(NM_FORMAT_RAW, "raw") C(NM_FORMAT_TOKENIZED, "tokenized")
#define NM_TEXT_FORMATS(C) NM_WORD_FORMATS(C) C(NM_FORMAT_SUBWORD, "subword")
NM_CHOICES(nm_text_format, NM_TEXT_FORMATS);
typedef nm_text_format NM_WORD_FORMATS_ENUM;

typedef struct nm_text_coder {
    nm_cleaner cleaner; /* for raw text */
    nm_tokenizer tokenizer;
    bool lowercase;
    /* of plain text, with their separator; LINE and NULL unless opened with settings */
    nm_document_unit documents;
    char *document_separator;
    nm_bpe *bpe;                       /* NULL: subwords are words */
    nm_bpe_applier *applier;           /* NULL without BPE */
    nm_buffer tokens, words, subwords; /* tokens before lowercasing, words before BPE, and the result */
} nm_text_coder;

typedef struct nm_text_coder_config {
    const char *tokenizer;
    nm_tokenizer_options options;
    nm_clean_options clean;
    bool lowercase;
    const char *codes, *codes_name; /* BPE codes, NULL: none; their name in messages */
    const nm_vocab *subwords; /* subwords rarer than threshold are split again; not used if threshold is 0 */
    int64_t threshold;        /* minimum count */
} nm_text_coder_config;

/* After success and failure, close the coder with nm_text_coder_close. config->subwords must outlive it. */
nm_status nm_text_coder_open(nm_text_coder *coder, const nm_text_coder_config *config, nm_error *err);

/* The subword model of a data folder. */
typedef struct nm_subword_model {
    const char *codes;                     /* codes.bpe; NULL: none */
    const nm_vocab *subwords;              /* the dictionary, or the subwords that BPE may produce */
    const nm_vocab *target_subwords;       /* those of the target side, for nm_text_coder_open_target */
    const nm_spm *source_spm, *target_spm; /* for the tokenizer sentencepiece */
} nm_subword_model;

/* The languages in the settings (data.ini) of norma prepare, "SOURCE:TARGET"; heap. NULL if there are not
 * two, or if one has whitespace. NM_FORMAT. */
nm_status nm_text_coder_languages(const char *settings, char **languages, nm_error *err);

/* Byte-level BPE in the settings (data.ini) of norma prepare. */
typedef struct nm_byte_level_rules {
    bool used; /* false: another tokenizer */
    bool lowercase;
    nm_pretokenizer pretokenizer;
} nm_byte_level_rules;
/* NM_FORMAT, NM_USAGE: the settings. */
nm_status nm_text_coder_byte_level(const char *settings, nm_byte_level_rules *rules, nm_error *err);

/* A coder of the source language with the settings (data.ini) of norma prepare. target, unless NULL, becomes
 * the tokenizer of the target language. Close both after success and failure. */
nm_status nm_text_coder_open_prepared(nm_text_coder *coder, nm_tokenizer *target, const char *settings,
                                      const nm_subword_model *subwords, nm_error *err);
/* A coder of the target language, for given translations. Otherwise as nm_text_coder_open_prepared. */
nm_status nm_text_coder_open_target(nm_text_coder *coder, const char *settings,
                                    const nm_subword_model *subwords, nm_error *err);
/* Sets coder->words and coder->subwords, separated by spaces, valid until the next call. The text must be
 * valid UTF-8 without zero bytes. */
void nm_text_coder_run(nm_text_coder *coder, nm_text_format format, const char *text, size_t bytes);
void nm_text_coder_close(nm_text_coder *coder);
