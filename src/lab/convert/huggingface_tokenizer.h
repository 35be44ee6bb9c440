/* The tokenizer of Hugging Face folders: tokenizer.json, or vocab.json and merges.txt. */
#pragma once

#include <jansson.h>

#include "convert/import.h"
#include "task/model_texts.h"
#include "text/vocab.h"

/* Reads the vocabulary and, for byte-level BPE, *codes. Of tokenizer.json, models WordLevel, as Norma writes
 * them, and byte-level BPE with the rules of nm_pretokenizer are supported; without this file, the folder has
 * vocab.json and, for byte-level BPE, merges.txt. Otherwise the tokens of vocab.json are the input, and
 * codes->text is NULL. size: number of rows of the embedding matrix. NM_UNSUPPORTED, NM_FORMAT, NM_MISMATCH,
 * NM_IO. The caller releases vocabulary and codes, also after an error. */
nm_status nm_huggingface_read_tokenizer(const char *folder, int64_t size, nm_foreign_vocab *vocab,
                                        nm_import_codes *codes, nm_error *err);

/* Reads tokenizer.model, a SentencePiece model (Llama 2, Mistral, Gemma), and the vocabulary of its pieces,
 * if the folder has the file; *found is false otherwise. Rows of the embedding matrix without a piece are
 * unused tokens. Errors as above. */
nm_status nm_huggingface_read_pieces(const char *folder, int64_t size, nm_foreign_vocab *vocab,
                                     nm_model_spm *spm, bool *found, nm_error *err);

/* The vocabulary that a folder gets: that of the model without its omitted symbols (prepare.omit_symbols). */
typedef struct nm_huggingface_vocab {
    const nm_vocab *vocab;
    int32_t *ids; /* [V], heap: id in the folder; -1: omitted */
    int32_t size; /* in tokens */
} nm_huggingface_vocab;

/* Release with free(vocab.ids). */
nm_huggingface_vocab nm_huggingface_vocab_of(const nm_vocab *vocab);
/* The rows of the tensors of a language model. */
nm_map_ids nm_huggingface_ids(const nm_huggingface_vocab *vocab);
/* The id of a token: null if the symbol is omitted, because some
 * classes have a default. */
json_t *nm_huggingface_id(const nm_huggingface_vocab *vocab, int32_t id);

typedef struct nm_huggingface_tokenizer {
    const nm_huggingface_vocab *vocab;
    const char *settings, *codes; /* data.ini and codes.bpe of the model; codes may be NULL */
    bool ends;                    /* </s> is appended to a text */
    int64_t longest;              /* text, in tokens */
} nm_huggingface_tokenizer;

/* NM_UNSUPPORTED if the dictionary lacks a subword of byte-level BPE. */
nm_status nm_huggingface_check_tokenizer(const nm_huggingface_tokenizer *tokenizer, nm_error *err);
/* Writes tokenizer.json and tokenizer_config.json: byte-level BPE, or WordLevel, which splits text at spaces
 * and looks up subwords. NM_IO, and the errors of nm_huggingface_check_tokenizer. */
nm_status nm_huggingface_write_tokenizer(const nm_huggingface_tokenizer *tokenizer, const char *folder,
                                         nm_error *err);
