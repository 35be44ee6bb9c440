/* TENER, a tagger (Yan et al. 2019): vectors of words, of their characters and of bigrams side by side, an encoder with
 * relative positions, a conditional random field over the tags. */
#ifndef NM_TAGGER_H
#define NM_TAGGER_H

#include "model/model.h"
#include "nn/relative_encoder.h"

typedef struct nm_tagger_config { /* section [model] */
    NM_STACK_OPTIONS;
    const char *preset;
    int64_t layers, word_dim, char_dim, bigram_dim, max_positions;
    double char_dropout, output_dropout;
} nm_tagger_config;

typedef struct nm_tagger_sizes { /* nm_model_sizes.more */
    int32_t chars, bigrams; /* as many numbers as characters and bigrams have; 0 chars where char_dim = 0 */
} nm_tagger_sizes;

typedef struct nm_tagger_inputs { /* nm_batch.more; words and their packing are the batch's source */
    nm_packing chars;             /* of every word of the batch, none empty; host offsets */
    const int32_t *char_ids, *char_before,
        *char_behind;       /* [chars]: the character and its neighbors in the word */
    const int32_t *bigrams; /* [tokens] */
} nm_tagger_inputs;

typedef struct nm_tagger {
    nm_tensor *words, *chars, *bigrams; /* vectors; the last two may be NULL */
    nm_tensor *conv_weight, *conv_bias, *char_weight, *char_bias;
    nm_tensor *in_weight, *in_bias, *output_weight, *output_bias;
    nm_relative_encoder encoder;
    nm_crf_scores crf;
} nm_tagger;

static inline const nm_tagger_config *nm_tagger_config_of(const nm_model *model)
{
    return model->config;
}

static inline nm_tagger *nm_tagger_of(const nm_model *model)
{
    return model->parts;
}

/* Scores of every tag for every token: [tokens, T]. */
nm_tensor *nm_tagger_emissions(nm_model *model, nm_tape *tape, const nm_batch *batch);

#endif
