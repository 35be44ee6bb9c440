/* Tagging by word: the probability of a tag t for a word is estimated from the counts c of the keys of the
 * word, from general to specific: its shape (capitals, digits), the shape with its last 1, 2 and 3
 * characters, the lowercased word, the word. With T tags:
 *
 *     P_0(t) = 1 / T
 *     P_k(t) = (c(key_k, t) + P_{k-1}(t)) / (c(key_k) + 1)
 *
 * Shapes and endings are counted over rare words of the training text, which unseen words resemble (Brants
 * 2000). The tags of a sentence are the sequence allowed by the tag scheme that maximizes
 *
 *     frequent-tag   product over i of P(t_i | w_i)
 *     hmm            product over i of P(t_i | w_i) / P(t_i) P(t_i | t_{i-1}), a hidden Markov model */
#include <math.h>
#include <string.h>

#include "task/baseline.h"
#include "task/tag_chain.h"
#include "task/tagging.h"
#include "text/utf8.h"

enum { ENDINGS = 3, MAX_KEYS = ENDINGS + 3, RARE = 10 };

typedef struct lexicon {
    const nm_tagging_parts *parts;
    nm_counter keys;
    int32_t *counts; /* [keys.n, n_tags] */
    size_t counts_capacity;
    int64_t *form_counts; /* [forms]: occurrences in the training text */
    nm_buffer lower, key;
} lexicon;

/* "0": contains a digit; "AA", "Aa", "aA", "a": capitals at the first and at other positions. */
static const char *shape_of(const char *text, size_t bytes, const char *lower)
{
    bool first = lower[0] != text[0], other = false, digit = false;
    for (size_t i = 0; i < bytes; i++) {
        digit |= text[i] >= '0' && text[i] <= '9';
        other |= i && lower[i] != text[i];
    }
    return digit ? "0" : first && other ? "AA" : first ? "Aa" : other ? "aA" : "a";
}

/* Sets keys to the indexes of the keys of a form, general ones first, and returns their number. add: counts
 * the keys; shapes and endings only if the form is rare. The first byte of a key is its kind. */
static int32_t keys_of(lexicon *self, int32_t form, bool add, size_t keys[MAX_KEYS])
{
    const nm_count *item = &self->parts->forms.items[form];
    int32_t n = 0;
    nm_buffer_clear(&self->lower);
    nm_utf8_lowercase(item->text, item->bytes, &self->lower);
    bool aligned = self->lower.bytes == item->bytes;
    const char *shape = shape_of(item->text, item->bytes, aligned ? self->lower.data : item->text);
    size_t begin = self->lower.bytes;
    for (int32_t level = 0; level < MAX_KEYS; level++) {
        bool ending = level <= ENDINGS;
        if (add && ending && self->form_counts[form] > RARE)
            continue;
        if (level && ending && begin)
            while (begin && nm_utf8_continues(self->lower.data[--begin]))
                ;
        nm_buffer_clear(&self->key);
        nm_buffer_append_byte(&self->key, (char)('0' + level));
        if (ending)
            nm_buffer_append(&self->key, shape, strlen(shape));
        if (ending)
            nm_buffer_append(&self->key, self->lower.data + begin, self->lower.bytes - begin);
        else if (level == ENDINGS + 1)
            nm_buffer_append(&self->key, self->lower.data, self->lower.bytes);
        else
            nm_buffer_append(&self->key, item->text, item->bytes);
        size_t key = add ? nm_counter_add(&self->keys, self->key.data, self->key.bytes, 1)
                         : nm_counter_find(&self->keys, self->key.data, self->key.bytes);
        if (key != SIZE_MAX)
            keys[n++] = key;
    }
    return n;
}

static void count_words(lexicon *self)
{
    const nm_tag_corpus *train = &self->parts->splits[NM_SPLIT_TRAIN];
    size_t tags = (size_t)self->parts->n_tags, counted = 0;
    uint64_t tokens = train->offsets[train->forms.n];
    self->form_counts = nm_allocate((self->parts->forms.n + 1) * sizeof *self->form_counts);
    for (uint64_t i = 0; i < tokens; i++)
        self->form_counts[train->ids[i]]++;
    for (uint64_t i = 0; i < tokens; i++) {
        size_t keys[MAX_KEYS];
        int32_t n = keys_of(self, train->ids[i], true, keys);
        NM_RESERVE(self->counts, self->keys.n * tags, self->counts_capacity);
        memset(self->counts + counted * tags, 0, (self->keys.n - counted) * tags * sizeof *self->counts);
        counted = self->keys.n;
        for (int32_t k = 0; k < n; k++)
            self->counts[keys[k] * tags + (size_t)train->gold[i]]++;
    }
}

