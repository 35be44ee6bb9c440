/* TENER, a tagger (Yan et al. 2019): concatenated embeddings of words, characters and bigrams, an encoder with relative
 * attention, a conditional random field (CRF) over the tags. */
#ifndef NM_TAGGER_H
#define NM_TAGGER_H

#include "model/model.h"

typedef struct nm_tagger_config { /* section [model] */
    NM_STACK_OPTIONS;
    const char *preset;
    int64_t layers, word_dim, char_dim, bigram_dim, max_positions;
    double char_dropout, output_dropout;
} nm_tagger_config;

typedef struct nm_tagger_sizes { /* nm_model_sizes.more */
    int32_t chars, bigrams;      /* vocabulary sizes; chars is 0 if char_dim is 0 */
} nm_tagger_sizes;

typedef struct nm_tagger_inputs { /* nm_batch.more; words and their packing are the batch's source */
    nm_packing chars; /* the words of the batch as character sequences, none empty; host offsets */
    const int32_t *char_ids, *char_before,
        *char_after;        /* [chars]: a character, its left and right neighbor */
    const int32_t *bigrams; /* [tokens] */
} nm_tagger_inputs;

typedef struct nm_tagger_layers {
    nm_tensor *words, *chars, *bigrams; /* embeddings; the last two may be NULL */
    nm_tensor *conv_weight, *conv_bias, *char_weight, *char_bias;
    nm_tensor *in_weight, *in_bias, *output_weight, *output_bias;
    nm_stack encoder;
    nm_crf_scores crf;
} nm_tagger_layers;

static inline const nm_tagger_config *nm_tagger_config_of(const nm_model *model)
{
    return model->config;
}

static inline nm_tagger_layers *nm_tagger_of(const nm_model *model)
{
    return model->parts;
}

/* Emission scores of the CRF, [tokens, T]. */
nm_tensor *nm_tagger_emissions(nm_model *model, nm_tape *tape, const nm_batch *batch);

#endif
