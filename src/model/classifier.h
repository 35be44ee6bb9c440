/* The text classifier: an encoder whose output is pooled to one vector for each text. */
#ifndef NM_CLASSIFIER_H
#define NM_CLASSIFIER_H

#include "model/model.h"
#include "nn/transformer.h"

typedef struct nm_classifier_config {
    const char *preset, *placement, *norm, *final_norm, *init, *positions, *pooling;
    int64_t width, ff, heads, key_size, layers, max_positions;
    double dropout, attention_dropout, relu_dropout, embedding_dropout;
} nm_classifier_config;

static inline const nm_classifier_config *nm_classifier_config_of(const nm_model *model)
{
    return model->config;
}

#endif
