/* Word vectors as text: GloVe's form (a word and its numbers a line) or word2vec's (the same behind a first line "WORDS
 * WIDTH"). Only the words asked for are kept. */
#ifndef NM_WORD_VECTORS_H
#define NM_WORD_VECTORS_H

#include "text/counter.h"

typedef struct nm_word_vectors {
    nm_counter words; /* number of a word found: its row */
    float *values;    /* [words.n, width] */
    int32_t width;
    size_t capacity;
} nm_word_vectors;

/* Reads the vectors of the words that `wanted` has; the first of equal words counts. NM_FORMAT names file and line:
 * another width than the lines before, no UTF-8, in a vector
 * that is kept something that is no finite number. Release also after a failure. */
nm_status nm_word_vectors_read(nm_word_vectors *vectors, const char *path, const nm_counter *wanted,
                               nm_error *err);
void nm_word_vectors_release(nm_word_vectors *vectors);
/* The vector of a word, or NULL. */
const float *nm_word_vectors_find(const nm_word_vectors *vectors, const char *word);

/* Divides every vector by its length; zero vectors stay. */
void nm_word_vectors_unit(nm_word_vectors *vectors);

#endif
