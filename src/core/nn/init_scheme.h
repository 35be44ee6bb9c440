/* Initial values of the linear layers of a stack (model.init). */
#pragma once

#include <stdbool.h>

#include "norma/backend.h"

/* Values of model.init, in the order of NM_INIT_SCHEMES. */
#define NM_INIT_SCHEMES(C)                                                                                   \
    C(NM_SCHEME_XAVIER_NORMAL, "xavier-normal")                                                              \
    C(NM_SCHEME_SMALL, "small")                                                                              \
    C(NM_SCHEME_FAIRSEQ, "fairseq")                                                                          \
    C(NM_SCHEME_RBN, "rbn")                                                                                  \
    C(NM_SCHEME_TORCH, "torch")                                                                              \
    C(NM_SCHEME_XL, "xl")             /* Transformer-XL's code: N(0, 0.02), biases 0 */                      \
    C(NM_SCHEME_DEEPNORM, "deepnorm") /* Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers */  \
    C(NM_SCHEME_TORCHSCALE, "torchscale") /* DeepNet's released code */                                      \
    C(NM_SCHEME_SUBLN, "subln")           /* Wang et al. 2022, Foundation Transformers (Magneto) */          \
    C(NM_SCHEME_TFIXUP,                                                                                      \
      "tfixup") /* Huang et al. 2020, Improving Transformer Optimization Through Better Initialization */    \
    C(NM_SCHEME_ADMIN, "admin") /* Liu et al. 2020, Understanding the Difficulty of Training Transformers */
NM_CHOICES(nm_init_scheme, NM_INIT_SCHEMES);

#define NM_INIT_SCHEME_HELP                                                                                  \
    "Initialization of linear layers: Xavier normal, SmallInit, fairseq's, RBN's, PyTorch's defaults, "      \
    "Transformer-XL's N(0, 0.02), that of DeepNorm (paper: deepnorm, released code: torchscale), of "        \
    "Sub-LN, "                                                                                               \
    "T-Fixup, or Admin (fairseq's, and a forward pass that sets omega of model.residual = admin)."

/* Numbers of layers of the whole model; 0: it has no encoder, no decoder. */
typedef struct nm_depths {
    int32_t encoder, decoder;
} nm_depths;

/* Initial values in a stack are multiplied by these factors. */
typedef struct nm_depth_factors {
    double value;     /* v_proj of self-attention; queries and keys have the factor 1 */
    double projected; /* output projection of self-attention, and both layers of the feed-forward sublayer */
    double cross_value, cross_output;
    double embedding;
    bool biases; /* biases, too */
} nm_depth_factors;

/* Schemes without dependence on the depth have all factors 1. */
nm_depth_factors nm_init_depth_factors(nm_init_scheme scheme, nm_depths depths, bool decoder);

/* alpha of DeepNorm's residual connection, norm(alpha x + f(x)):
 *     encoder and decoder of N and M layers:  0.81 (N^4 M)^(1/16)  and  (3 M)^(1/4)
 *     a single stack of L layers:             (2 L)^(1/4) */
double nm_deepnorm_alpha(nm_depths depths, bool decoder);

/* The sublayer's shape, for attention: features of the model, of queries and keys, of values (all heads). */
typedef struct nm_attention_widths {
    int32_t model, keys, values;
} nm_attention_widths;

/* The initial values multiplied by a factor. */
nm_init nm_init_scaled(nm_init init, double factor);
/* Weights before the factors. output: the output projection, otherwise the projections of queries, keys and
 * values. */
nm_init nm_init_attention(nm_init_scheme scheme, nm_attention_widths widths, bool output);
nm_init nm_init_attention_bias(nm_init_scheme scheme, int32_t fan_in, bool output);
/* decoder: RBN's scheme differs in the encoder. */
nm_init nm_init_ffn(nm_init_scheme scheme, bool decoder, double fan_in, double fan_out);
nm_init nm_init_ffn_bias(nm_init_scheme scheme, bool decoder, double fan_in);
