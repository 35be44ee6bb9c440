/* The language model: a decoder-only Transformer with softmax attention (Vaswani et al. 2017) or block-term
 * attention (the tensorized Transformer, Ma et al. 2019). */
#pragma once

#include "model/model.h"
#include "nn/transformer.h"

enum { NM_LM_MAX_CONTEXT = 8192 };

#define NM_LM_ATTENTIONS(C) C(NM_LM_SOFTMAX, "softmax") C(NM_LM_BLOCK_TERM, "block-term")
NM_CHOICES(nm_lm_attention, NM_LM_ATTENTIONS);

#define NM_LM_POSITIONS(C)                                                                                   \
    C(NM_LM_SINUSOID, "sinusoid") C(NM_LM_LEARNED, "learned") C(NM_LM_NO_POSITIONS, "none")
NM_CHOICES(nm_lm_positions, NM_LM_POSITIONS);

#define NM_LM_FIRST_INPUTS(C) C(NM_LM_FIRST_EOS, "eos") C(NM_LM_FIRST_BOS, "bos")
NM_CHOICES(nm_lm_first, NM_LM_FIRST_INPUTS);

#define NM_LM_EMBEDDING_SCALES(C) C(NM_LM_UNSCALED, "none") C(NM_LM_SCALED_BY_ROOT, "sqrt")
NM_CHOICES(nm_lm_embedding_scale, NM_LM_EMBEDDING_SCALES);

typedef struct nm_lm_config {
    NM_STACK_OPTIONS;
    const char *preset, *final_norm, *cutoffs;
    nm_lm_attention attention;
    nm_lm_positions positions;
    nm_lm_first first_input;
    nm_lm_embedding_scale embedding_scale;
    nm_init_scheme init;
    bool causal, share_embeddings, output_bias, adaptive;
    int64_t layers, context, cores, core_width, window, global_every;
    double hidden_dropout, local_rope_base;
} nm_lm_config;

typedef struct nm_lm {
    nm_tensor *table, *output_weight; /* [V, d] each; the same tensor if embeddings are shared */
    nm_tensor *output_bias;           /* [1, V] or NULL */
    nm_tensor *position_table;        /* learned position embeddings [context, d], or NULL */
    /* Adaptive softmax: the head's cluster entries, [clusters, d] and [1, clusters]; otherwise NULL. */
    nm_tensor *cluster_weight, *cluster_bias;
    nm_adaptive_clusters clusters;
    nm_stack stack;
    nm_mat positions; /* sinusoidal position embeddings [context, d], device; otherwise without data */
} nm_lm;

static inline const nm_lm_config *nm_lm_config_of(const nm_model *model)
{
    return model->config;
}

static inline nm_lm *nm_lm_of(const nm_model *model)
{
    return model->parts;
}

/* Factor of the input embeddings (model.embedding_scale). */
double nm_lm_embedding_factor(const nm_lm_config *config);
/* Hidden vectors of a batch's target tokens, [tokens, d], the input of the output projection. */
nm_tensor *nm_lm_hidden(nm_model *model, nm_tape *tape, const nm_batch *batch);
/* Loss sums of hidden vectors [tokens, d], device doubles [2], see nm_softmax_loss_of and
 * nm_adaptive_loss_of. NULL if the tape's memory is exhausted. */
double *nm_lm_loss(nm_model *model, nm_tape *tape, nm_tensor *hidden, const nm_loss_spec *spec);
