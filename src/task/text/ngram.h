/* Exact n-gram counts of one segment, for BLEU and chrF.
 *
 * Tokens (words or characters) have integer ids. An n-gram is a node of a trie, found in a hash map by the
 * node of its first n - 1 tokens and its last token, so that n-grams are not stored as text. The maps are
 * cleared in constant time and keep their memory, which is proportional to the longest segment. */
#pragma once

#include "base/hash_map.h"
#include "base/buffer.h"

/* Distinct tokens of one segment, with ids from 0. {0} is empty. */
typedef struct nm_segment_word {
    size_t offset, bytes; /* in text */
} nm_segment_word;
typedef struct nm_segment_words {
    nm_hash_map map;
    nm_segment_word *words; /* [n_words] */
    nm_buffer text;
    size_t n_words, word_capacity;
} nm_segment_words;

void nm_segment_words_clear(nm_segment_words *words);
/* Id of the token, which is added if it is new. */
int32_t nm_segment_words_id(nm_segment_words *words, const char *word, size_t bytes);
void nm_segment_words_release(nm_segment_words *words);

/* N-grams of the references of one segment and their matches in the hypothesis. {0} is empty. */
typedef struct nm_ngram {
    uint32_t prefix; /* node of the first n - 1 tokens */
    int32_t word;
    uint32_t reference; /* the last reference that contains the n-gram, from 1 */
    uint32_t count;     /* occurrences in that reference */
    uint32_t allowed;   /* maximum count over the references, to which matches are clipped */
    uint32_t used;      /* occurrences in the hypothesis */
} nm_ngram;
typedef struct nm_ngrams {
    nm_hash_map map; /* (prefix, word) -> index in items */
    nm_ngram *items;
    size_t n_items, capacity;
    uint32_t n_references;
} nm_ngrams;

void nm_ngrams_clear(nm_ngrams *ngrams);
/* Adds all n-grams of orders 1 to `order` of one reference. */
void nm_ngrams_add_reference(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order);
/* Adds the clipped matches of one hypothesis, by order, to matches[order]. Call nm_ngrams_clear before the
 * next hypothesis. */
void nm_ngrams_match(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order, int64_t *matches);
void nm_ngrams_release(nm_ngrams *ngrams);

/* Number of n-grams of an order (from 1) in a sequence. */
int64_t nm_ngram_total(size_t n_words, int order);
