/* The words of a text, separated by whitespace, and the words to which its subwords belong. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nm_word_span { /* in bytes */
    size_t begin, end;
} nm_word_span;

/* Returns the number of words of valid UTF-8. The caller frees *spans. */
size_t nm_word_spans(const char *text, size_t bytes, nm_word_span **spans);

typedef struct nm_subword_line { /* subwords or tokens separated by spaces */
    const char *text;
    size_t bytes;
    int32_t n;
    bool byte_level; /* in the characters of byte_level.h */
} nm_subword_line;

/* Sets words[i], for each subword, to the index of the word of the text in which the subword begins,
 * or to -1 if the text has no words. The text may differ from the subwords in case, whitespace, escaping and
 * normalization: their characters are aligned by minimum edit distance, and a subword without aligned
 * characters belongs to the word of the previous subword. In texts of more than 4,096 characters, all words
 * are assumed to have equally many subwords. */
void nm_word_spans_of_subwords(const char *text, const nm_word_span *spans, size_t n_spans,
                               const nm_subword_line *subwords, int32_t *words);
