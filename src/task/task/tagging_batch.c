/* Batches for tagging: packed sentences with the characters of each word and the bigrams. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "task/tagging.h"

enum { DROP_WORDS, DROP_BIGRAMS };

static bool dropped(const nm_tag_dropout *dropout, double rate, uint32_t site, int32_t i)
{
    if (!dropout || rate <= 0)
        return false;
    uint32_t word = nm_random4(dropout->seed, NM_RANDOM_WORD_DROPOUT, site, dropout->step, (uint64_t)i).w[0];
    return nm_random_unit(word) < rate;
}

/* Sets *packing and returns the forms of all tokens, [tokens], -1 for dropped words. */
static int32_t *list_forms(const nm_tag_corpus *corpus, const nm_tag_piece *pieces, int32_t n,
                           const nm_tag_dropout *dropout, nm_packing *packing, nm_arena *arena)
{
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    *packing = (nm_packing){.n_seqs = n, .offsets = offsets};
    offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i] + pieces[i].n;
        packing->longest = pieces[i].n > packing->longest ? pieces[i].n : packing->longest;
    }
    packing->n_tokens = offsets[n];
    int32_t *forms = nm_arena_alloc(arena, (size_t)offsets[n] * sizeof *forms);
    for (int32_t i = 0; i < n; i++)
        for (int32_t t = 0; t < pieces[i].n; t++) {
            int32_t at = offsets[i] + t;
            uint64_t from = corpus->offsets[pieces[i].sentence] + (uint64_t)(pieces[i].first + t);
            bool drop = dropped(dropout, dropout ? dropout->words : 0, DROP_WORDS, at);
            forms[at] = drop ? -1 : corpus->ids[from];
        }
    return forms;
}

/* Sets the characters of n words. Dropped words and words without characters have one unknown character. */
static void pack_chars(const nm_tagging_parts *parts, const int32_t *forms, int32_t n,
                       nm_tagger_model_inputs *in, nm_arena *arena)
{
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    in->chars = (nm_packing){.n_seqs = n, .offsets = offsets};
    offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        size_t f = (size_t)forms[i];
        int32_t length = forms[i] < 0 ? 1 : (int32_t)(parts->char_starts[f + 1] - parts->char_starts[f]);
        length = length ? length : 1;
        offsets[i + 1] = offsets[i] + length;
        in->chars.longest = length > in->chars.longest ? length : in->chars.longest;
    }
    in->chars.n_tokens = offsets[n];
    size_t bytes = (size_t)offsets[n] * sizeof(int32_t);
    int32_t *ids = nm_arena_alloc(arena, bytes), *before = nm_arena_alloc(arena, bytes),
            *after = nm_arena_alloc(arena, bytes);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t c = offsets[i]; c < offsets[i + 1]; c++) {
            size_t k = forms[i] < 0 ? SIZE_MAX : parts->char_starts[forms[i]] + (size_t)(c - offsets[i]);
            ids[c] = forms[i] >= 0 && k < parts->char_starts[forms[i] + 1] ? parts->form_chars[k]
                                                                           : NM_CHAR_UNKNOWN;
        }
        for (int32_t c = offsets[i]; c < offsets[i + 1]; c++) {
            before[c] = c > offsets[i] ? ids[c - 1] : NM_CHAR_OUTSIDE;
            after[c] = c + 1 < offsets[i + 1] ? ids[c + 1] : NM_CHAR_OUTSIDE;
        }
    }
    in->char_ids = ids;
    in->char_before = before;
    in->char_after = after;
}

static const int32_t *pack_bigrams(const nm_task *task, const nm_tag_corpus *corpus,
                                   const nm_tag_piece *pieces, const nm_packing *packing,
                                   const nm_tag_dropout *dropout, nm_arena *arena)
{
    const nm_tagging_parts *parts = task->parts;
    int32_t *bigrams = nm_arena_alloc(arena, (size_t)packing->n_tokens * sizeof *bigrams);
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    for (int32_t i = 0; i < packing->n_seqs; i++)
        for (int32_t t = 0; t < pieces[i].n; t++) {
            int32_t at = packing->offsets[i] + t;
            nm_tagging_bigram(parts, task->config, corpus, pieces[i].sentence, pieces[i].first + t, &text);
            size_t item = nm_counter_find(&parts->bigrams, text.data, text.bytes);
            bool drop = dropped(dropout, dropout ? dropout->bigrams : 0, DROP_BIGRAMS, at);
            bigrams[at] = item == SIZE_MAX || drop ? NM_WORD_UNKNOWN : (int32_t)item + 1;
        }
    return bigrams;
}

