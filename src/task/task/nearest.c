/* Nearest neighbor: the translation of a sentence q is that of the most similar source sentence s of the
 * training data, by BM25 over subwords (Robertson and Zaragoza 2009); of equally similar sentences, the first
 * one:
 *
 *     score(q, s) = sum over distinct t in q of idf(t) c (k + 1) / (c + k (1 - b + b |s| / mean))
 *     idf(t)      = ln(1 + (N - N_t + 0.5) / (N_t + 0.5))
 *
 * c: count of t in s; N: number of sentences; N_t: number of sentences that contain t; mean: mean length of
 * the sentences; k = 1.2; b = 0.75. */
#include <math.h>
#include <string.h>

#include "task/baseline.h"
#include "task/translation.h"

typedef struct posting {
    int32_t sentence, count;
} posting;

typedef struct sentence_index {
    const nm_corpus *source, *target;
    size_t vocab_size;
    uint64_t *starts;  /* [vocab_size + 1]: first posting of each id */
    posting *postings; /* by id, then by sentence */
    double *penalties; /* [sentences]: k (1 - b + b |s| / mean) */
    double *scores;    /* [sentences]: of the current query */
} sentence_index;

static void count_sentences(sentence_index *self)
{
    /* 1 + last sentence that contains the id */
    NM_AUTO_FREE int32_t *last = nm_allocate(self->vocab_size * sizeof *last);
    for (int64_t s = 0; s < self->source->n; s++)
        for (uint64_t i = self->source->offsets[s]; i < self->source->offsets[s + 1]; i++) {
            int32_t id = self->source->ids[i];
            self->starts[id + 1] += last[id] != s + 1;
            last[id] = (int32_t)s + 1;
        }
    for (size_t id = 0; id < self->vocab_size; id++)
        self->starts[id + 1] += self->starts[id];
}

static void build(sentence_index *self)
{
    const double k = 1.2, b = 0.75;
    size_t n = (size_t)self->source->n;
    self->starts = nm_allocate((self->vocab_size + 1) * sizeof *self->starts);
    count_sentences(self);
    self->postings = nm_allocate((self->starts[self->vocab_size] + 1) * sizeof *self->postings);
    self->penalties = nm_allocate(n * sizeof *self->penalties);
    self->scores = nm_allocate(n * sizeof *self->scores);
    NM_AUTO_FREE uint64_t *next = nm_allocate((self->vocab_size + 1) * sizeof *next);
    memcpy(next, self->starts, self->vocab_size * sizeof *next);
    double mean = (double)self->source->offsets[n] / (double)n;
    for (int64_t s = 0; s < self->source->n; s++) {
        self->penalties[s] = k * (1 - b + b * (double)nm_corpus_length(self->source, s) / mean);
        for (uint64_t i = self->source->offsets[s]; i < self->source->offsets[s + 1]; i++) {
            int32_t id = self->source->ids[i];
            posting *at = &self->postings[next[id]];
            if (next[id] > self->starts[id] && at[-1].sentence == s)
                at[-1].count++;
            else
                self->postings[next[id]++] = (posting){(int32_t)s, 1};
        }
    }
}

static void release(sentence_index *self)
{
    NM_FREE(self->starts, self->postings, self->penalties, self->scores);
}

static bool occurs(const int32_t *ids, int64_t n, int32_t id)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* The target side of the most similar sentence. */
static nm_id_list translate(sentence_index *self, const int32_t *ids, int64_t n)
{
    int64_t sentences = self->source->n, best = 0;
    memset(self->scores, 0, (size_t)sentences * sizeof *self->scores);
    for (int64_t i = 0; i < n; i++) {
        if (occurs(ids, i, ids[i]))
            continue;
        uint64_t first = self->starts[ids[i]], end = self->starts[ids[i] + 1];
        double with = (double)(end - first), idf = log(1 + ((double)sentences - with + 0.5) / (with + 0.5));
        for (uint64_t p = first; p < end; p++) {
            const posting *at = &self->postings[p];
            self->scores[at->sentence] += idf * at->count * 2.2 / (at->count + self->penalties[at->sentence]);
        }
    }
    for (int64_t s = 1; s < sentences; s++)
        best = self->scores[s] > self->scores[best] ? s : best;
    return (nm_id_list){self->target->ids + self->target->offsets[best],
                        (int32_t)nm_corpus_length(self->target, best)};
}

static nm_status nearest_run(const nm_task *task, const nm_baseline_config *config,
                             nm_baseline_result *result, nm_error *err)
{
    const nm_translation_parts *parts = task->parts;
    const nm_corpus *train = parts->sides[NM_SPLIT_TRAIN];
    (void)config;
    if (train[0].n > INT32_MAX)
        return nm_fail(err, NM_UNSUPPORTED, "the index has at most %d sentences", INT32_MAX);
    sentence_index self = {
        .source = &train[0], .target = &train[1], .vocab_size = (size_t)nm_vocab_size(parts->source_vocab)};
    build(&self);
    nm_status status = NM_OK;
    for (nm_split split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST && status == NM_OK; split++) {
        const nm_corpus *corpus = &parts->sides[split][0];
        if (!corpus->n)
            continue;
        NM_AUTO_FREE nm_id_list *found = nm_allocate((size_t)corpus->n * sizeof *found);
        for (int64_t s = 0; s < corpus->n; s++)
            found[s] = translate(&self, corpus->ids + corpus->offsets[s], nm_corpus_length(corpus, s));
        status = nm_translation_count(task, split, found, (size_t)corpus->n, &result->scores[split], err);
    }
    release(&self);
    return status;
}

const nm_baseline_type nm_baseline_nearest = {
    .name = "nearest",
    .title = "translation of the nearest source",
    .task = &nm_task_translation,
    .run = nearest_run,
};
