/* Tagging of sentences with spans (named entities, words) or classes of tokens (parts of speech). */
#pragma once

#include "model/tagger_model.h"
#include "task/tasks.h"
#include "text/columns.h"
#include "text/tags.h"
#include "text/word_vectors.h"

enum { NM_TAGGING_SPLITS = 3, NM_FILE_SCHEME_AUTO = 0 };

/* Values of data.file_scheme: auto, or 1 + an nm_tag_scheme. */
#define NM_FILE_SCHEMES(C) C(NM_FILE_SCHEME_AUTO, "auto", "") NM_TAG_SCHEMES(C)
typedef int NM_FILE_SCHEMES_ENUM;

typedef struct nm_tagging_config { /* section [data] */
    const char *train, *valid, *test, *encoding, *valid_encoding, *test_encoding, *vectors, *bigram_vectors;
    NM_MODEL_TAG_SCHEMES_ENUM scheme;
    NM_FILE_SCHEMES_ENUM file_scheme;
    nm_example_order order;
    int64_t token_column, tag_column, batch, max_length, max_chars, min_count, min_char_count, valid_seed;
    bool lowercase, zero_digits, repair;
    double word_dropout, bigram_dropout, valid_fraction;
} nm_tagging_config;

typedef struct nm_tag_corpus { /* sentences: token t of sentence s is at index offsets[s] + t */
    nm_corpus forms;           /* a view of ids and offsets */
    int32_t *ids;              /* indices in nm_tagging_parts.forms, owned */
    int32_t *gold;             /* indices in nm_tagging_parts.gold_names, -1 without gold tags, owned */
    uint64_t *offsets;         /* [sentences + 1], owned */
    size_t ids_capacity, gold_capacity, offsets_capacity;
    int64_t unknown_tags; /* number of tokens whose gold tag does not occur in the training text */
} nm_tag_corpus;

typedef struct nm_tagging_parts {
    nm_tag_scheme scheme;      /* of the tags below: data.scheme, or none */
    nm_tag_scheme file_scheme; /* of the training file; files with tags of the model are written in it */
    /* vocabularies: item i has id i + 1, or i + NM_CHAR_FIRST for characters */
    nm_counter words, chars, bigrams;
    char **tags; /* [n_tags]: O if it occurs, then each label with every mark of the scheme */
    int32_t n_tags;
    nm_tagger_model_sizes sizes;
    nm_counter forms; /* word forms: distinct tokens of all splits, as in the files */
    /* distinct tags of all splits in the model's scheme; the tags of the model are first */
    nm_counter gold_names;
    /* For form f: id of its word form_words[f], and ids of its characters form_chars[char_starts[f]] ..
     * form_chars[char_starts[f + 1] - 1]. */
    int32_t *form_words, *form_chars;
    size_t *char_starts;
    size_t n_forms, forms_capacity, starts_capacity, n_chars, chars_capacity;
    nm_tag_corpus splits[NM_TAGGING_SPLITS];
    nm_word_vectors vectors, bigram_vectors; /* released after they have initialized the model */
    char *note; /* heap text: kind of the tags, how many words have a vector; NULL: nothing to say */
} nm_tagging_parts;

enum { NM_WORD_UNKNOWN = 0, NM_CHAR_OUTSIDE = 0, NM_CHAR_UNKNOWN = 1, NM_CHAR_FIRST = 2 };

static inline nm_tagging_parts *nm_tagging_parts_of(const nm_task *task)
{
    return task->parts;
}

/* Reads the files of the splits, and builds vocabularies and tags from the training text. */
nm_status nm_tagging_read(nm_task *task, nm_error *err);
/* Number of sentences of the training file. */
nm_status nm_tagging_measure(const void *config, int64_t *n_sentences, nm_error *err);
/* Reads vocabularies and tags from a model file; the splits stay empty. */
nm_status nm_tagging_parse(nm_task *task, const nm_safetensors *file, nm_error *err);
void nm_tagging_save(const nm_task *task, nm_safetensors_writer *writer);

/* Appends a sentence of n tokens; gold: n tags in any scheme; NULL: none. */
void nm_tagging_add(nm_tagging_parts *parts, nm_tag_corpus *corpus, const char *const *tokens,
                    const char *const *gold, int32_t n);
/* Sets the ids of words and characters of the forms that have been added since the last call. */
void nm_tagging_look_up(nm_tagging_parts *parts, const nm_tagging_config *config);
/* Removes the sentences but keeps the memory. */
void nm_tag_corpus_clear(nm_tag_corpus *corpus);
void nm_tag_corpus_release(nm_tag_corpus *corpus);
/* Removes all forms; no corpus may refer to them. */
void nm_tagging_clear_forms(nm_tagging_parts *parts);
/* Writes the bigram of token i of sentence s: tokens i and i + 1 concatenated, or the last token and
 * "<eos>". */
void nm_tagging_bigram(const nm_tagging_parts *parts, const nm_tagging_config *config,
                       const nm_tag_corpus *corpus, int64_t s, int64_t i, nm_buffer *out);

typedef struct nm_tag_piece { /* tokens first .. first + n - 1 of a sentence */
    int64_t sentence;
    int32_t first, n;
} nm_tag_piece;

typedef struct nm_tag_dropout {
    double words, bigrams; /* probabilities */
    uint64_t seed;
    uint32_t step; /* number of the micro-batch */
} nm_tag_dropout;

/* The batch of n pieces, allocated in the arena. dropout NULL: none. */
nm_batch nm_tagging_pack(const nm_task *task, const nm_tag_corpus *corpus, const nm_tag_piece *pieces,
                         int32_t n, const nm_tag_dropout *dropout, nm_arena *arena);
nm_status nm_tagging_epoch(nm_task *task, nm_split split, uint32_t epoch, bool shuffle, nm_batches *batches,
                           nm_error *err);
nm_batch nm_tagging_batch(nm_task *task, nm_split split, const nm_batches *batches, int64_t i, uint32_t step,
                          bool training, nm_arena *arena);
nm_batch nm_tagging_largest(nm_task *task, nm_arena *arena);

/* Predicts the tags of the first n_sentences sentences: *tags, heap, [tokens], indices in parts->tags.
 * Sentences longer than model.max_positions are cut into pieces that are tagged independently; their number
 * is added to *n_cut (may be NULL). NM_DIVERGED if emissions are not finite; NM_MEMORY. */
nm_status nm_tagging_predict(const nm_task *task, nm_model *model, const nm_tag_corpus *corpus,
                             int64_t n_sentences, int32_t **tags, int64_t *n_cut, nm_error *err);
/* Fills the score of the first n sentences with these predicted tags, [tokens], indices in parts->tags. */
void nm_tagging_count(const nm_tagging_parts *parts, const nm_tag_corpus *corpus, int64_t n,
                      const int32_t *tags, nm_task_score *score);
nm_status nm_tagging_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                           nm_task_score *score, nm_error *err);