/* Gold tags, [tokens]. A tag that does not occur in the training text is O in the loss, and an error in the
 * score. */
static const int32_t *pack_gold(const nm_tagging_parts *parts, const nm_tag_corpus *corpus,
                                const nm_tag_piece *pieces, const nm_packing *packing, nm_arena *arena)
{
    int32_t *gold = nm_arena_alloc(arena, (size_t)packing->n_tokens * sizeof *gold);
    for (int32_t i = 0; i < packing->n_seqs; i++)
        for (int32_t t = 0; t < pieces[i].n; t++) {
            int32_t tag = corpus->gold[corpus->offsets[pieces[i].sentence] + (uint64_t)(pieces[i].first + t)];
            gold[packing->offsets[i] + t] = tag >= 0 && tag < parts->n_tags ? tag : 0;
        }
    return gold;
}

nm_batch nm_tagging_pack(const nm_task *task, const nm_tag_corpus *corpus, const nm_tag_piece *pieces,
                         int32_t n, const nm_tag_dropout *dropout, nm_arena *arena)
{
    const nm_tagging_parts *parts = task->parts;
    nm_batch batch = {.n = n, .n_targets = n};
    int32_t *forms = list_forms(corpus, pieces, n, dropout, &batch.source, arena);
    nm_tagger_model_inputs *in = nm_arena_alloc(arena, sizeof *in);
    *in = (nm_tagger_model_inputs){0};
    batch.tokens = batch.source.n_tokens;
    pack_chars(parts, forms, batch.tokens, in, arena);
    if (((const nm_tagger_model_config *)nm_options_find(task->options, "model"))->bigram_dim)
        in->bigrams = pack_bigrams(task, corpus, pieces, &batch.source, dropout, arena);
    batch.target = batch.source;
    batch.target_out = pack_gold(parts, corpus, pieces, &batch.source, arena);
    for (int32_t i = 0; i < batch.tokens; i++) /* in place: word ids replace the forms */
        forms[i] = forms[i] < 0 ? NM_WORD_UNKNOWN : parts->form_words[forms[i]];
    batch.source_ids = forms;
    batch.more = in;
    return batch;
}

nm_status nm_tagging_epoch(nm_task *task, nm_split split, uint32_t epoch, bool shuffle, nm_batches *batches,
                           nm_error *err)
{
    static const char *const names[] = {"data.train", "data.valid", "data.test"};
    const nm_tagging_config *config = task->config;
    const nm_tag_corpus *corpus = &nm_tagging_parts_of(task)->splits[split];
    if (!corpus->forms.n)
        return nm_fail(err, NM_USAGE, "%s is not set", names[split]);
    const nm_batching batching = {.source = &corpus->forms,
                                  .max_tokens = task->max_tokens,
                                  .max_length = config->max_length,
                                  .max_examples = config->batch,
                                  .by_length = split != NM_SPLIT_TRAIN || config->order == NM_ORDER_LENGTH,
                                  .seed = task->seed};
    return nm_batches_create(batches, &batching, epoch, shuffle, err);
}

nm_batch nm_tagging_batch(nm_task *task, nm_split split, const nm_batches *batches, int64_t i, uint32_t step,
                          bool training, nm_arena *arena)
{
    const nm_tagging_config *config = task->config;
    const nm_tag_corpus *corpus = &nm_tagging_parts_of(task)->splits[split];
    const nm_tag_dropout dropout = {config->word_dropout, config->bigram_dropout, task->seed, step};
    int64_t first = batches->starts[i];
    int32_t n = (int32_t)(batches->starts[i + 1] - first);
    nm_arena_reset(arena);
    nm_tag_piece *pieces = nm_arena_alloc(arena, (size_t)n * sizeof *pieces);
    for (int32_t k = 0; k < n; k++) {
        int64_t sentence = batches->order[first + k];
        pieces[k] = (nm_tag_piece){sentence, 0, (int32_t)nm_corpus_length(&corpus->forms, sentence)};
    }
    nm_batch batch = nm_tagging_pack(task, corpus, pieces, n, training ? &dropout : NULL, arena);
    batch.index = batches->order + first;
    return batch;
}

