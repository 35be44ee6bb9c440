/* The text classifier: an encoder whose output is pooled to one vector per text, and a linear layer to the
 * classes. */
#pragma once

#include "model/model.h"
#include "nn/transformer.h"

#define NM_CLASSIFIER_POSITIONS(C)                                                                           \
    C(NM_CLASSIFIER_NO_POSITIONS, "none")                                                                    \
    C(NM_CLASSIFIER_LEARNED, "learned") C(NM_CLASSIFIER_SINUSOID, "sinusoid")
NM_CHOICES(nm_classifier_positions, NM_CLASSIFIER_POSITIONS);

#define NM_CLASSIFIER_POOLINGS(C) C(NM_CLASSIFIER_FIRST, "first") C(NM_CLASSIFIER_MEAN, "mean")
NM_CHOICES(nm_classifier_pooling, NM_CLASSIFIER_POOLINGS);

#define NM_NGRAM_WEIGHTS(C) C(NM_CLASSIFIER_UNIFORM, "uniform") C(NM_CLASSIFIER_IDF, "idf")
NM_CHOICES(nm_ngram_weights, NM_NGRAM_WEIGHTS);

typedef struct nm_classifier_model_config {
    NM_STACK_OPTIONS;
    const char *preset, *final_norm;
    nm_init_scheme init;
    nm_classifier_positions positions;
    nm_classifier_pooling pooling;
    nm_ngram_weights ngram_weights;
    int64_t key_size, layers, max_positions, ngram_dim, ngram_buckets;
    double embedding_init;
} nm_classifier_model_config;

/* Whether the model has position embeddings, for up to max_positions tokens. */
static inline bool nm_classifier_model_has_positions(const nm_classifier_model_config *config)
{
    return config->positions != NM_CLASSIFIER_NO_POSITIONS || config->rope != NM_ROPE_NONE;
}

static inline const nm_classifier_model_config *nm_classifier_model_config_of(const nm_model *model)
{
    return model->config;
}

typedef struct nm_classifier_model_ngrams {
    nm_tensor *table; /* embeddings [entries, ngram_dim]; NULL if ngram_dim is 0 */
    /* [entries + 1, 1], not learned, the last one is 0; NULL unless ngram_weights is idf */
    nm_tensor *weights;
} nm_classifier_model_ngrams;

/* The n-gram parameters, owned by the model. */
void nm_classifier_model_find_ngrams(nm_model *model, nm_classifier_model_ngrams *words,
                                     nm_classifier_model_ngrams *bigrams);

/* Row, from 0 to buckets - 1, of the bigram that ends at position i of a text with these token ids. At i =
 * 0 the bigram consists
 * of the beginning of the text and its first token. */
int32_t nm_classifier_model_bucket(int64_t buckets, const int32_t *ids, size_t i);
