/* Learning of BPE merges, with the output of subword-nmt's learn_bpe.py.
 *
 * Every pair of adjacent symbols has a count over all words and a list of the words that contain it, so that
 * a merge visits only the words it changes. The most frequent pair is found with a heap whose entries are
 * corrected when they reach the top.
 *
 * Identical output requires two peculiarities of learn_bpe.py. Counts of pairs in runs of one symbol, and
 * next to a symbol that two different merges produce, differ from a recount. Pairs with a count below a
 * threshold are pruned, and restored when the best remaining pair falls below it; changes to a pair while it
 * is pruned are not always added to its earlier count. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "text/byte_level.h"
#include "text/utf8.h"

/* Change of the number of occurrences of a pair in a word. A word may have several entries. */
typedef struct occurrence {
    uint32_t word;
    int32_t times;
} occurrence;

typedef struct pair {
    uint32_t left, right;
    bool active;    /* not pruned */
    int64_t count;  /* valid while active */
    int64_t pruned; /* count when it was last pruned */
    int64_t queued; /* count of its newest heap entry, 0: no entry */
    occurrence *occurrences;
    uint32_t n_occurrences, capacity;
} pair;

typedef struct word {
    size_t start; /* in letters */
    uint32_t n;
    int64_t count;
} word;

typedef struct heap_entry {
    int64_t count;
    uint32_t pair;
} heap_entry;

typedef struct learner {
    nm_counter symbols;
    uint32_t *letters; /* symbols of all words */
    size_t n_letters, letters_capacity;
    word *words;
    size_t n_words, words_capacity;
    pair *pairs;
    size_t n_pairs, pairs_capacity;
    nm_hash_map numbers;    /* (left, right) -> index of pairs */
    uint32_t *active_pairs; /* pairs that are not pruned */
    size_t n_active, active_capacity;
    uint32_t *raised; /* pairs whose count the current merge increased */
    size_t n_raised, raised_capacity;
    heap_entry *heap;
    size_t n_heap, heap_capacity;
    uint32_t *old; /* symbols of a word before the merge */
    size_t old_capacity;
} learner;

nm_bpe_learn_options nm_bpe_learn_options_default(void)
{
    return (nm_bpe_learn_options){.n_merges = 10000, .min_frequency = 2, .max_word_bytes = 4096};
}

/* Pairs and their counts. */

static uint32_t find_pair(learner *self, uint32_t left, uint32_t right)
{
    uint32_t hash = nm_hash_pair(left, right);
    size_t probe = 0;
    for (uint32_t i; (i = nm_hash_map_next(&self->numbers, hash, &probe)) != NM_HASH_NONE;)
        if (self->pairs[i].left == left && self->pairs[i].right == right)
            return i;
    nm_hash_map_add(&self->numbers, hash, (uint32_t)self->n_pairs);
    NM_GROW(self->pairs, self->n_pairs, self->pairs_capacity);
    self->pairs[self->n_pairs] = (pair){.left = left, .right = right};
    return (uint32_t)self->n_pairs++;
}

static void add_occurrence(pair *at, uint32_t in_word, int32_t times)
{
    if (at->n_occurrences && at->occurrences[at->n_occurrences - 1].word == in_word) {
        at->occurrences[at->n_occurrences - 1].times += times;
        return;
    }
    if (at->n_occurrences == at->capacity) {
        NM_ASSERT(at->capacity <= UINT32_MAX / 2);
        at->capacity = at->capacity ? 2 * at->capacity : 2;
        at->occurrences = nm_reallocate(at->occurrences, at->capacity * sizeof *at->occurrences);
    }
    at->occurrences[at->n_occurrences++] = (occurrence){in_word, times};
}

static void change_pair(learner *self, const uint32_t *symbols, uint32_t in_word, int32_t sign)
{
    uint32_t number = find_pair(self, symbols[0], symbols[1]);
    pair *at = &self->pairs[number];
    if (!at->active) {
        at->active = true;
        at->count = 0;
        NM_APPEND(self->active_pairs, self->n_active, self->active_capacity, number);
    }
    at->count += sign * self->words[in_word].count;
    add_occurrence(at, in_word, sign);
    if (sign > 0) {
        NM_APPEND(self->raised, self->n_raised, self->raised_capacity, number);
    }
}

