/* Applying BPE merges, with the output of subword-nmt's apply_bpe.py.
 *
 * The initial symbols of a word are its characters. Each round merges all occurrences of the pair of lowest
 * rank from left to right; pairs that this creates are considered from the next round on. Symbols form a
 * linked list and pairs a heap, so that a word of n characters takes O(n log n) steps. Segmentations of short
 * words are cached. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "text/utf8.h"
#include "base/words.h"

enum {
    CACHE_MAX_WORD = NM_BPE_CACHE_MAX_WORD,
    CACHE_MAX_BYTES = 64 << 20 /* when full, the cache is cleared */
};

/* Header of a cache entry. The word and its segmentation follow, unaligned. */
typedef struct cached {
    uint16_t word_bytes, bytes;
} cached;

typedef struct cache {
    nm_buffer entries;
    nm_hash_map map; /* word -> offset of its entry */
} cache;

/* A symbol of the current word, a node of a linked list. */
typedef struct node {
    uint32_t symbol;         /* NM_HASH_NONE for an unknown character */
    uint32_t start, bytes;   /* substring of the word, without the end-of-word marker */
    uint32_t previous, next; /* NM_HASH_NONE at the ends */
} node;

typedef struct candidate {
    uint32_t rank, at; /* index of the merge and of its left node */
} candidate;

struct nm_bpe_applier {
    const nm_bpe *bpe;
    const nm_counter *vocabulary; /* NULL: no restriction */
    int64_t threshold;
    cache cache;
    uint32_t ascii[2][128]; /* symbols of ASCII characters: [0] within a word, [1] at its end */
    node *nodes;
    size_t nodes_capacity;
    candidate *heap, *found; /* pairs of this round; pairs that merges of this round created */
    size_t n_heap, heap_capacity, n_found, found_capacity;
    nm_buffer key;
};

/* Whether the symbol of the last character of a word has the mark of the end of a word. */
static bool marks_last(const nm_bpe *bpe)
{
    return bpe->format == NM_BPE_SUBWORD_NMT_0_2 || bpe->format == NM_BPE_FASTBPE;
}

static uint32_t find_symbol(nm_bpe_applier *self, const char *text, size_t bytes, bool marked)
{
    nm_buffer_clear(&self->key);
    nm_buffer_append(&self->key, text, bytes);
    if (marked)
        nm_buffer_append(&self->key, NM_BPE_WORD_END, sizeof NM_BPE_WORD_END - 1);
    size_t number = nm_counter_find(&self->bpe->symbols, self->key.data, self->key.bytes);
    return number == SIZE_MAX ? NM_HASH_NONE : (uint32_t)number;
}

nm_bpe_applier *nm_bpe_applier_create(const nm_bpe *bpe, const nm_counter *vocabulary, int64_t threshold)
{
    nm_bpe_applier *self = nm_allocate(sizeof *self);
    self->bpe = bpe;
    self->threshold = threshold;
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < 128; i++) {
            char character = (char)i;
            self->ascii[last][i] = find_symbol(self, &character, 1, last && marks_last(bpe));
        }
    for (size_t i = 0; vocabulary && i < vocabulary->n; i++)
        if (vocabulary->items[i].count >= threshold)
            self->vocabulary = vocabulary;
    return self;
}

void nm_bpe_applier_free(nm_bpe_applier *self)
{
    if (!self)
        return;
    nm_buffer_release(&self->cache.entries);
    nm_hash_map_release(&self->cache.map);
    nm_buffer_release(&self->key);
    NM_FREE(self->nodes, self->heap, self->found, self);
}

/* Heap of candidates: lowest rank first, then leftmost. */

static bool is_before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(nm_bpe_applier *self, candidate moving)
{
    NM_GROW(self->heap, self->n_heap, self->heap_capacity);
    size_t at = self->n_heap++;
    for (size_t parent; at > 0 && is_before(moving, self->heap[parent = (at - 1) / 2]); at = parent)
        self->heap[at] = self->heap[parent];
    self->heap[at] = moving;
}

