/* The text classifier: an encoder whose output is pooled to one vector for each text. */
#ifndef NM_CLASSIFIER_H
#define NM_CLASSIFIER_H

#include "model/model.h"
#include "nn/transformer.h"

typedef struct nm_classifier_config {
    NM_STACK_OPTIONS;
    const char *preset, *final_norm, *init, *positions, *pooling;
    int64_t key_size, layers, max_positions;
    double embedding_dropout;
} nm_classifier_config;

static inline const nm_classifier_config *nm_classifier_config_of(const nm_model *model)
{
    return model->config;
}

#endif
