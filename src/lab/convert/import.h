/* Creation of a Norma model from a model of another toolkit: options, vocabularies, tensors, model file. In
 * this order:
 *     nm_import_begin, nm_import_set, nm_import_vocab, nm_import_texts, nm_import_declare, nm_import_load,
 *     nm_import_finish
 * Memory for the model is allocated after the shapes of all tensors have been compared with those of the
 * options, so that damaged sizes are errors. A format must compare the size of a vocabulary with the
 * embeddings before it reads the vocabulary. */
#pragma once

#include "convert/tensor_map.h"
#include "task/model_loader.h"
#include "text/tokenizer.h"

/* The vocabulary of another toolkit. Special tokens are indices; -1: there is none. */
typedef struct nm_foreign_vocab {
    char **symbols; /* [n], heap; NULL: no token has this index */
    int32_t n, bos, pad, eos, unk;
    int32_t first; /* first input of the decoder */
} nm_foreign_vocab;

/* Reads a json_t object that maps symbols to indices. size: number of rows of the embedding matrix. path: for
 * messages. NM_FORMAT for an invalid or repeated index, NM_MISMATCH for an index >= size. The caller releases
 * the vocabulary, also after an error. */
nm_status nm_foreign_vocab_read(nm_foreign_vocab *vocab, const void *json_object, int64_t size,
                                const char *path, nm_error *err);
/* The index of a symbol; -1: not found. */
int32_t nm_foreign_vocab_find(const nm_foreign_vocab *vocab, const char *symbol);
void nm_foreign_vocab_release(nm_foreign_vocab *vocab);

/* Byte-level BPE of the other toolkit. */
typedef struct nm_import_codes {
    char *text; /* codes, heap; NULL: none */
    nm_pretokenizer pretokenizer;
    bool lowercase;
} nm_import_codes;

typedef struct nm_import {
    nm_loaded_model loaded;
    nm_map_ids map_ids;
    nm_import_codes codes; /* set before nm_import_texts */
    int32_t *ids[2]; /* ids[target][id]: index of token `id` of Norma in the other vocabulary; -1: none */
    nm_error *err;
} nm_import;

/* Creates an import for the task translation or lm. The caller calls nm_import_release, also after an
 * error. */
nm_status nm_import_begin(nm_import *import, const nm_task_type *task, nm_error *err);
/* Sets an option to the formatted value. */
nm_status nm_import_set(nm_import *import, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A position table in a file. Its values divided by `scale` are compared with the tables of Norma; the
 * largest allowed difference is `tolerance`. */
typedef struct nm_position_tensor {
    const nm_tensor_source *source;
    const char *name;
    double scale, tolerance;
} nm_position_tensor;

/* Sets model.positions of a translation model to the kind of the table. NM_UNSUPPORTED if it is none of
 * Norma's. */
nm_status nm_import_positions(nm_import *import, const nm_position_tensor *positions);
/* Sets model.positions of a language model: sinusoid, none for a table of zeros, otherwise learned. */
nm_status nm_import_lm_positions(nm_import *import, const nm_position_tensor *positions);
/* Converts a vocabulary: the special tokens get the first ids, the others follow in their order. If the first
 * input of the decoder is </s>, the order of special tokens is fairseq's, otherwise tears, with the first
 * input as <s>. A language model has one vocabulary, that of the target. path: for messages. */
nm_status nm_import_vocab(nm_import *import, const nm_foreign_vocab *vocab, bool target, const char *path);
/* Reads the dictionary FOLDER/NAME in the format and order of fairseq, which Norma also uses. */
nm_status nm_import_dictionary(nm_import *import, const char *folder, const char *name, bool target);
/* Whether there are tokens that must not be generated, so that the model needs model.output_bias. */
bool nm_import_excludes(const nm_import *import);
/* Reads the files of text_files.h from the folder if they exist, for the text processing of the model;
 * without data.ini, the input of the model is raw text if there are codes or SentencePiece models, otherwise
 * subwords. NM_MISMATCH if only one side of a translation model has a SentencePiece model. */
nm_status nm_import_texts(nm_import *import, const char *folder);
/* Creates the data.ini of a model whose folder does not have one. */
void nm_import_settings(nm_import *import);
/* Declares the model: its parameters have shapes, but no memory. */
nm_status nm_import_declare(nm_import *import);
/* Compares the shapes of the tensors with the parameters, allocates the model and reads the tensors. Errors
 * of nm_tensor_map_read; NM_MISMATCH also for a position table that is larger than the model. */
nm_status nm_import_load(nm_import *import, const nm_tensor_map *map, const nm_tensor_source *source);
/* Sets the output bias of the excluded tokens, and writes the model file. */
nm_status nm_import_finish(nm_import *import, const char *path);
void nm_import_release(nm_import *import);
