/* A Norma model from the model of another program: options, vocabularies, tensors, model file. In this order:
 *     nm_import_begin, nm_import_set, nm_import_vocab, nm_import_texts, nm_import_declare, nm_import_load, nm_import_finish
 * Memory is allocated after the shapes of all tensors have been compared with those of the options: damaged sizes are errors. A
 * format compares the size of a vocabulary with the embeddings before it reads the vocabulary. */
#ifndef NM_IMPORT_H
#define NM_IMPORT_H

#include "convert/tensor_map.h"
#include "task/tasks.h"

/* The vocabulary of another program. Special tokens are indexes, -1: there is none. */
typedef struct nm_foreign_vocab {
    char **symbols; /* [n], heap; NULL: no token has this index */
    int32_t n, bos, pad, eos, unk;
    int32_t first; /* first input of the decoder */
} nm_foreign_vocab;

/* From an object of symbols and indexes. size: number of rows of the embedding. NM_FORMAT; NM_MISMATCH for an index that is
 * not below size. path is for messages. */
nm_status nm_foreign_vocab_read(nm_foreign_vocab *vocab, const void *json_object, int64_t size,
                                const char *path, nm_error *err);
/* The index of a symbol, or -1. */
int32_t nm_foreign_vocab_find(const nm_foreign_vocab *vocab, const char *symbol);
void nm_foreign_vocab_release(nm_foreign_vocab *vocab);

typedef struct nm_import {
    nm_task task;
    nm_options *options;
    nm_backend *backend;
    nm_model *model;
    nm_map_ids map_ids;
    int32_t *ids[2]; /* [target]: index of each token of Norma's vocabulary in the other one, -1: none */
    nm_error *err;
} nm_import;

/* task: translation or lm. The caller calls nm_import_release, also after an error. */
nm_status nm_import_begin(nm_import *import, const nm_task_type *task, nm_error *err);
/* Sets an option to the formatted value. */
nm_status nm_import_set(nm_import *import, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A table of positions in a file: the values of the tensor, divided by scale, are those of a table of Norma up to the
 * tolerance. */
typedef struct nm_position_tensor {
    const nm_tensor_source *source;
    const char *name;
    double scale, tolerance;
} nm_position_tensor;

/* Sets model.positions to the table of a translation model. NM_UNSUPPORTED: Norma has no such table. */
nm_status nm_import_positions(nm_import *import, const nm_position_tensor *positions);
/* Sets model.positions of a language model: sinusoid, none for a table of zeros, otherwise learned. */
nm_status nm_import_lm_positions(nm_import *import, const nm_position_tensor *positions);
/* Translates a vocabulary: the special tokens get Norma's first ids, the others follow in their order. The first input
 * becomes </s> (fairseq) if it is that token, otherwise <s> (tears). A language model has one vocabulary, of the target.
 * path is for messages. */
nm_status nm_import_vocab(nm_import *import, const nm_foreign_vocab *vocab, bool target, const char *path);
/* Reads the dictionary FOLDER/NAME in fairseq's format and order, which are Norma's. */
nm_status nm_import_dictionary(nm_import *import, const char *folder, const char *name, bool target);
/* Whether tokens exist that must not be output, so that the model needs model.output_bias. */
bool nm_import_excludes(const nm_import *import);
/* The texts of the model: data.ini, codes.bpe, source.spm and target.spm of the folder if they exist; otherwise the model reads
 * subwords. */
nm_status nm_import_texts(nm_import *import, const char *folder);
/* data.ini of a model that is not given the settings of its text. */
void nm_import_settings(nm_import *import);
/* Declares the model: its parameters have shapes, but no memory. */
nm_status nm_import_declare(nm_import *import);
/* Compares the shapes of the tensors with the parameters, allocates the model and reads them. NM_MISMATCH also for a table of
 * positions that is larger than the model. */
nm_status nm_import_load(nm_import *import, const nm_tensor_map *map, const nm_tensor_source *source);
/* Excludes tokens that the other program does not output, and writes the model file. */
nm_status nm_import_finish(nm_import *import, const char *path);
void nm_import_release(nm_import *import);

#endif
