#include "train/batches.h"

#include <string.h>

#include "base/random.h"

typedef struct example {
    int32_t source, target; /* lengths; both 0 without by_length */
    uint32_t key;           /* random; 0 without shuffling */
    int64_t index;
} example;

/* Radix sort: three digits of the random key, two digits of each length. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, PASSES = 7 };

static inline uint32_t digit_of(const example *e, const int pass)
{
    uint32_t number = pass < 3 ? e->key : pass < 5 ? (uint32_t)e->source : (uint32_t)e->target;
    return number >> (pass < 3 ? pass : (pass - 3) % 2) * DIGIT_BITS & (DIGITS - 1);
}

static inline void move_all(const example *from, example *to, int64_t n, int64_t *offsets, const int pass)
{
    for (int64_t i = 0; i < n; i++)
        to[offsets[digit_of(&from[i], pass)]++] = from[i];
}

/* move_all with a constant pass, so that the digit is extracted without branches. */
static void move_pass(const example *from, example *to, int64_t n, int64_t *offsets, int pass)
{
#define MOVE(p)                                                                                              \
    case p:                                                                                                  \
        move_all(from, to, n, offsets, p);                                                                   \
        break
    switch (pass) {
        MOVE(0);
        MOVE(1);
        MOVE(2);
        MOVE(3);
        MOVE(4);
        MOVE(5);
        MOVE(6);
    }
#undef MOVE
}

/* Converts counts of digits to offsets. False if all examples have the same digit. */
static bool digit_offsets(int64_t *counts, int64_t n)
{
    int64_t at = 0;
    for (int d = 0; d < DIGITS; d++) {
        int64_t here = counts[d];
        if (here == n)
            return false;
        counts[d] = at;
        at += here;
    }
    return true;
}

/* Stable sort by digits, the least significant one first. The examples must be sorted by index. */
static void sort_examples(example **examples, int64_t n)
{
    int64_t(*counts)[DIGITS] = nm_allocate(PASSES * sizeof *counts);
    example *from = *examples, *to = nm_allocate((size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int pass = 0; pass < PASSES; pass++)
            counts[pass][digit_of(&from[i], pass)]++;
    for (int pass = 0; pass < PASSES; pass++) {
        if (!digit_offsets(counts[pass], n))
            continue;
        move_pass(from, to, n, counts[pass], pass);
        example *sorted = to;
        to = from;
        from = sorted;
    }
    *examples = from;
    NM_FREE(to, counts);
}

static uint32_t random_key(const nm_batching *batching, uint32_t epoch, uint32_t site, int64_t index)
{
    return nm_random4(batching->seed, NM_RANDOM_SHUFFLE, site, epoch, (uint64_t)index).w[0];
}

static int64_t source_length(const nm_batching *batching, int64_t i)
{
    return nm_corpus_length(batching->source, i);
}

static int64_t target_length(const nm_batching *batching, int64_t i)
{
    return batching->target ? nm_corpus_length(batching->target, i) : 0;
}

static int64_t length_limit(const nm_batching *batching)
{
    return batching->max_tokens < batching->max_length ? batching->max_tokens : batching->max_length;
}

static bool usable(const nm_batching *batching, int64_t i)
{
    int64_t s = source_length(batching, i), t = target_length(batching, i), limit = length_limit(batching);
    return s > 0 && s <= limit && t <= limit && (!batching->target || t > 0);
}

static example *list_examples(const nm_batching *batching, uint32_t epoch, bool shuffle, int64_t *n)
{
    example *examples = nm_allocate((size_t)batching->source->n * sizeof *examples);
    *n = 0;
    for (int64_t i = 0; i < batching->source->n; i++) {
        if (!usable(batching, i))
            continue;
        example *e = &examples[(*n)++];
        *e = (example){.index = i, .key = shuffle ? random_key(batching, epoch, 0, i) : 0};
        if (batching->by_length) {
            e->source = (int32_t)source_length(batching, i);
            e->target = (int32_t)target_length(batching, i);
        }
    }
    sort_examples(&examples, *n);
    return examples;
}

/* Divides the examples into batches in their order; starts[n + 1] receives the first example of each. A batch
 * is full if one more example would exceed max_tokens on either side or max_examples. Returns the number of
 * batches. */
static int64_t cut_batches(const nm_batching *batching, const example *examples, int64_t n, int64_t *starts)
{
    int64_t batches = 0, source = 0, target = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t s = source_length(batching, examples[i].index),
                t = target_length(batching, examples[i].index);
        bool full = batching->max_examples && i - starts[batches ? batches - 1 : 0] >= batching->max_examples;
        if (i == 0 || full || source + s > batching->max_tokens || target + t > batching->max_tokens) {
            starts[batches++] = i;
            source = target = 0;
        }
        source += s;
        target += t;
    }
    starts[batches] = n;
    return batches;
}