/* The heap: highest count first, then the greatest pair by code points (UTF-8 preserves their order). */

static int compare_symbols(const learner *self, uint32_t a, uint32_t b)
{
    const nm_count *left = &self->symbols.items[a], *right = &self->symbols.items[b];
    int order = memcmp(left->text, right->text, left->bytes < right->bytes ? left->bytes : right->bytes);
    return order ? order : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static bool is_before(const learner *self, heap_entry a, heap_entry b)
{
    if (a.count != b.count)
        return a.count > b.count;
    const pair *first = &self->pairs[a.pair], *second = &self->pairs[b.pair];
    if (first->left != second->left)
        return compare_symbols(self, first->left, second->left) > 0;
    return first->right != second->right && compare_symbols(self, first->right, second->right) > 0;
}

static void sift_down(learner *self, size_t at)
{
    heap_entry moving = self->heap[at];
    for (size_t child; (child = 2 * at + 1) < self->n_heap; at = child) {
        if (child + 1 < self->n_heap && is_before(self, self->heap[child + 1], self->heap[child]))
            child++;
        if (!is_before(self, self->heap[child], moving))
            break;
        self->heap[at] = self->heap[child];
    }
    self->heap[at] = moving;
}

static void append_entry(learner *self, uint32_t number)
{
    pair *at = &self->pairs[number];
    NM_APPEND(self->heap, self->n_heap, self->heap_capacity, (heap_entry){at->count, number});
    at->queued = at->count;
}

static void push_entry(learner *self, uint32_t number)
{
    append_entry(self, number);
    size_t at = self->n_heap - 1;
    heap_entry moving = self->heap[at];
    for (size_t parent; at > 0 && is_before(self, moving, self->heap[parent = (at - 1) / 2]); at = parent)
        self->heap[at] = self->heap[parent];
    self->heap[at] = moving;
}

static void rebuild_heap(learner *self)
{
    self->n_heap = 0;
    for (size_t i = 0; i < self->n_active; i++) {
        pair *at = &self->pairs[self->active_pairs[i]];
        at->queued = 0;
        if (at->count > 0)
            append_entry(self, self->active_pairs[i]);
    }
    for (size_t i = self->n_heap / 2; i-- > 0;)
        sift_down(self, i);
}

/* The best active pair, which is then at the top of the heap; NM_HASH_NONE if no count is positive. */
static uint32_t find_best(learner *self)
{
    while (self->n_heap) {
        heap_entry top = self->heap[0];
        pair *at = &self->pairs[top.pair];
        bool newest = at->active && at->queued == top.count;
        if (newest && at->count == top.count)
            return top.pair;
        if (newest && at->count > 0) {
            self->heap[0].count = at->queued = at->count;
        } else {
            if (newest)
                at->queued = 0;
            self->heap[0] = self->heap[--self->n_heap];
        }
        if (self->n_heap)
            sift_down(self, 0);
    }
    return NM_HASH_NONE;
}

/* Pruning of rare pairs. */

static void prune_pairs(learner *self, double threshold)
{
    size_t kept = 0;
    for (size_t i = 0; i < self->n_active; i++) {
        pair *at = &self->pairs[self->active_pairs[i]];
        if ((double)at->count >= threshold) {
            self->active_pairs[kept++] = self->active_pairs[i];
            continue;
        }
        at->pruned = at->count < 0 ? at->pruned + at->count : at->count;
        at->active = false;
        at->queued = 0;
    }
    self->n_active = kept;
}

static void restore_pairs(learner *self)
{
    self->n_active = 0;
    for (size_t i = 0; i < self->n_pairs; i++) {
        self->pairs[i].active = true;
        self->pairs[i].count = self->pairs[i].pruned;
        NM_APPEND(self->active_pairs, self->n_active, self->active_capacity, (uint32_t)i);
    }
}

/* Merging. */

static int compare_occurrences(const void *left, const void *right)
{
    const occurrence *a = left, *b = right;
    return a->word < b->word ? -1 : a->word > b->word;
}

/* Adds up the entries of each word and removes words that no longer contain the pair. Returns the number of
 * words. */
static uint32_t gather_occurrences(occurrence *occurrences, uint32_t n)
{
    bool sorted = true;
    for (uint32_t i = 1; i < n && sorted; i++)
        sorted = occurrences[i - 1].word <= occurrences[i].word;
    if (!sorted)
        qsort(occurrences, n, sizeof *occurrences, compare_occurrences);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n;) {
        occurrence sum = occurrences[i++];
        for (; i < n && occurrences[i].word == sum.word; i++)
            sum.times += occurrences[i].times;
        if (sum.times > 0)
            occurrences[kept++] = sum;
    }
    return kept;
}

