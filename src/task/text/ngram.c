#include "text/ngram.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

void nm_segment_words_clear(nm_segment_words *words)
{
    words->n_words = 0;
    nm_buffer_clear(&words->text);
    nm_hash_map_clear(&words->map);
}

int32_t nm_segment_words_id(nm_segment_words *words, const char *word, size_t bytes)
{
    uint32_t hash = (uint32_t)(XXH3_64bits(word, bytes) >> 32);
    size_t probe = 0;
    for (uint32_t id; (id = nm_hash_map_next(&words->map, hash, &probe)) != NM_HASH_NONE;) {
        const nm_segment_word *item = &words->words[id];
        if (item->bytes == bytes && !memcmp(words->text.data + item->offset, word, bytes))
            return (int32_t)id;
    }
    nm_hash_map_add(&words->map, hash, (uint32_t)words->n_words);
    NM_GROW(words->words, words->n_words, words->word_capacity);
    words->words[words->n_words] = (nm_segment_word){words->text.bytes, bytes};
    nm_buffer_append(&words->text, word, bytes);
    return (int32_t)words->n_words++;
}

void nm_segment_words_release(nm_segment_words *words)
{
    nm_hash_map_release(&words->map);
    nm_buffer_release(&words->text);
    free(words->words);
    *words = (nm_segment_words){0};
}

/* Nodes of the trie are numbered: 0 is the empty n-gram, i + 1 is items[i]. Returns the node of the n-gram
 * `node` followed by `word`, or 0 if the references do not contain it. */
static inline uint32_t find_node(const nm_ngrams *ngrams, uint32_t node, int32_t word)
{
    size_t probe = 0;
    uint32_t hash = nm_hash_pair(node, (uint32_t)word);
    for (uint32_t i; (i = nm_hash_map_next(&ngrams->map, hash, &probe)) != NM_HASH_NONE;)
        if (ngrams->items[i].prefix == node && ngrams->items[i].word == word)
            return i + 1;
    return 0;
}

static uint32_t add_node(nm_ngrams *ngrams, uint32_t node, int32_t word)
{
    nm_hash_map_add(&ngrams->map, nm_hash_pair(node, (uint32_t)word), (uint32_t)ngrams->n_items);
    NM_GROW(ngrams->items, ngrams->n_items, ngrams->capacity);
    ngrams->items[ngrams->n_items] = (nm_ngram){.prefix = node, .word = word};
    return (uint32_t)++ngrams->n_items;
}

void nm_ngrams_clear(nm_ngrams *ngrams)
{
    ngrams->n_items = 0;
    ngrams->n_references = 0;
    nm_hash_map_clear(&ngrams->map);
}

void nm_ngrams_add_reference(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order)
{
    uint32_t reference = ++ngrams->n_references;
    for (size_t start = 0; start < n_words; start++) {
        uint32_t node = 0;
        for (size_t n = 0; n < (size_t)order && start + n < n_words; n++) {
            uint32_t longer = find_node(ngrams, node, words[start + n]);
            node = longer ? longer : add_node(ngrams, node, words[start + n]);
            nm_ngram *item = &ngrams->items[node - 1];
            item->count = item->reference == reference ? item->count + 1 : 1;
            item->reference = reference;
            if (item->count > item->allowed)
                item->allowed = item->count;
        }
    }
}

void nm_ngrams_match(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order, int64_t *matches)
{
    for (size_t start = 0; start < n_words; start++) {
        uint32_t node = 0;
        for (size_t n = 0; n < (size_t)order && start + n < n_words; n++) {
            node = find_node(ngrams, node, words[start + n]);
            if (!node)
                break; /* longer n-grams with this prefix do not occur in the references, either */
            nm_ngram *item = &ngrams->items[node - 1];
            matches[n] += ++item->used <= item->allowed;
        }
    }
}

void nm_ngrams_release(nm_ngrams *ngrams)
{
    nm_hash_map_release(&ngrams->map);
    free(ngrams->items);
    *ngrams = (nm_ngrams){0};
}

int64_t nm_ngram_total(size_t n_words, int order)
{
    int64_t total = (int64_t)n_words - order + 1;
    return total > 0 ? total : 0;
}