static candidate pop(nm_bpe_applier *self)
{
    candidate top = self->heap[0], moving = self->heap[--self->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < self->n_heap; at = child) {
        if (child + 1 < self->n_heap && is_before(self->heap[child + 1], self->heap[child]))
            child++;
        if (!is_before(self->heap[child], moving))
            break;
        self->heap[at] = self->heap[child];
    }
    self->heap[at] = moving;
    return top;
}

/* Splits a word into characters. */

static uint32_t add_characters(nm_bpe_applier *self, const char *word, size_t bytes)
{
    uint32_t n = 0;
    bool marked = marks_last(self->bpe);
    for (size_t at = 0; at < bytes; n++) {
        size_t length = nm_utf8_length(word[at]);
        bool last = at + length == bytes;
        uint32_t symbol = length == 1 ? self->ascii[last][(int)word[at]]
                                      : find_symbol(self, word + at, length, last && marked);
        NM_GROW(self->nodes, n, self->nodes_capacity);
        self->nodes[n] = (node){symbol, (uint32_t)at, (uint32_t)length, 0, 0};
        at += length;
    }
    if (self->bpe->format == NM_BPE_SUBWORD_NMT_0_1) {
        NM_APPEND(self->nodes, n, self->nodes_capacity,
                  (node){find_symbol(self, "", 0, true), (uint32_t)bytes, 0, 0, 0});
    }
    for (uint32_t i = 0; i < n; i++) {
        self->nodes[i].previous = i ? i - 1 : NM_HASH_NONE;
        self->nodes[i].next = i + 1 < n ? i + 1 : NM_HASH_NONE;
    }
    return n;
}

static uint32_t rank_at(const nm_bpe_applier *self, uint32_t at)
{
    const node *left = &self->nodes[at];
    if (left->next == NM_HASH_NONE || left->symbol == NM_HASH_NONE)
        return NM_HASH_NONE;
    uint32_t right = self->nodes[left->next].symbol;
    return right == NM_HASH_NONE ? NM_HASH_NONE : nm_bpe_rank(self->bpe, left->symbol, right);
}

static void push_found_pair(nm_bpe_applier *self, uint32_t at)
{
    uint32_t rank = at == NM_HASH_NONE ? NM_HASH_NONE : rank_at(self, at);
    if (rank == NM_HASH_NONE)
        return;
    NM_APPEND(self->found, self->n_found, self->found_capacity, (candidate){rank, at});
}

/* Merges the node with the next one. False if another merge has changed the pair. */
static bool join_at(nm_bpe_applier *self, candidate at)
{
    node *left = &self->nodes[at.at];
    if (rank_at(self, at.at) != at.rank)
        return false;
    node *right = &self->nodes[left->next];
    left->symbol = self->bpe->merges[at.rank].joined;
    left->bytes += right->bytes;
    left->next = right->next;
    right->symbol = NM_HASH_NONE;
    right->next = NM_HASH_NONE;
    if (left->next != NM_HASH_NONE)
        self->nodes[left->next].previous = at.at;
    return true;
}

static void merge_nodes(nm_bpe_applier *self, uint32_t n)
{
    self->n_heap = self->n_found = 0;
    for (uint32_t i = 0; i < n; i++)
        push_found_pair(self, i);
    for (;;) {
        for (size_t i = 0; i < self->n_found; i++)
            push(self, self->found[i]);
        self->n_found = 0;
        if (!self->n_heap)
            return;
        uint32_t rank = self->heap[0].rank;
        while (self->n_heap && self->heap[0].rank == rank) {
            candidate best = pop(self);
            if (!join_at(self, best))
                continue;
            push_found_pair(self, self->nodes[best.at].previous);
            push_found_pair(self, best.at);
        }
    }
}

/* Writing of subwords, with the restriction to a vocabulary. */

static void write_subword(const nm_bpe_applier *self, const char *text, size_t bytes, bool last,
                          nm_buffer *out)
{
    nm_buffer_append(out, text, bytes);
    if (last)
        return;
    if (self->bpe->format != NM_BPE_BYTE_LEVEL)
        nm_buffer_append(out, NM_BPE_SEPARATOR, sizeof NM_BPE_SEPARATOR - 1);
    nm_buffer_append_byte(out, ' ');
}