/* probabilities[t] = P(t | form) */
static void estimate(lexicon *self, int32_t form, double *probabilities)
{
    size_t tags = (size_t)self->parts->n_tags, keys[MAX_KEYS];
    int32_t n = keys_of(self, form, false, keys);
    for (size_t t = 0; t < tags; t++)
        probabilities[t] = 1 / (double)tags;
    for (int32_t k = 0; k < n; k++) {
        double total = (double)self->keys.items[keys[k]].count;
        for (size_t t = 0; t < tags; t++)
            probabilities[t] = (self->counts[keys[k] * tags + t] + probabilities[t]) / (total + 1);
    }
}

/* Sets the log-probabilities log P(t | t') of the chain and prior[t] = log P(t), with add-one smoothing. */
static void estimate_chain(const nm_tagging_parts *parts, nm_chain *chain, double *prior)
{
    const nm_tag_corpus *train = &parts->splits[NM_SPLIT_TRAIN];
    size_t tags = (size_t)parts->n_tags;
    double tokens = (double)tags, sentences = (double)tags;
    NM_AUTO_FREE double *totals = nm_allocate(tags * sizeof *totals);
    for (int64_t s = 0; s < train->forms.n; s++) {
        uint64_t first = train->offsets[s], end = train->offsets[s + 1];
        for (uint64_t i = first; i < end; i++) {
            size_t tag = (size_t)train->gold[i];
            prior[tag]++;
            tokens++;
            if (i == first)
                chain->start[tag]++;
            else
                chain->transitions[(size_t)train->gold[i - 1] * tags + tag]++;
            if (i + 1 == end)
                chain->end[tag]++;
        }
        sentences += end > first;
    }
    for (size_t from = 0; from < tags; from++) {
        totals[from] = prior[from] + (double)tags + 1;
        for (size_t to = 0; to < tags; to++)
            chain->transitions[from * tags + to] =
                log((chain->transitions[from * tags + to] + 1) / totals[from]);
        chain->end[from] = log((chain->end[from] + 1) / totals[from]);
        chain->start[from] = log((chain->start[from] + 1) / sentences);
        prior[from] = log((prior[from] + 1) / tokens);
    }
}

static void tag_split(lexicon *self, const nm_chain *chain, const double *prior, nm_split split,
                      nm_task_score *score)
{
    const nm_tag_corpus *corpus = &self->parts->splits[split];
    size_t tags = (size_t)self->parts->n_tags, capacity = 0;
    NM_AUTO_FREE int32_t *path = nm_allocate((corpus->offsets[corpus->forms.n] + 1) * sizeof *path);
    NM_AUTO_FREE double *emissions = NULL;
    for (int64_t s = 0; s < corpus->forms.n; s++) {
        size_t first = corpus->offsets[s], n = corpus->offsets[s + 1] - first;
        NM_RESERVE(emissions, n * tags, capacity);
        for (size_t i = 0; i < n; i++) {
            estimate(self, corpus->ids[first + i], emissions + i * tags);
            for (size_t t = 0; t < tags; t++)
                emissions[i * tags + t] = log(emissions[i * tags + t]) - prior[t];
        }
        if (n)
            nm_viterbi(chain, emissions, (int32_t)n, path + first);
    }
    nm_tagging_count(self->parts, corpus, corpus->forms.n, path, score);
}

static nm_status run(const nm_task *task, bool with_transitions, nm_baseline_result *result)
{
    const nm_tagging_parts *parts = task->parts;
    lexicon self = {.parts = parts};
    nm_chain chain;
    NM_AUTO_FREE double *prior = nm_allocate((size_t)parts->n_tags * sizeof *prior);
    nm_chain_init(&chain, parts->n_tags);
    if (with_transitions)
        estimate_chain(parts, &chain, prior);
    nm_chain_forbid(&chain, parts->scheme, (const char *const *)parts->tags);
    count_words(&self);
    for (nm_split split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST; split++)
        if (parts->splits[split].forms.n)
            tag_split(&self, &chain, prior, split, &result->scores[split]);
    nm_chain_release(&chain);
    nm_counter_release(&self.keys);
    nm_buffer_release(&self.lower);
    nm_buffer_release(&self.key);
    NM_FREE(self.counts, self.form_counts);
    return NM_OK;
}

static nm_status frequent_tag_run(const nm_task *task, const nm_baseline_config *config,
                                  nm_baseline_result *result, nm_error *err)
{
    (void)config;
    (void)err;
    return run(task, false, result);
}

static nm_status hmm_run(const nm_task *task, const nm_baseline_config *config, nm_baseline_result *result,
                         nm_error *err)
{
    (void)config;
    (void)err;
    return run(task, true, result);
}

const nm_baseline_type nm_baseline_frequent_tag = {
    .name = "frequent-tag",
    .title = "most frequent tag of the word",
    .task = &nm_task_tagging,
    .run = frequent_tag_run,
};

const nm_baseline_type nm_baseline_hmm = {
    .name = "hmm",
    .title = "hidden Markov model",
    .task = &nm_task_tagging,
    .run = hmm_run,
};
