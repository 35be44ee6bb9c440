#include "task/split_overlap.h"

#include <stdlib.h>

#include <xxhash.h>

#include "data/prepare.h"

static uint64_t hash_of(const nm_corpus *corpus, int64_t i)
{
    return XXH3_64bits(corpus->ids + corpus->offsets[i],
                       (size_t)nm_corpus_length(corpus, i) * sizeof *corpus->ids);
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

char *nm_split_overlap_warning(const nm_corpus corpora[3], const char *unit)
{
    enum { TRAIN, WARN_PERCENT = 10 };
    const nm_corpus *train = &corpora[TRAIN];
    char *warning = NULL;
    NM_AUTO_FREE uint64_t *hashes = nm_allocate(((size_t)train->n + 1) * sizeof *hashes);
    for (int64_t i = 0; i < train->n; i++)
        hashes[i] = hash_of(train, i);
    qsort(hashes, (size_t)train->n, sizeof *hashes, compare_hashes);
    for (int split = TRAIN + 1; split < NM_PREPARE_SPLITS && !warning; split++) {
        int64_t n = corpora[split].n, repeated = 0;
        for (int64_t i = 0; i < n; i++) {
            uint64_t hash = hash_of(&corpora[split], i);
            repeated += bsearch(&hash, hashes, (size_t)train->n, sizeof hash, compare_hashes) != NULL;
        }
        if (100 * repeated > WARN_PERCENT * n)
            warning = nm_format(
                "%lld of %lld %s of the %s set are also training %s: its score does not show how "
                "the model performs on new %s",
                (long long)repeated, (long long)n, unit, split == 1 ? "validation" : "test", unit, unit);
    }
    return warning;
}

char *nm_add_overlap_warning(char *other, const nm_corpus corpora[3], const char *unit)
{
    char *overlap = nm_split_overlap_warning(corpora, unit);
    if (!other)
        return overlap;
    if (overlap)
        nm_format_append(&other, ". %s", overlap);
    free(overlap);
    return other;
}