/* Merges the pair in the word from left to right. Copies the previous symbols to self->old and returns their
 * number. */
static uint32_t replace_in_word(learner *self, word *in, uint32_t left, uint32_t right, uint32_t joined)
{
    uint32_t *symbols = self->letters + in->start, n = in->n, kept = 0;
    NM_RESERVE(self->old, n, self->old_capacity);
    memcpy(self->old, symbols, n * sizeof *symbols);
    for (uint32_t i = 0; i < n; i++) {
        bool found = self->old[i] == left && i + 1 < n && self->old[i + 1] == right;
        symbols[kept++] = found ? joined : self->old[i];
        i += found;
    }
    in->n = kept;
    return n;
}

static void subtract_old_pairs(learner *self, uint32_t in_word, uint32_t n, uint32_t left, uint32_t right)
{
    const uint32_t *old = self->old;
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (old[i] != left || old[i + 1] != right)
            continue;
        if (i > 0)
            change_pair(self, old + i - 1, in_word, -1);
        /* In A B A B, the second occurrence of A B decreases the count of B A. */
        bool again = i + 3 < n && old[i + 2] == left && old[i + 3] == right;
        if (i + 2 < n && !again)
            change_pair(self, old + i + 1, in_word, -1);
        i++;
    }
}

static void add_new_pairs(learner *self, uint32_t in_word, uint32_t joined)
{
    const uint32_t *symbols = self->letters + self->words[in_word].start;
    uint32_t n = self->words[in_word].n;
    for (uint32_t i = 0; i < n; i++) {
        if (symbols[i] != joined)
            continue;
        if (i > 0)
            change_pair(self, symbols + i - 1, in_word, 1);
        if (i + 1 < n && symbols[i + 1] != joined)
            change_pair(self, symbols + i, in_word, 1);
    }
}

static uint32_t join_symbols(learner *self, uint32_t left, uint32_t right)
{
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_buffer_append(&text, self->symbols.items[left].text, self->symbols.items[left].bytes);
    nm_buffer_append(&text, self->symbols.items[right].text, self->symbols.items[right].bytes);
    return (uint32_t)nm_counter_add(&self->symbols, text.data, text.bytes, 0);
}

static void merge_pair(learner *self, uint32_t number)
{
    pair *best = &self->pairs[number];
    uint32_t left = best->left, right = best->right, joined = join_symbols(self, left, right);
    occurrence *occurrences = best->occurrences;
    uint32_t n = gather_occurrences(occurrences, best->n_occurrences);
    best->occurrences = NULL;
    best->n_occurrences = best->capacity = 0;
    self->n_raised = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_old = replace_in_word(self, &self->words[occurrences[i].word], left, right, joined);
        subtract_old_pairs(self, occurrences[i].word, n_old, left, right);
        add_new_pairs(self, occurrences[i].word, joined);
    }
    free(occurrences);
    self->pairs[number].count = 0;
    for (size_t i = 0; i < self->n_raised; i++) {
        const pair *at = &self->pairs[self->raised[i]];
        if (at->count > at->queued)
            push_entry(self, self->raised[i]);
    }
}

/* Initial symbols of the words. */

static uint32_t initial_symbol(learner *self, const char *text, size_t bytes, bool last)
{
    char symbol[16];
    memcpy(symbol, text, bytes);
    if (last)
        memcpy(symbol + bytes, NM_BPE_WORD_END, sizeof NM_BPE_WORD_END);
    return (uint32_t)nm_counter_add(&self->symbols, symbol, bytes + (last ? sizeof NM_BPE_WORD_END - 1 : 0),
                                    0);
}

