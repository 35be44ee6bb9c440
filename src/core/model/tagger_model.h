/* The sequence tagger TENER (Yan et al. 2019): concatenated embeddings of words, characters and bigrams, an
 * encoder with relative attention, and a conditional random field (CRF) over the T tags. */
#pragma once

#include "model/model.h"

typedef struct nm_tagger_model_config { /* section [model] */
    NM_STACK_OPTIONS;
    const char *preset;
    int64_t layers, word_dim, char_dim, bigram_dim, max_positions;
    double char_dropout, output_dropout;
} nm_tagger_model_config;

typedef struct nm_tagger_model_sizes { /* nm_model_sizes.more */
    int32_t chars, bigrams;            /* vocabulary sizes; chars is 0 if char_dim is 0 */
} nm_tagger_model_sizes;

typedef struct nm_tagger_model_inputs { /* nm_batch.more; words and their packing are the batch's source */
    nm_packing chars; /* the words of the batch as character sequences, none empty; host offsets */
    /* Host [chars]: each character, and its left and right neighbor within the word. */
    const int32_t *char_ids, *char_before, *char_after;
    const int32_t *bigrams; /* host [tokens]: each token with its right neighbor */
} nm_tagger_model_inputs;

typedef struct nm_tagger_model_layers {
    /* Embeddings [words, word_dim], [chars, char_dim], [bigrams, bigram_dim]; the last two are NULL if their
     * width is 0. */
    nm_tensor *words, *chars, *bigrams;
    nm_tensor *conv_weight, *conv_bias;     /* [char_dim, 3 char_dim], [1, char_dim] */
    nm_tensor *char_weight, *char_bias;     /* [char_dim, char_dim], [1, char_dim] */
    nm_tensor *in_weight, *in_bias;         /* [width, word_dim + char_dim + bigram_dim], [1, width] */
    nm_tensor *output_weight, *output_bias; /* [T, width], [1, T] */
    nm_stack encoder;
    nm_crf_scores crf;
} nm_tagger_model_layers;

static inline const nm_tagger_model_config *nm_tagger_model_config_of(const nm_model *model)
{
    return model->config;
}

static inline nm_tagger_model_layers *nm_tagger_model_of(const nm_model *model)
{
    return model->parts;
}

/* Emission scores of the CRF, [tokens, T]; all output layers of nm_tagger_model_layers included. */
nm_tensor *nm_tagger_model_emissions(nm_model *model, nm_tape *tape, const nm_batch *batch);
