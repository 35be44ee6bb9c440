/* The encoder-decoder Transformer for translation. */
#ifndef NM_SEQ2SEQ_H
#define NM_SEQ2SEQ_H

#include "model/model.h"
#include "nn/transformer.h"

typedef struct nm_seq2seq_config {
    NM_STACK_OPTIONS;
    const char *preset, *encoder_norm, *encoder_final_norm, *decoder_norm, *decoder_final_norm;
    nm_init_scheme init;
    enum { NM_SHARE_ALL, NM_SHARE_DECODER, NM_SHARE_NONE } share_embeddings;
    enum {
        NM_SEQ2SEQ_FAIRSEQ,
        NM_SEQ2SEQ_TEARS,
        NM_SEQ2SEQ_MARIAN,
        NM_SEQ2SEQ_TENSOR2TENSOR,
        NM_SEQ2SEQ_NO_POSITIONS
    } positions;
    bool fixnorm, output_bias;
    int64_t encoder_layers, decoder_layers, max_positions, alignment_layer, alignment_head;
} nm_seq2seq_config;

typedef struct nm_seq2seq {
    nm_tensor *source_table, *target_table, *output_weight; /* [V, d] each; shared ones are the same tensor */
    nm_tensor *output_bias;                                 /* [1, V] or NULL */
    nm_stack encoder, decoder;
    nm_mat positions; /* [max_positions, width], device */
} nm_seq2seq;

static inline const nm_seq2seq_config *nm_seq2seq_config_of(const nm_model *model)
{
    return model->config;
}

/* Index, from 0, of the decoder layer that model.alignment_layer selects. */
int32_t nm_seq2seq_alignment_layer(const nm_seq2seq_config *config);

static inline nm_seq2seq *nm_seq2seq_of(const nm_model *model)
{
    return model->parts;
}

#endif
