/* Word vectors in text format: of GloVe (a word and its numbers per line) or word2vec (the same after a line
 * "WORDS WIDTH"). Only requested words are stored. */
#pragma once

#include "text/counter.h"

typedef struct nm_word_vectors {
    nm_counter words; /* index of a word = row of values */
    float *values;    /* [words.n, width] */
    int32_t width;
    size_t capacity;
} nm_word_vectors;

/* Reads the vectors of the words in `vocabulary`; of duplicate words, the first is used. NM_FORMAT with file
 * and line: a different width, invalid UTF-8, a zero byte, an empty line, or a number of a stored vector that
 * is not finite. NM_IO. The caller releases vectors, also after an error. */
nm_status nm_word_vectors_read(nm_word_vectors *vectors, const char *path, const nm_counter *vocabulary,
                               nm_error *err);
void nm_word_vectors_release(nm_word_vectors *vectors);
/* The vector of a word, or NULL. */
const float *nm_word_vectors_find(const nm_word_vectors *vectors, const char *word);

/* Divides every vector by its L2 norm, except zero vectors. */
void nm_word_vectors_unit(nm_word_vectors *vectors);
