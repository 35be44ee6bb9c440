/* Counting n-grams of one segment exactly and fast, for BLEU and chrF.
 *
 * A word becomes an integer id, and an n-gram a node of a trie: the pair (node of its first n-1 words, last
 * word) is the key of one hash table, so no n-gram is ever stored as text and no two are confused. Both
 * tables are cleared in constant time and keep their memory, which is that of the largest segment seen. */
#ifndef NM_NGRAM_H
#define NM_NGRAM_H

#include "norma/status.h"

/* Open addressing; a slot is taken if it carries the current generation, which is how clearing costs nothing.
 */
typedef struct nm_slot {
    uint32_t generation, entry;
} nm_slot;
typedef struct nm_slot_table {
    nm_slot *slots;
    size_t n_slots; /* a power of two, or 0 */
    uint32_t generation;
} nm_slot_table;

/* Words of one segment. Ids count from 0. A zeroed struct is ready. */
typedef struct nm_segment_word {
    uint64_t hash;
    size_t offset, bytes;
} nm_segment_word;
typedef struct nm_segment_words {
    nm_slot_table table;
    nm_segment_word *words;
    char *text;
    size_t n_words, word_capacity, text_bytes, text_capacity;
} nm_segment_words;

void nm_segment_words_clear(nm_segment_words *words);
int32_t nm_segment_words_id(nm_segment_words *words, const char *word, size_t bytes);
void nm_segment_words_release(nm_segment_words *words);

/* N-grams of the references of one segment, and how often the hypothesis used them. A zeroed struct is ready.
 */
typedef struct nm_ngram {
    uint64_t key;       /* node of the shorter n-gram, last word */
    uint32_t reference; /* the one that count belongs to */
    uint32_t count;     /* in that reference */
    uint32_t allowed;   /* largest count in any reference: a hypothesis earns no more */
    uint32_t used;      /* in the hypothesis */
} nm_ngram;
typedef struct nm_ngrams {
    nm_slot_table table;
    nm_ngram *items;
    size_t n_items, capacity;
    uint32_t n_references;
} nm_ngrams;

void nm_ngrams_clear(nm_ngrams *ngrams);
/* Adds all 1..order-grams of one reference; several references allow the largest count of each. */
void nm_ngrams_add_reference(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order);
/* Adds the clipped matches of one hypothesis to matches[order]. Clear before the next hypothesis. */
void nm_ngrams_match(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order, int64_t *matches);
void nm_ngrams_release(nm_ngrams *ngrams);

/* How many n-grams of an order (from 1) a sequence has. */
int64_t nm_ngram_total(size_t n_words, int order);

#endif
