/* The words of a text, separated by whitespace, and the words to which its subwords belong. */
#ifndef NM_WORD_SPANS_H
#define NM_WORD_SPANS_H

#include <stddef.h>
#include <stdint.h>

typedef struct nm_word_span { /* in bytes */
    size_t begin, end;
} nm_word_span;

/* Returns the number of words of valid UTF-8. The caller frees *spans. */
size_t nm_word_spans(const char *text, size_t bytes, nm_word_span **spans);

/* Sets words[i], for each of n subwords separated by spaces, to the index of the word of the text in which the subword begins,
 * or to -1 if the text has no words. The text may differ from the subwords in case, whitespace, escaping and normalization:
 * their characters are aligned by minimum edit distance, and a subword without aligned characters belongs to the word of the
 * previous subword. In texts of more than 4,096 characters, all words are assumed to have equally many subwords. */
void nm_word_spans_of_subwords(const char *text, const nm_word_span *spans, size_t n_spans,
                               const char *subwords, size_t subwords_bytes, int32_t n, int32_t *words);

#endif
