/* Stacks of Transformer layers (Vaswani et al. 2017) in which the normalization is a choice.
 *     pre-norm:   x <- x + drop(F(norm(x)))     and a final norm after the last layer
 *     post-norm:  x <- norm(x + drop(F(x)))
 * F is self-attention, cross-attention (decoders of encoder-decoder models) or the feed-forward layer with the activation f:
 *     ffn(h) = W2 drop(f(W1 h + b1)) + b2 */
#ifndef NM_TRANSFORMER_H
#define NM_TRANSFORMER_H

#include "nn/fold.h"
#include "nn/params.h"

/* Values of model.init, in the order of NM_INIT_SCHEMES. */
typedef enum nm_init_scheme {
    NM_SCHEME_XAVIER_NORMAL,
    NM_SCHEME_SMALL,
    NM_SCHEME_FAIRSEQ,
    NM_SCHEME_RBN,
    NM_SCHEME_TORCH,
    NM_SCHEME_XL /* Transformer-XL's code: N(0, 0.02), biases 0 */
} nm_init_scheme;

#define NM_INIT_SCHEMES "xavier-normal|small|fairseq|rbn|torch|xl"

/* Values of model.norm_position. */
typedef enum nm_norm_position { NM_PRE_NORM, NM_POST_NORM } nm_norm_position;

/* Values of model.activation. */
typedef enum nm_activation {
    NM_ACTIVATION_RELU,
    NM_ACTIVATION_GELU,      /* Hendrycks and Gimpel 2016, with erf */
    NM_ACTIVATION_GELU_TANH, /* their approximation with tanh, as in GPT-2 */
    NM_ACTIVATION_SILU       /* z sigmoid(z); also called swish */
} nm_activation;

/* Options that the sections [model] of all models share. A config struct begins with NM_STACK_OPTIONS; its option table
 * contains NM_STACK_ROWS. */
#define NM_STACK_FIELDS                                                                                      \
    nm_norm_position norm_position;                                                                          \
    nm_activation activation;                                                                                \
    const char *norm, *init_from, *freeze;                                                                   \
    int64_t width, ff, heads;                                                                                \
    double dropout, attention_dropout, relu_dropout, embedding_dropout

typedef struct nm_stack_options {
    NM_STACK_FIELDS;
} nm_stack_options;

#define NM_STACK_OPTIONS                                                                                     \
    union {                                                                                                  \
        nm_stack_options stack;                                                                              \
        struct {                                                                                             \
            NM_STACK_FIELDS;                                                                                 \
        };                                                                                                   \
    }

/* clang-format off */
/* The rows of NM_STACK_FIELDS in the option table of config type T: the defaults differ by model, and the help of
 * norm_position and dropout names what the model's stacks do. */
#define NM_STACK_ROWS(T, width_, ff_, heads_, position_, position_help, dropout_, dropout_help, attention_, relu_, embedding_)  \
    NM_OPTION(T, width, width_, 2, 65536, "Model dimension d (d_model): number of features per token."),                              \
    NM_OPTION(T, ff, ff_, 1, 1 << 20, "Inner dimension of the feed-forward layers (d_ff)."),                            \
    NM_OPTION(T, heads, heads_, 1, 1024, "Number of attention heads."),                                      \
    NM_CHOICE(T, norm_position, position_, "pre|post", position_help),                                       \
    NM_CHOICE(T, activation, "relu", "relu|gelu|gelu-tanh|silu", "Activation of the feed-forward layers: relu, gelu with erf, its approximation with tanh, or silu (swish)."),  \
    NM_OPTION(T, norm, "layer", 0, 0, "Normalization of all sites that no other option names; norm.at sets single sites."),  \
    NM_OPTION(T, init_from, "", 0, 0, "Run folder or model file whose tensors are the initial values where names and shapes match; embeddings are copied by dictionary entry. Empty: random initialization."),  \
    NM_OPTION(T, freeze, "", 0, 0, "Parameters that are not trained, comma-separated: names or prefixes of names (enc, enc.0, embed); * matches any characters."),  \
    NM_OPTION(T, dropout, dropout_, 0, 0.99, dropout_help),                                                  \
    NM_OPTION(T, attention_dropout, attention_, 0, 0.99, "Dropout rate on attention weights."),              \
    NM_OPTION(T, relu_dropout, relu_, 0, 0.99, "Dropout rate after the activation of feed-forward layers."), \
    NM_OPTION(T, embedding_dropout, embedding_, 0, 0.99, "Dropout rate on the sum of token and position embeddings.")
/* clang-format on */

typedef enum nm_attention_kind {
    NM_SOFTMAX_ATTENTION,    /* scaled dot-product attention, queries, keys and values with biases */
    NM_BLOCK_TERM_ATTENTION, /* of the tensorized Transformer (Ma et al. 2019), see nn/sublayers.h */
    NM_RELATIVE_ATTENTION    /* of TENER (Yan et al. 2019), see nn/sublayers.h */
} nm_attention_kind;