static int compare_descending(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

static int64_t sum_of_largest(int64_t *values, int64_t n, int64_t most)
{
    int64_t sum = 0;
    qsort(values, (size_t)n, sizeof *values, compare_descending);
    for (int64_t i = 0; i < n && i < most; i++)
        sum += values[i];
    return sum;
}

typedef struct bounds { /* upper bounds for any batch */
    int64_t tokens, chars, sentences;
} bounds;

static bounds largest_sizes(const nm_task *task)
{
    const nm_tagging_config *config = task->config;
    const nm_tagging_parts *parts = task->parts;
    bounds largest = {0};
    for (int split = 0; split < NM_TAGGING_SPLITS; split++) {
        const nm_tag_corpus *corpus = &parts->splits[split];
        int64_t n = corpus->forms.n, *tokens = nm_allocate((size_t)n * sizeof *tokens + 1),
                *chars = nm_allocate((size_t)n * sizeof *chars + 1);
        for (int64_t s = 0; s < n; s++) {
            int64_t length = nm_corpus_length(&corpus->forms, s);
            tokens[s] = length <= config->max_length ? length : 0;
            for (uint64_t at = corpus->offsets[s]; tokens[s] && at < corpus->offsets[s + 1]; at++) {
                size_t f = (size_t)corpus->ids[at];
                chars[s] += (int64_t)(parts->char_starts[f + 1] - parts->char_starts[f]);
            }
        }
        int64_t all = sum_of_largest(tokens, n, config->batch),
                all_chars = sum_of_largest(chars, n, config->batch);
        all = all < task->max_tokens ? all : task->max_tokens;
        largest.tokens = all > largest.tokens ? all : largest.tokens;
        largest.chars = all_chars > largest.chars ? all_chars : largest.chars;
        NM_FREE(tokens, chars);
    }
    largest.tokens = largest.tokens ? largest.tokens : 1;
    largest.chars = largest.chars > largest.tokens ? largest.chars : largest.tokens;
    largest.sentences = config->batch < largest.tokens ? config->batch : largest.tokens;
    return largest;
}

/* n sequences with `total` rows, whose lengths differ by at most 1. */
static nm_packing even_packing(int64_t n, int64_t total, nm_arena *arena)
{
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    nm_packing packing = {.n_seqs = (int32_t)n, .n_tokens = (int32_t)total, .offsets = offsets};
    for (int64_t i = 0; i <= n; i++)
        offsets[i] = (int32_t)(total * i / n);
    packing.longest = (int32_t)((total + n - 1) / n);
    return packing;
}

nm_batch nm_tagging_largest(nm_task *task, nm_arena *arena)
{
    bounds largest = largest_sizes(task);
    nm_arena_reset(arena);
    nm_tagger_model_inputs *in = nm_arena_alloc(arena, sizeof *in);
    int32_t *zeros = nm_arena_alloc(arena, (size_t)largest.chars * sizeof *zeros);
    memset(zeros, 0, (size_t)largest.chars * sizeof *zeros);
    *in = (nm_tagger_model_inputs){.chars = even_packing(largest.tokens, largest.chars, arena),
                                   .char_ids = zeros,
                                   .char_before = zeros,
                                   .char_after = zeros,
                                   .bigrams = zeros};
    nm_packing packing = even_packing(largest.sentences, largest.tokens, arena);
    return (nm_batch){.n = packing.n_seqs,
                      .n_targets = packing.n_seqs,
                      .tokens = packing.n_tokens,
                      .source = packing,
                      .target = packing,
                      .source_ids = zeros,
                      .target_out = zeros,
                      .more = in};
}
