/* The text classifier: an encoder whose output is pooled to one vector for each text. */
#ifndef NM_CLASSIFIER_H
#define NM_CLASSIFIER_H

#include "model/model.h"
#include "nn/transformer.h"

typedef struct nm_classifier_config {
    NM_STACK_OPTIONS;
    const char *preset, *final_norm;
    nm_init_scheme init;
    enum { NM_CLASSIFIER_NO_POSITIONS, NM_CLASSIFIER_LEARNED, NM_CLASSIFIER_SINUSOID } positions;
    enum { NM_CLASSIFIER_FIRST, NM_CLASSIFIER_MEAN } pooling;
    enum { NM_CLASSIFIER_UNIFORM, NM_CLASSIFIER_IDF } ngram_weights;
    int64_t key_size, layers, max_positions, ngram_dim, ngram_buckets;
    double embedding_init;
} nm_classifier_config;

static inline const nm_classifier_config *nm_classifier_config_of(const nm_model *model)
{
    return model->config;
}

typedef struct nm_classifier_ngrams {
    nm_tensor *table;   /* embeddings [entries, ngram_dim]; NULL without ngram_dim */
    nm_tensor *weights; /* [entries + 1, 1], not learned, 0 at the end; NULL unless ngram_weights is idf */
} nm_classifier_ngrams;

void nm_classifier_find_ngrams(nm_model *model, nm_classifier_ngrams *words, nm_classifier_ngrams *bigrams);
/* Entry of the bigram that ends at position i of a text. */
int32_t nm_classifier_bucket(const nm_classifier_config *config, const int32_t *ids, size_t i);

#endif