typedef struct nm_stack_config {
    int32_t width, ff, heads, layers;
    int32_t key_width; /* features of queries and keys of self-attention, all heads together; 0: width */
    bool pre_norm;
    bool decoder;                /* causal self-attention, and cross-attention unless decoder_only */
    bool decoder_only;           /* no encoder, no cross-attention */
    bool feeds_decoder;          /* a translation encoder: its final norm is the site NM_SITE_ENCODER_FINAL */
    nm_attention_kind attention; /* of self-attention */
    int32_t cores, core_width, context; /* block-term; context: longest sequence in tokens */
    bool noncausal;                     /* block-term: no causal mask, as published */
    /* rates; position_drop: block-term's position table */
    double drop, attention_drop, relu_drop, position_drop;
    nm_activation activation;
    nm_init_scheme init;
    const char *norm, *final_norm; /* types of norm; final_norm: in pre-norm only, NULL: none */
    nm_norm_plan plan;             /* of the training run */
    const char *prefix;            /* of parameter names: "enc" */
} nm_stack_config;

/* Sets the fields that NM_STACK_ROWS describe, with the same norm at all sites, plan and prefix; the others are zero. */
nm_stack_config nm_stack_configure(const nm_stack_options *options, nm_norm_plan plan, const char *prefix);
/* NM_USAGE if model.heads does not divide model.width. */
nm_status nm_stack_check_heads(const nm_stack_options *options, nm_error *err);

typedef struct nm_sublayer_attention {
    nm_norm *norm;
    /* Self-attention: rows of q, k, v, [2 key_width + d, d]; block-term [3h, d], relative [3d, d], both without bias.
     * Cross-attention: rows of q, [d, d]. */
    nm_tensor *in_weight, *in_bias;
    nm_tensor *kv_weight, *kv_bias;      /* cross-attention: rows of k, v, [2d, d] */
    nm_tensor *out_weight, *out_bias;    /* [d, d]; block-term [context^2, d] without bias; relative: none */
    nm_tensor *core, *position_weight;   /* block-term: [cores, h], [h, d] */
    nm_tensor *key_bias, *distance_bias; /* relative: [1, d] each, u and v of all heads */
} nm_sublayer_attention;

typedef struct nm_sublayer_ffn {
    nm_norm *norm;
    nm_tensor *in_weight, *in_bias, *out_weight, *out_bias; /* [ff, d], [1, ff], [d, ff], [1, d] */
} nm_sublayer_ffn;

typedef struct nm_layer {
    nm_sublayer_attention self, cross; /* cross.norm is NULL without cross-attention */
    nm_sublayer_ffn ffn;
} nm_layer;

typedef struct nm_stack {
    nm_stack_config config;
    nm_layer *layers;
    nm_norm *final_norm;                     /* NULL: none */
    nm_tensor *content_bias, *position_bias; /* block-term: [1, h] each, shared by all layers */
    nm_mat positions;                        /* block-term: [context, d], device, owned */
    nm_relative_table distances;             /* relative: [2 longest, d / heads], device, owned */
} nm_stack;

/* Registers parameters and norms. The caller calls nm_stack_release in every case. Errors as nm_params_add_norm. */
nm_status nm_stack_build(nm_stack *stack, const nm_stack_config *config, nm_params *params,
                         const nm_options *options, nm_error *err);
/* Allocates the position tables of block-term attention (for `context` tokens) and of relative attention (for sequences of
 * up to `longest` tokens); no effect for other stacks. Call it after nm_params_allocate. NM_MEMORY. */
nm_status nm_stack_ready(nm_stack *stack, nm_backend *backend, int32_t longest, nm_error *err);
void nm_stack_release(nm_stack *stack, nm_backend *backend);

/* Adds all norms with their readers to the fold, the final norm last and without readers, which the caller adds. option,
 * final_option: options that set the types of the sublayers' norms and of the final norm. Returns whether there is a final
 * norm. */
bool nm_stack_fold(const nm_stack *stack, nm_fold *fold, const char *option, const char *final_option);

/* x: [tokens, d], packed sequences. memory [source tokens, d] and its packing: the encoder's output, for stacks with
 * cross-attention; otherwise NULL. guide: alignments that a cross-attention learns in training, valid until backward
 * has finished; NULL: none. Returns [tokens, d]. */
nm_tensor *nm_stack_forward(nm_tape *tape, const nm_stack *stack, nm_tensor *x, const nm_packing *packing,
                            nm_tensor *memory, const nm_packing *memory_packing,
                            const nm_alignment_guide *guide);

/* The attention sublayers of a forward pass, F without residual connection and norm: h [tokens, d] -> [tokens, d]. context
 * must stay valid until backward has finished. */
typedef struct nm_stack_attention {
    nm_tensor *(*self)(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                       const void *context);
    nm_tensor *(*cross)(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                        const void *context);
    const void *context;
} nm_stack_attention;

/* The forward pass with other attention functions, e.g. over a KV cache. */
nm_tensor *nm_stack_forward_with(nm_tape *tape, const nm_stack *stack, nm_tensor *x,
                                 const nm_stack_attention *attention);

#endif