static bool is_known(nm_bpe_applier *self, const char *text, size_t bytes, bool last)
{
    nm_buffer_clear(&self->key);
    nm_buffer_append(&self->key, text, bytes);
    if (!last)
        nm_buffer_append(&self->key, NM_BPE_SEPARATOR, sizeof NM_BPE_SEPARATOR - 1);
    size_t number = nm_counter_find(self->vocabulary, self->key.data, self->key.bytes);
    return number != SIZE_MAX && self->vocabulary->items[number].count >= self->threshold;
}

/* Undoes merges until every part is in the vocabulary or cannot be split. The text is a substring of the word
 * without the end-of-word marker, so the length of the left symbol determines both halves. */
static void write_restricted(nm_bpe_applier *self, const char *text, size_t bytes, bool last, nm_buffer *out)
{
    uint32_t symbol = is_known(self, text, bytes, last) ? NM_HASH_NONE : find_symbol(self, text, bytes, last);
    uint32_t undo = symbol == NM_HASH_NONE ? NM_HASH_NONE : self->bpe->undo[symbol];
    size_t left_bytes =
        undo == NM_HASH_NONE ? 0 : self->bpe->symbols.items[self->bpe->merges[undo].left].bytes;
    if (!left_bytes || left_bytes > bytes || !bytes) {
        write_subword(self, text, bytes, last, out);
        return;
    }
    write_restricted(self, text, left_bytes, false, out);
    write_restricted(self, text + left_bytes, bytes - left_bytes, last, out);
}

/* One round of BPE-dropout. False if there was no pair to merge. */
static bool merge_sampled(nm_bpe_applier *self, uint32_t *n, double dropout, nm_random_stream *random)
{
    node *nodes = self->nodes;
    uint32_t best = NM_HASH_NONE, kept = 0;
    for (uint32_t i = 0; i < *n; i++)
        nodes[i].next = i + 1 < *n ? i + 1 : NM_HASH_NONE;
    for (uint32_t i = 0; i < *n; i++) {
        uint32_t rank = rank_at(self, i);
        bool left_out = rank != NM_HASH_NONE && nm_random_next(random) < dropout;
        /* stores the rank of the pair; the link is not used */
        nodes[i].previous = left_out ? NM_HASH_NONE : rank;
        if (!left_out && rank < best)
            best = rank;
    }
    if (best == NM_HASH_NONE)
        return false;
    for (uint32_t i = 0; i < *n; i++, kept++) {
        bool merges = nodes[i].previous == best;
        nodes[kept] = nodes[i];
        if (merges) {
            nodes[kept].symbol = self->bpe->merges[best].joined;
            nodes[kept].bytes += nodes[++i].bytes;
        }
    }
    *n = kept;
    return true;
}

static void write_nodes(nm_bpe_applier *self, const char *word, size_t bytes, nm_buffer *out)
{
    for (uint32_t at = 0; at != NM_HASH_NONE; at = self->nodes[at].next) {
        const node *here = &self->nodes[at];
        if (here->next == NM_HASH_NONE && !here->bytes)
            break; /* a separate end-of-word marker; the previous node has been written as the last one */
        bool last = here->start + here->bytes == bytes;
        if (self->vocabulary)
            write_restricted(self, word + here->start, here->bytes, last, out);
        else
            write_subword(self, word + here->start, here->bytes, last, out);
    }
}

/* Whether the word is one character or one that is not split. */
static bool is_whole(const nm_bpe_applier *self, const char *word, size_t bytes)
{
    const nm_counter *whole = &self->bpe->whole;
    return nm_utf8_length(word[0]) == bytes || (whole->n && nm_counter_find(whole, word, bytes) != SIZE_MAX);
}

static void segment_word(nm_bpe_applier *self, const char *word, size_t bytes, nm_buffer *out)
{
    if (is_whole(self, word, bytes)) {
        nm_buffer_append(out, word, bytes);
        return;
    }
    merge_nodes(self, add_characters(self, word, bytes));
    write_nodes(self, word, bytes, out);
}

