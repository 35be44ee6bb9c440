/* Inverse document frequencies of the n-grams of the training texts, which are parameters of a classifier. */
#include <math.h>

#include "model/classifier_model.h"
#include "task/classification.h"

/* The word at position i, or with buckets > 0 the entry of the bigram that ends there. */
static int32_t entry_at(int64_t buckets, const int32_t *ids, size_t i)
{
    return buckets ? nm_classifier_model_bucket(buckets, ids, i) : ids[i];
}

static void find_idf(const nm_labeled_set *train, int64_t buckets, size_t n, double *idf)
{
    NM_AUTO_FREE size_t *texts = nm_allocate(n * sizeof *texts), *last = nm_allocate(n * sizeof *last);
    for (size_t s = 0; s < train->n; s++)
        for (uint64_t i = 0, begin = train->offsets[s]; i < train->offsets[s + 1] - begin; i++) {
            int32_t entry = entry_at(buckets, train->ids.data + begin, i);
            texts[entry] += last[entry] != s + 1;
            last[entry] = s + 1;
        }
    for (size_t i = 0; i < n; i++)
        idf[i] = texts[i] ? 1 + log((1.0 + (double)train->n) / (1.0 + (double)texts[i])) : 0;
}

static void init_weights(const nm_labeled_set *train, nm_backend *b, nm_tensor *weights, int64_t buckets)
{
    size_t n = (size_t)weights->rows; /* the last one is no entry */
    NM_AUTO_FREE double *idf = nm_allocate(n * sizeof *idf);
    find_idf(train, buckets, n, idf);
    nm_backend_write(b, weights->data, idf, n);
}

nm_status nm_classification_init_params(nm_task *task, nm_model *model, nm_error *err)
{
    (void)err;
    const nm_classification_parts *parts = nm_classification_parts_of(task);
    const nm_labeled_set *train = &parts->sets[NM_SPLIT_TRAIN];
    nm_classifier_model_ngrams words, bigrams;
    nm_classifier_model_find_ngrams(model, &words, &bigrams);
    if (words.weights) {
        init_weights(train, model->backend, words.weights, 0);
        init_weights(train, model->backend, bigrams.weights,
                     nm_classifier_model_config_of(model)->ngram_buckets);
    }
    return NM_OK;
}
