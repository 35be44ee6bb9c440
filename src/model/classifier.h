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
    int64_t key_size, layers, max_positions, ngram_dim, ngram_buckets;
    double embedding_init;
} nm_classifier_config;

static inline const nm_classifier_config *nm_classifier_config_of(const nm_model *model)
{
    return model->config;
}

#endif
