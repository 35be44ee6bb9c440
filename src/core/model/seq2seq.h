/* The encoder-decoder Transformer for translation. */
#pragma once

#include "model/model.h"
#include "nn/transformer.h"

#define NM_SHARINGS(C) C(NM_SHARE_ALL, "all") C(NM_SHARE_DECODER, "decoder") C(NM_SHARE_NONE, "none")
NM_CHOICES(nm_sharing, NM_SHARINGS);

#define NM_SEQ2SEQ_POSITIONS(C)                                                                              \
    C(NM_SEQ2SEQ_FAIRSEQ, "fairseq", NM_POSITIONS_FAIRSEQ)                                                   \
    C(NM_SEQ2SEQ_TEARS, "tears", NM_POSITIONS_TEARS)                                                         \
    C(NM_SEQ2SEQ_MARIAN, "marian", NM_POSITIONS_MARIAN)                                                      \
    C(NM_SEQ2SEQ_TENSOR2TENSOR, "tensor2tensor", NM_POSITIONS_TENSOR2TENSOR)                                 \
    C(NM_SEQ2SEQ_NO_POSITIONS, "none", 0)
NM_CHOICES(nm_seq2seq_positions, NM_SEQ2SEQ_POSITIONS);

typedef struct nm_seq2seq_config {
    NM_STACK_OPTIONS;
    const char *preset, *encoder_norm, *encoder_final_norm, *decoder_norm, *decoder_final_norm;
    nm_init_scheme init;
    nm_sharing share_embeddings;
    nm_seq2seq_positions positions;
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
