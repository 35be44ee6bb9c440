/* Text to subwords: tokenization, lowercasing and BPE, or SentencePiece, the same in training and at inference. */
#ifndef NM_TEXT_CODER_H
#define NM_TEXT_CODER_H

#include "text/bpe.h"
#include "text/clean.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

/* Raw text; words as `norma prepare` writes them before BPE (with SentencePiece: lines of text); subwords as in the
 * dictionary. */
typedef enum nm_text_format { NM_FORMAT_RAW, NM_FORMAT_TOKENIZED, NM_FORMAT_SUBWORD } nm_text_format;
#define NM_TEXT_FORMATS "raw|tokenized|subword"

typedef struct nm_text_coder {
    nm_cleaner cleaner; /* of raw text */
    nm_tokenizer tokenizer;
    bool lowercase;
    nm_bpe *bpe; /* NULL: subwords are words */
    nm_bpe_applier *applier;
    nm_buffer tokens, words, subwords; /* before lowercasing; before BPE; the result */
} nm_text_coder;

typedef struct nm_text_coder_config {
    const char *tokenizer;
    nm_tokenizer_options options;
    nm_clean_options clean;
    bool lowercase;
    const char *codes, *codes_name; /* text of BPE codes, or NULL; its name in messages */
    const nm_vocab *subwords; /* subwords rarer than threshold are split again; unused if threshold is 0 */
    int64_t threshold;
} nm_text_coder_config;

nm_status nm_text_coder_open(nm_text_coder *coder, const nm_text_coder_config *config, nm_error *err);

/* The subword model of a data folder. */
typedef struct nm_subword_model {
    const char *codes;                     /* codes.bpe or NULL */
    const nm_vocab *subwords;              /* the dictionary, or the subwords that BPE may write */
    const nm_vocab *target_subwords;       /* the same of the target side; for nm_text_coder_open_target */
    const nm_spm *source_spm, *target_spm; /* with the tokenizer sentencepiece */
} nm_subword_model;

/* The same with the settings of norma prepare. settings: data.ini. target gets the tokenizer of the target language; may be
 * NULL. After an error, coder and target can be closed. */
nm_status nm_text_coder_open_prepared(nm_text_coder *coder, nm_tokenizer *target, const char *settings,
                                      const nm_subword_model *subwords, nm_error *err);
/* A coder of the target language, for given translations. */
nm_status nm_text_coder_open_target(nm_text_coder *coder, const char *settings,
                                    const nm_subword_model *subwords, nm_error *err);
/* Sets coder->words and coder->subwords, separated by spaces and valid until the next call. The text is valid UTF-8
 * without a zero byte. */
void nm_text_coder_run(nm_text_coder *coder, nm_text_format format, const char *text, size_t bytes);
void nm_text_coder_close(nm_text_coder *coder);

#endif
