/* The tables behind n-gram counting: see ngram.h. */
#include "metric/ngram.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

static void slots_clear(nm_slot_table *table)
{
    if (++table->generation == 0) { /* after 2^32 segments old marks would look new */
        if (table->slots)
            memset(table->slots, 0, table->n_slots * sizeof *table->slots);
        table->generation = 1;
    }
}

/* Makes the table at least twice as large as n_entries; true if it was emptied and must be filled again. */
static bool slots_reserve(nm_slot_table *table, size_t n_entries)
{
    if (2 * n_entries <= table->n_slots)
        return false;
    size_t n_slots = table->n_slots ? 4 * table->n_slots : 1024;
    free(table->slots);
    *table = (nm_slot_table){nm_allocate(n_slots * sizeof(nm_slot)), n_slots, 1};
    return true;
}

static void slots_insert(nm_slot_table *table, uint64_t hash, uint32_t entry)
{
    size_t at = (size_t)hash & (table->n_slots - 1);
    while (table->slots[at].generation == table->generation)
        at = (at + 1) & (table->n_slots - 1);
    table->slots[at] = (nm_slot){table->generation, entry};
}

void nm_segment_words_clear(nm_segment_words *words)
{
    words->n_words = words->text_bytes = 0;
    slots_clear(&words->table);
}

static int32_t word_add(nm_segment_words *words, uint64_t hash, const char *word, size_t bytes)
{
    NM_ASSERT(words->n_words < INT32_MAX);
    if (slots_reserve(&words->table, words->n_words + 1))
        for (size_t i = 0; i < words->n_words; i++)
            slots_insert(&words->table, words->words[i].hash, (uint32_t)i);
    while (words->text_capacity - words->text_bytes < bytes) {
        words->text_capacity = words->text_capacity ? 2 * words->text_capacity : 4096;
        words->text = nm_reallocate(words->text, words->text_capacity);
    }
    memcpy(words->text + words->text_bytes, word, bytes);
    NM_GROW(words->words, words->n_words, words->word_capacity);
    words->words[words->n_words] = (nm_segment_word){hash, words->text_bytes, bytes};
    words->text_bytes += bytes;
    slots_insert(&words->table, hash, (uint32_t)words->n_words);
    return (int32_t)words->n_words++;
}

int32_t nm_segment_words_id(nm_segment_words *words, const char *word, size_t bytes)
{
    const nm_slot_table *table = &words->table;
    uint64_t hash = XXH3_64bits(word, bytes);
    if (table->n_slots) {
        size_t at = (size_t)hash & (table->n_slots - 1);
        for (; table->slots[at].generation == table->generation; at = (at + 1) & (table->n_slots - 1)) {
            const nm_segment_word *known = &words->words[table->slots[at].entry];
            if (known->hash == hash && known->bytes == bytes &&
                !memcmp(words->text + known->offset, word, bytes))
                return (int32_t)table->slots[at].entry;
        }
    }
    return word_add(words, hash, word, bytes);
}

void nm_segment_words_release(nm_segment_words *words)
{
    free(words->table.slots);
    free(words->words);
    free(words->text);
    *words = (nm_segment_words){0};
}

/* The finishing steps of SplitMix64 (Steele et al. 2014): every bit of the key moves every bit of the result.
 */
static uint64_t key_hash(uint64_t key)
{
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    return key ^ (key >> 31);
}

/* Node 0 is the empty n-gram; node i + 1 is items[i]. */
static uint64_t ngram_key(uint32_t node, int32_t word)
{
    return (uint64_t)node << 32 | (uint32_t)word;
}

/* The node of the n-gram, or 0 if the references do not have it. */
static uint32_t ngram_find(const nm_ngrams *ngrams, uint64_t key)
{
    const nm_slot_table *table = &ngrams->table;
    if (!table->n_slots)
        return 0;
    size_t at = (size_t)key_hash(key) & (table->n_slots - 1);
    for (; table->slots[at].generation == table->generation; at = (at + 1) & (table->n_slots - 1))
        if (ngrams->items[table->slots[at].entry].key == key)
            return table->slots[at].entry + 1;
    return 0;
}

static uint32_t ngram_add(nm_ngrams *ngrams, uint64_t key)
{
    NM_ASSERT(ngrams->n_items < UINT32_MAX - 1);
    if (slots_reserve(&ngrams->table, ngrams->n_items + 1))
        for (size_t i = 0; i < ngrams->n_items; i++)
            slots_insert(&ngrams->table, key_hash(ngrams->items[i].key), (uint32_t)i);
    NM_GROW(ngrams->items, ngrams->n_items, ngrams->capacity);
    ngrams->items[ngrams->n_items] = (nm_ngram){.key = key};
    slots_insert(&ngrams->table, key_hash(key), (uint32_t)ngrams->n_items);
    return (uint32_t)++ngrams->n_items;
}

void nm_ngrams_clear(nm_ngrams *ngrams)
{
    ngrams->n_items = 0;
    ngrams->n_references = 0;
    slots_clear(&ngrams->table);
}

void nm_ngrams_add_reference(nm_ngrams *ngrams, const int32_t *words, size_t n_words, int order)
{
    uint32_t reference = ++ngrams->n_references;
    for (size_t start = 0; start < n_words; start++) {
        uint32_t node = 0;
        for (size_t n = 0; n < (size_t)order && start + n < n_words; n++) {
            uint64_t key = ngram_key(node, words[start + n]);
            node = ngram_find(ngrams, key);
            if (!node)
                node = ngram_add(ngrams, key);
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
            node = ngram_find(ngrams, ngram_key(node, words[start + n]));
            if (!node)
                break; /* nor do the references have anything longer that begins so */
            nm_ngram *item = &ngrams->items[node - 1];
            matches[n] += ++item->used <= item->allowed;
        }
    }
}

void nm_ngrams_release(nm_ngrams *ngrams)
{
    free(ngrams->table.slots);
    free(ngrams->items);
    *ngrams = (nm_ngrams){0};
}

int64_t nm_ngram_total(size_t n_words, int order)
{
    int64_t total = (int64_t)n_words - order + 1;
    return total > 0 ? total : 0;
}
