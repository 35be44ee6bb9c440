/* The language model: a decoder-only Transformer with soft-max attention (Vaswani et al. 2017) or block-term attention
 * (the tensorized Transformer, Ma et al. 2019); its parts, for losses, decoding and instruments. */
#ifndef NM_LM_H
#define NM_LM_H

#include "model/model.h"
#include "nn/transformer.h"

typedef struct nm_lm_config {
    NM_STACK_OPTIONS;
    const char *preset, *final_norm, *cutoffs;
    enum { NM_LM_SOFTMAX, NM_LM_BLOCK_TERM } attention;
    enum { NM_LM_SINUSOID, NM_LM_LEARNED, NM_LM_NO_POSITIONS } positions;
    nm_init_scheme init;
    bool causal, share_embeddings, output_bias, adaptive;
    int64_t layers, context, cores, core_width;
    double hidden_dropout;
} nm_lm_config;

typedef struct nm_lm {
    nm_tensor *table, *output_weight, *output_bias; /* tied: the same tensor; a bias or NULL */
    nm_tensor *position_table;                      /* learned positions [context, d], or NULL */
    nm_tensor *cluster_weight, *cluster_bias;       /* adaptive soft-max, else NULL */
    nm_adaptive_clusters bands;
    nm_stack stack;
    nm_mat positions; /* [context, d], device; no data when they are learned or there are none */
    nm_mat places;    /* of block-term attention */
} nm_lm;

static inline const nm_lm_config *nm_lm_config_of(const nm_model *model)
{
    return model->config;
}

static inline nm_lm *nm_lm_of(const nm_model *model)
{
    return model->parts;
}

/* The input vectors of tokens (host ids and positions in their segments). */
nm_tensor *nm_lm_embed(nm_model *model, nm_tape *tape, const int32_t *ids, const int32_t *pos, int32_t n);
/* Hidden vectors of a batch's target tokens, ready for the output map. */
nm_tensor *nm_lm_hidden(nm_model *model, nm_tape *tape, const nm_batch *batch);
/* The loss sums of rows of hidden vectors, as nm_softmax_loss_of gives them; NULL if memory ran out. */
double *nm_lm_loss(nm_model *model, nm_tape *tape, nm_tensor *hidden, const nm_loss_spec *spec);

#endif
