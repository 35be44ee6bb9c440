/* The blocks of a Transformer (Vaswani et al. 2017) with the norm as a choice: projections, attention and
 * feed-forward sublayers, encoder and decoder stacks, pre- or post-norm. pre-norm:  x <- x +
 * drop(F(norm(x))), and a final norm behind the last layer post-norm: x <- norm(x + drop(F(x))) */
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
    NM_SCHEME_XL /* Transformer-XL's program: N(0, 0.02), biases 0 */
} nm_init_scheme;

#define NM_INIT_SCHEMES "xavier-normal|small|fairseq|rbn|torch|xl"

/* Values of model.norm_position. */
typedef enum nm_norm_position { NM_PRE_NORM, NM_POST_NORM } nm_norm_position;

/* Options that the sections [model] of all models share. A config struct begins with NM_STACK_OPTIONS; its option table
 * contains NM_STACK_ROWS. */
#define NM_STACK_FIELDS                                                                                      \
    nm_norm_position norm_position;                                                                          \
    const char *norm;                                                                                        \
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
/* The rows of NM_STACK_FIELDS in the option table of config type T: the defaults differ by model, and the help of norm_position
 * and dropout names what the model's stacks do. */
#define NM_STACK_ROWS(T, width_, ff_, heads_, position_, position_help, dropout_, dropout_help, attention_, relu_, embedding_)  \
    NM_OPTION(T, width, width_, 2, 65536, "Number of features per token (d)."),                              \
    NM_OPTION(T, ff, ff_, 1, 1 << 20, "Inner width of the feed-forward layers."),                            \
    NM_OPTION(T, heads, heads_, 1, 1024, "Number of attention heads."),                                      \
    NM_CHOICE(T, norm_position, position_, "pre|post", position_help),                                       \
    NM_OPTION(T, norm, "layer", 0, 0, "Normalization of all sites that no other option names; norm.at sets single sites."),  \
    NM_OPTION(T, dropout, dropout_, 0, 0.99, dropout_help),                                                  \
    NM_OPTION(T, attention_dropout, attention_, 0, 0.99, "Dropout rate on attention weights."),              \
    NM_OPTION(T, relu_dropout, relu_, 0, 0.99, "Dropout rate after the activation of feed-forward layers."), \
    NM_OPTION(T, embedding_dropout, embedding_, 0, 0.99, "Dropout rate on the sum of token and position embeddings.")
/* clang-format on */

typedef struct nm_stack_config {
    int32_t width, ff, heads, layers;
    int32_t key_width;      /* of queries and keys of self-attention, all heads together; 0: as width */
    bool pre_norm, decoder; /* decoder: causal, with attention to the encoder's output */
    bool alone;             /* a decoder without an encoder: no attention to its output */
    /* Block-term attention in place of soft-max attention (cores > 0), for segments of up to `segment` tokens. */
    int32_t cores, core_width, segment;
    bool sees_ahead;   /* of block-term attention: not causal */
    double place_drop; /* of block-term attention: on the table of places */
    nm_init_scheme init;
    double drop, attention_drop, relu_drop;
    const char *norm, *final_norm; /* types */
    nm_norm_plan plan;             /* of the training run */
    bool feeds_decoder; /* a translation encoder: its final norm is the site NM_SITE_ENCODER_FINAL */
    const char *prefix; /* "enc" */
} nm_stack_config;

/* A stack as the options say it, its norms all of one type; the model adds what only it knows. */
nm_stack_config nm_stack_configure(const nm_stack_options *options, nm_norm_plan plan, const char *prefix);
/* NM_USAGE where the heads of soft-max attention don't divide the width. */
nm_status nm_stack_check_heads(const nm_stack_options *options, nm_error *err);

typedef struct nm_sublayer_attention {
    nm_norm *norm;
    nm_tensor *in_weight, *in_bias;   /* self: q, k, v rows [2 key_width + d, d]; cross: q rows [d, d] */
    nm_tensor *kv_weight, *kv_bias;   /* cross only: k, v rows [2d, d] */
    nm_tensor *out_weight, *out_bias; /* [d, d] */
    nm_tensor *core,
        *place_weight; /* block-term: [cores, h], [h, d]; then in_weight is [3h, d] and out_weight
                                         [segment^2, d], both without a bias */
} nm_sublayer_attention;

typedef struct nm_sublayer_ffn {
    nm_norm *norm;
    nm_tensor *in_weight, *in_bias, *out_weight, *out_bias; /* [ff, d], [d, ff] */
} nm_sublayer_ffn;

typedef struct nm_layer {
    nm_sublayer_attention self, cross;
    nm_sublayer_ffn ffn;
} nm_layer;

typedef struct nm_stack {
    nm_stack_config config;
    nm_layer *layers;
    nm_norm *final_norm;        /* NULL in post-norm */
    nm_tensor *content, *place; /* block-term: the query's biases [1, h], shared by all layers */
    nm_mat places;              /* block-term: [segment, d], device, of whoever built the stack */
} nm_stack;

nm_status nm_stack_build(nm_stack *stack, const nm_stack_config *config, nm_params *params,
                         const nm_options *options, nm_error *err);
void nm_stack_release(nm_stack *stack);

/* Lists the norms and their readers; last, and still without readers, the final one, if there is one. The options name
 * the types of the sublayers' norms and of the final one. True when there is a final one. */
bool nm_stack_fold(const nm_stack *stack, nm_fold *fold, const char *option, const char *final_option);

/* x: [tokens, d]. memory and its packing: the encoder's output, for a decoder; NULL for an encoder. */
nm_tensor *nm_stack_forward(nm_tape *tape, const nm_stack *stack, nm_tensor *x, const nm_packing *packing,
                            nm_tensor *memory, const nm_packing *memory_packing);

/* For transformer.c: the block-term sublayer's parameters, and its function F. places: the dropped table. */
void nm_block_term_build(nm_stack *stack, int layer, nm_sublayer_attention *self, nm_params *params);
nm_tensor *nm_block_term_places(nm_tape *tape, const nm_stack *stack);
nm_tensor *nm_block_term_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                                 nm_tensor *h, nm_tensor *places, const nm_packing *packing);

/* The two halves around a sublayer's function F, for whoever computes F otherwise (cached decoding). */
nm_tensor *nm_sublayer_before(nm_tape *tape, const nm_stack *stack, nm_norm *norm, nm_tensor *x);
nm_tensor *nm_sublayer_after(nm_tape *tape, const nm_stack *stack, nm_norm *norm, nm_tensor *x, nm_tensor *f);
nm_tensor *nm_ffn_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_ffn *ffn, nm_tensor *x);

#endif