void nm_bpe_sample_word(nm_bpe_applier *self, const char *word, size_t bytes, double dropout,
                        nm_random_stream *random, nm_buffer *out)
{
    if (is_whole(self, word, bytes)) {
        nm_buffer_append(out, word, bytes);
        return;
    }
    uint32_t n = add_characters(self, word, bytes);
    while (merge_sampled(self, &n, dropout, random))
        continue;
    write_nodes(self, word, bytes, out);
}

/* Cache of segmentations. */

/* The cached segmentation of the word, or NULL. */
static const char *find_word(const cache *self, uint32_t hash, const char *word, size_t bytes, size_t *length)
{
    size_t probe = 0;
    for (uint32_t at; (at = nm_hash_map_next(&self->map, hash, &probe)) != NM_HASH_NONE;) {
        const char *entry = self->entries.data + at;
        cached head;
        memcpy(&head, entry, sizeof head);
        *length = head.bytes;
        if (head.word_bytes == bytes && !memcmp(entry + sizeof head, word, bytes))
            return entry + sizeof head + bytes;
    }
    return NULL;
}

/* Adds the segmentation of the word to the cache and returns it. */
static const char *cache_word(nm_bpe_applier *applier, uint32_t hash, const char *word, size_t bytes,
                              size_t *length)
{
    cache *self = &applier->cache;
    if (self->entries.bytes > CACHE_MAX_BYTES) {
        nm_buffer_clear(&self->entries);
        nm_hash_map_clear(&self->map);
    }
    size_t at = self->entries.bytes;
    cached head = {.word_bytes = (uint16_t)bytes};
    nm_buffer_append(&self->entries, (const char *)&head, sizeof head);
    nm_buffer_append(&self->entries, word, bytes);
    segment_word(applier, word, bytes, &self->entries);
    *length = self->entries.bytes - at - sizeof head - bytes;
    NM_ASSERT(*length <= UINT16_MAX);
    head.bytes = (uint16_t)*length;
    memcpy(self->entries.data + at, &head, sizeof head);
    nm_hash_map_add(&self->map, hash, (uint32_t)at);
    return self->entries.data + self->entries.bytes - *length;
}

static void apply_word(nm_bpe_applier *self, const char *word, size_t bytes, nm_buffer *out)
{
    if (bytes > CACHE_MAX_WORD) {
        segment_word(self, word, bytes, out);
        return;
    }
    size_t length;
    uint32_t hash = (uint32_t)XXH3_64bits(word, bytes);
    const char *segmentation = find_word(&self->cache, hash, word, bytes, &length);
    if (!segmentation)
        segmentation = cache_word(self, hash, word, bytes, &length);
    nm_buffer_append(out, segmentation, length);
}

static bool is_margin(char byte)
{
    return byte == ' ' || byte == '\r' || byte == '\n';
}

void nm_bpe_apply_line(nm_bpe_applier *self, const char *line, size_t bytes, nm_buffer *out)
{
    size_t first = 0, end = bytes;
    while (first < bytes && is_margin(line[first]))
        first++;
    while (end > first && is_margin(line[end - 1]))
        end--;
    nm_buffer_append(out, line, first);
    const char *word;
    size_t word_bytes, at = first;
    while (nm_word_next(line, end, &at, &word, &word_bytes)) {
        apply_word(self, word, word_bytes, out);
        if (at < end)
            nm_buffer_append_byte(out, ' ');
    }
    nm_buffer_append(out, line + end, bytes - end);
}

void nm_bpe_remove(const char *line, size_t bytes, nm_buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        const char *mark = memmem(line + at, bytes - at, NM_BPE_SEPARATOR, 2);
        size_t length = mark ? (size_t)(mark - line) - at : bytes - at;
        nm_buffer_append(out, line + at, length);
        at += length;
        if (!mark)
            break;
        bool ends_line = at + 2 == bytes;
        if (ends_line || line[at + 2] == ' ')
            at += ends_line ? 2 : 3;
        else
            nm_buffer_append_byte(out, line[at++]);
    }
}