static void add_word(learner *self, const nm_count *item, bool byte_level)
{
    word added = {.start = self->n_letters, .count = item->count};
    for (size_t at = 0; at < item->bytes; added.n++) {
        size_t bytes = nm_utf8_length(item->text[at]);
        NM_APPEND(self->letters, self->n_letters, self->letters_capacity,
                  initial_symbol(self, item->text + at, bytes, at + bytes == item->bytes && !byte_level));
        at += bytes;
    }
    NM_APPEND(self->words, self->n_words, self->words_capacity, added);
    for (size_t i = added.start; i + 1 < self->n_letters; i++)
        change_pair(self, self->letters + i, (uint32_t)self->n_words - 1, 1);
    self->n_raised = 0;
}

static nm_status add_words(learner *self, const nm_counter *words, const nm_bpe_learn_options *options,
                           nm_error *err)
{
    if (options->byte_level)
        nm_byte_level_add_symbols(&self->symbols);
    for (size_t i = 0; i < words->n; i++) {
        const nm_count *item = &words->items[i];
        if (!item->bytes || item->bytes > options->max_word_bytes || item->count <= 0)
            continue;
        if (nm_utf8_find_invalid(item->text, item->bytes) < item->bytes)
            return nm_fail(err, NM_FORMAT, "word %zu is not UTF-8", i + 1);
        add_word(self, item, options->byte_level);
    }
    for (size_t i = 0; i < self->n_pairs; i++)
        self->pairs[i].pruned = self->pairs[i].count;
    return NM_OK;
}

static void release(learner *self)
{
    for (size_t i = 0; i < self->n_pairs; i++)
        free(self->pairs[i].occurrences);
    nm_counter_release(&self->symbols);
    nm_hash_map_release(&self->numbers);
    NM_FREE(self->letters, self->words, self->pairs, self->active_pairs, self->raised, self->heap, self->old);
}

static void learn_merges(learner *self, int64_t n_merges, int64_t min_frequency, nm_bpe *bpe)
{
    rebuild_heap(self);
    uint32_t best = find_best(self);
    double threshold = best == NM_HASH_NONE ? 0 : (double)self->pairs[best].count / 10.0;
    for (int64_t i = 0; i < n_merges; i++) {
        best = find_best(self);
        if (best == NM_HASH_NONE || (i && (double)self->pairs[best].count < threshold)) {
            prune_pairs(self, threshold);
            restore_pairs(self);
            rebuild_heap(self);
            best = find_best(self);
            if (best == NM_HASH_NONE)
                break;
            threshold = (double)self->pairs[best].count * (double)i / ((double)i + 10000.0);
            prune_pairs(self, threshold);
        }
        const pair *chosen = &self->pairs[best];
        if (chosen->count < min_frequency)
            break;
        nm_bpe_add_merge(bpe, &self->symbols.items[chosen->left], &self->symbols.items[chosen->right],
                         chosen->count);
        merge_pair(self, best);
        if (i % 100 == 0)
            prune_pairs(self, threshold);
    }
}

nm_status nm_bpe_learn(const nm_counter *words, const nm_bpe_learn_options *options, nm_bpe **bpe,
                       nm_error *err)
{
    *bpe = NULL;
    if (options->n_merges < 0 || options->min_frequency < 1)
        return nm_fail(err, NM_USAGE,
                       "BPE: the number of merges must be at least 0 and the minimum frequency at least 1");
    learner self = {0};
    nm_status status = add_words(&self, words, options, err);
    if (status == NM_OK) {
        *bpe = nm_bpe_create(options->byte_level ? NM_BPE_BYTE_LEVEL : NM_BPE_SUBWORD_NMT_0_2);
        int64_t characters = options->total_symbols ? (int64_t)self.symbols.n : 0;
        learn_merges(&self, options->n_merges - characters, options->min_frequency, *bpe);
        nm_bpe_finish(*bpe);
    }
    release(&self);
    return status;
}