nm_status nm_batches_create(nm_batches *batches, const nm_batching *batching, uint32_t epoch, bool shuffle,
                            nm_error *err)
{
    *batches = (nm_batches){.batching = *batching};
    if (batching->target && batching->source->n != batching->target->n)
        return nm_fail(err, NM_MISMATCH, "source has %lld sequences, target %lld",
                       (long long)batching->source->n, (long long)batching->target->n);
    int64_t n;
    NM_AUTO_FREE example *examples = list_examples(batching, epoch, shuffle, &n);
    batches->skipped = batching->source->n - n;
    if (!n)
        return nm_fail(err, NM_USAGE, "no sequence has 1 to %lld tokens (max_length, max_tokens)",
                       (long long)length_limit(batching));
    NM_AUTO_FREE int64_t *starts = nm_allocate(((size_t)n + 1) * sizeof *starts);
    batches->n = cut_batches(batching, examples, n, starts);
    NM_AUTO_FREE example *turn = nm_allocate((size_t)batches->n * sizeof *turn);
    for (int64_t i = 0; i < batches->n; i++)
        turn[i] = (example){.index = i, .key = shuffle ? random_key(batching, epoch, 1, i) : 0};
    sort_examples(&turn, batches->n);
    batches->order = nm_allocate((size_t)n * sizeof *batches->order);
    batches->starts = nm_allocate(((size_t)batches->n + 1) * sizeof *batches->starts);
    int64_t at = 0;
    for (int64_t i = 0; i < batches->n; i++) {
        batches->starts[i] = at;
        for (int64_t e = starts[turn[i].index]; e < starts[turn[i].index + 1]; e++)
            batches->order[at++] = examples[e].index;
    }
    batches->starts[batches->n] = at;
    return NM_OK;
}

void nm_batches_release(nm_batches *batches)
{
    NM_FREE(batches->order, batches->starts);
    *batches = (nm_batches){0};
}

static void pack_side(const nm_corpus *corpus, const int64_t *examples, int32_t n, nm_packing *packing,
                      int32_t **ids, int32_t **pos, nm_arena *arena)
{
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    *packing = (nm_packing){.n_seqs = n, .offsets = offsets};
    offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t length = (int32_t)nm_corpus_length(corpus, examples[i]);
        offsets[i + 1] = offsets[i] + length;
        if (length > packing->longest)
            packing->longest = length;
    }
    packing->n_tokens = offsets[n];
    *ids = nm_arena_alloc(arena, (size_t)packing->n_tokens * sizeof **ids);
    *pos = nm_arena_alloc(arena, (size_t)packing->n_tokens * sizeof **pos);
    for (int32_t i = 0; i < n; i++)
        for (int32_t t = offsets[i]; t < offsets[i + 1]; t++) {
            (*ids)[t] = corpus->ids[corpus->offsets[examples[i]] + (uint64_t)(t - offsets[i])];
            (*pos)[t] = t - offsets[i];
        }
}

void nm_batch_drop_words(int32_t *ids, int32_t n, const nm_batch_words *words, uint64_t seed, uint32_t stream)
{
    if (words->word_dropout <= 0)
        return;
    for (int32_t i = 0; i < n; i++) {
        uint32_t word = nm_random4(seed, NM_RANDOM_WORD_DROPOUT, stream, words->step, (uint64_t)i).w[0];
        if (nm_random_unit(word) < words->word_dropout)
            ids[i] = words->unknown;
    }
}

nm_packing nm_batch_fill(int32_t tokens, int32_t length, const int32_t **zeros, nm_arena *arena)
{
    int32_t n = (tokens + length - 1) / length;
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    int32_t *ids = nm_arena_alloc(arena, (size_t)tokens * sizeof *ids);
    memset(ids, 0, (size_t)tokens * sizeof *ids);
    for (int32_t i = 0; i < n; i++)
        offsets[i] = i * length;
    offsets[n] = tokens;
    *zeros = ids;
    return (nm_packing){.n_seqs = n, .n_tokens = tokens, .longest = length, .offsets = offsets};
}

nm_batch nm_batch_pack(const nm_batching *batching, const int64_t *examples, int32_t n,
                       const nm_batch_words *words, nm_arena *arena)
{
    nm_batch batch = {.n = n, .index = examples};
    int32_t *ids, *pos;
    pack_side(batching->source, examples, n, &batch.source, &ids, &pos, arena);
    nm_batch_drop_words(ids, batch.source.n_tokens, words, batching->seed, 0);
    batch.source_ids = ids;
    batch.source_pos = pos;
    batch.n_targets = batch.tokens = batch.source.n_tokens;
    if (!batching->target)
        return batch;
    pack_side(batching->target, examples, n, &batch.target, &ids, &pos, arena);
    int32_t *input = nm_arena_alloc(arena, (size_t)batch.target.n_tokens * sizeof *input);
    for (int32_t t = 0; t < batch.target.n_tokens; t++)
        input[t] = pos[t] ? ids[t - 1] : words->target_first;
    nm_batch_drop_words(input, batch.target.n_tokens, words, batching->seed, 1);
    batch.target_in = input;
    batch.target_out = ids;
    batch.target_pos = pos;
    batch.n_targets = batch.tokens = batch.target.n_tokens;
    return batch;
}

nm_batch nm_batches_get(const nm_batches *batches, const nm_batching *batching, int64_t i,
                        const nm_batch_words *words, nm_arena *arena)
{
    nm_arena_reset(arena);
    int64_t first = batches->starts[i];
    return nm_batch_pack(batching, batches->order + first, (int32_t)(batches->starts[i + 1] - first), words,
                         arena);
}

void nm_batch_ignore_masked(nm_batch *batch, const uint8_t *mask, nm_arena *arena)
{
    const int32_t *gold = batch->target_out;
    int32_t n = batch->target.n_tokens, ignored = 0;
    for (int32_t t = 0; mask && t < n; t++)
        ignored += !mask[gold[t]];
    if (!ignored)
        return;
    int32_t *targets = nm_arena_alloc(arena, (size_t)n * sizeof *targets);
    for (int32_t t = 0; t < n; t++)
        targets[t] = mask[gold[t]] ? gold[t] : NM_TARGET_IGNORED;
    batch->target_out = targets;
    batch->n_ignored = ignored;
    batch->n_targets -= ignored;
}
