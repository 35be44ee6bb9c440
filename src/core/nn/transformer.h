/* Stacks of Transformer layers (Vaswani et al. 2017) in which normalization is a choice: its function, where
 * it is (model. norm_position), how the residual stream is combined (model.residual), and the initial values
 * (nn/init_scheme.h). For a sublayer F with the norm N:
 *     pre       x + F(N(x))                                 sandwich  x + N'(F(N(x)))       (Peri-LN, Gemma)
 *     post      N(x + F(x))                                 inside    x + N(F(x))           (OLMo 2)
 *     mix       post in the first layers, pre in the others (Mix-LN)
 *     sub       pre, and a norm before the output projection of self-attention and before the second layer of
 *               the feed-forward
 *               sublayer (Sub-LN)
 * All but post have a final norm after the last layer. F is self-attention, cross-attention (decoders of
 * encoder-decoder models) or the feed-forward layer with the activation f, which is drop(f(Wg h + bg) * (W1 h
 * + b1)) with a gated linear unit:
 *     ffn(h) = W2 drop(f(W1 h + b1)) + b2
 * The residual forms replace x + F:
 *     deepnorm      alpha x + F                             (nm_deepnorm_alpha; post only)
 *     admin         omega * x + F, omega one number per feature, initially 1 or set by the initialization
 *                   admin (Liu et al. 2020; post only)
 *     depth-scaled  the input N(x) of F is divided by the square root of the layer's number, from 1
 *                   (LayerNorm Scaling)
 *     layerscale    x + g * F, g one number per feature     (Touvron et al. 2021)
 *     skipinit      x + a F, a one number per sublayer, initially 0 (De and Smith 2020)
 *     rezero        x + a F, a one number per layer, initially 0 (Bachlechner et al. 2021)
 *     resi-dual     post-norm, and the final norm of the sum of the stack's input and all F is added to its
 *                   output (ResiDual) */
#pragma once

#include "nn/fold.h"
#include "nn/init_scheme.h"
#include "nn/params.h"
#include "nn/positions.h"
#include "norm/types.h"

/* Values of model.norm_position. */
#define NM_NORM_POSITIONS(C)                                                                                 \
    C(NM_PRE_NORM, "pre")                                                                                    \
    C(NM_POST_NORM, "post")                                                                                  \
    C(NM_SANDWICH_NORM, "sandwich") C(NM_INSIDE_NORM, "inside") C(NM_MIX_NORM, "mix") C(NM_SUB_NORM, "sub")
NM_CHOICES(nm_norm_position, NM_NORM_POSITIONS);

/* Values of model.residual. */
#define NM_RESIDUAL_FORMS(C)                                                                                 \
    C(NM_RESIDUAL_PLAIN, "plain")                                                                            \
    C(NM_RESIDUAL_DEEPNORM, "deepnorm")                                                                      \
    C(NM_RESIDUAL_DEPTH_SCALED, "depth-scaled")                                                              \
    C(NM_RESIDUAL_LAYERSCALE, "layerscale")                                                                  \
    C(NM_RESIDUAL_SKIPINIT, "skipinit")                                                                      \
    C(NM_RESIDUAL_REZERO, "rezero") C(NM_RESIDUAL_DUAL, "resi-dual") C(NM_RESIDUAL_ADMIN, "admin")
NM_CHOICES(nm_residual_form, NM_RESIDUAL_FORMS);

/* Columns of the list of activations (norma/functions.h). */
#define NM_ACTIVATION_OP(constant, word, op, ...)               [constant] = op,
#define NM_ACTIVATION_HF(constant, word, op, hf, hf_read, ct2)  [constant] = {hf, hf_read},
#define NM_ACTIVATION_CT2(constant, word, op, hf, hf_read, ct2) [constant] = ct2,

/* Values of model.rope: rotary position embeddings (Su et al. 2021) of queries and keys; the features j and j
 * + width/2 of a head, or 2j and 2j + 1, are rotated by the angle position base^(-2j/width). */
#define NM_ROPES(C) C(NM_ROPE_NONE, "none") C(NM_ROPE_HALF, "half") C(NM_ROPE_INTERLEAVED, "interleaved")
NM_CHOICES(nm_rope, NM_ROPES);

/* Values of model.qk_norm and model.v_norm: none, each head by itself, or all heads together. */
#define NM_VALUE_NORMS(C) C(NM_HEAD_NORM_NONE, "none") C(NM_HEAD_NORM_HEAD, "head")
#define NM_HEAD_NORMS(C)  NM_VALUE_NORMS(C) C(NM_HEAD_NORM_FULL, "full")
NM_CHOICES(nm_head_norm, NM_HEAD_NORMS);
typedef nm_head_norm NM_VALUE_NORMS_ENUM;

/* A name of the list of types in the help of model.norm. */
#define NM_LISTED_NORM(name) " " #name

/* Options that the sections [model] of all models share. A config struct begins with NM_STACK_OPTIONS; its
 * option table contains NM_STACK_ROWS. */
#define NM_STACK_FIELDS                                                                                      \
    nm_norm_position norm_position;                                                                          \
    nm_residual_form residual;                                                                               \
    nm_activation activation;                                                                                \
    nm_rope rope;                                                                                            \
    nm_rope_scaling_kind rope_scaling;                                                                       \
    nm_head_norm qk_norm, v_norm;                                                                            \
    bool gated, bias, qk_norm_after_rope;                                                                    \
    const char *norm, *embedding_norm, *qk_norm_type, *init_from, *freeze;                                   \
    int64_t width, ff, heads, key_value_heads, head_width, post_layers;                                      \
    double layer_scale, rope_base, rope_factor, rope_low, rope_high, rope_original;                          \
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
/* The rows of NM_STACK_FIELDS in the option table of config type T: the defaults differ by model, and the
 * help of dropout names what the model's stacks do. */
#define NM_STACK_ROWS(T, width_, ff_, heads_, position_, dropout_, dropout_help, attention_, relu_, \
                      embedding_) \
    NM_OPTION(T, width, width_, 2, 65536, "Model dimension d (d_model): number of features per token."), \
    NM_OPTION(T, ff, ff_, 1, 1 << 20, "Inner dimension of the feed-forward layers (d_ff)."), \
    NM_OPTION(T, heads, heads_, 1, 1024, "Number of attention heads."),                                      \
    NM_CHOICE(T, norm_position, position_, NM_NORM_POSITIONS, \
        "Position of the norms: before each sublayer (pre), after each residual addition (post), before " \
        "and after each sublayer (sandwich: Peri-LN, Gemma), after each sublayer and before the residual " \
        "addition (inside: OLMo 2), post in the first layers and pre in the others (mix: Mix-LN), or pre " \
        "with additional norms inside the sublayers (sub: Sub-LN)."), \
    NM_OPTION(T, post_layers, "0", 0, 1000, \
        "Number of layers with post-norm in norm_position = mix; 0: a quarter of the layers, at " \
        "least one."), \
    NM_CHOICE(T, residual, "plain", NM_RESIDUAL_FORMS, \
        "Residual connections: x + f (plain), alpha x + f (deepnorm), inputs of sublayers divided by the " \
        "square root of the layer's number (depth-scaled), x + g f with a learned number per feature " \
        "(layerscale), per sublayer (skipinit) or per layer (rezero), a post-norm and a pre-norm stream " \
        "(resi-dual), or omega x + f with a learned number per feature (admin)."), \
    NM_OPTION(T, layer_scale, "0.1", 0, 1e3, "Initial value of the numbers of residual = layerscale."), \
    NM_OPTION(T, embedding_norm, "none", 0, 0, \
        "Normalization of the embeddings, before their dropout: a type as in model.norm."), \
    NM_CHOICE(T, activation, "relu", NM_ACTIVATIONS, \
        "Activation of the feed-forward layers. gelu is the one with erf, gelu-tanh its approximation, and " \
        "silu is also called swish."), \
    NM_OPTION(T, gated, "false", 0, 1, \
        "Gated linear units in the feed-forward layers, W2 (f(Wg h) * W1 h): SwiGLU with silu, GEGLU with " \
        "gelu."), \
    NM_OPTION(T, bias, "true", 0, 1, \
        "Biases of the linear layers of attention and feed-forward sublayers."), \
    NM_OPTION(T, key_value_heads, "0", 0, 1024, \
        "Grouped-query attention: number of key and value heads of self-attention, a divisor of heads; " \
        "0: as many as heads."), \
    NM_OPTION(T, head_width, "0", 0, 65536, "Number of features per head; 0: width / heads."), \
    NM_CHOICE(T, rope, "none", NM_ROPES, \
        "Rotary position embeddings in self-attention: pairs of features are those of the two halves of a " \
        "head (half: Llama, GPT-NeoX) or neighbors (interleaved: RoFormer, GPT-J)."), \
    NM_OPTION(T, rope_base, "10000", 1, 1e9, "Base of the angles of rotary position embeddings."), \
    NM_CHOICE(T, rope_scaling, "none", NM_ROPE_SCALINGS, \
        "Scaling of the frequencies of rotary position embeddings for contexts longer than in the original " \
        "training: all divided by rope_factor (linear), or only the low ones (llama3: Llama 3.1)."), \
    NM_OPTION(T, rope_factor, "8", 1, 1e6, "Divisor of scaled frequencies of rotary position embeddings."), \
    NM_OPTION(T, rope_low, "1", 0, 1e6, \
        "With rope_scaling = llama3: frequencies with fewer rotations in rope_original tokens are divided " \
        "by rope_factor."), \
    NM_OPTION(T, rope_high, "4", 0, 1e6, \
        "With rope_scaling = llama3: frequencies with more rotations in rope_original tokens remain; " \
        "between rope_low and rope_high they are interpolated."), \
    NM_OPTION(T, rope_original, "8192", 1, 1e9, \
        "With rope_scaling = llama3: context of the original training in tokens."), \
    NM_CHOICE(T, qk_norm, "none", NM_HEAD_NORMS, \
        "Normalization of queries and keys: of each head (head: Qwen3), or of all heads together (full: " \
        "OLMo 2)."), \
    NM_CHOICE(T, v_norm, "none", NM_VALUE_NORMS, \
        "Normalization of the values of each head, of the type qk_norm_type."), \
    NM_OPTION(T, qk_norm_type, "rms", 0, 0, \
        "Type of the norms of queries, keys and values, as in model.norm."), \
    NM_OPTION(T, qk_norm_after_rope, "false", 0, 1, \
        "Queries and keys are normalized after the rotation by their positions instead of before it."), \
    NM_OPTION(T, norm, "layer", 0, 0, \
        "Normalization of all sites that no other option names; norm.at sets single " \
            "sites. Types:" NM_NORM_TYPES(NM_LISTED_NORM) \
        "."), \
    NM_OPTION(T, init_from, "", 0, 0, \
        "Run folder or model file whose tensors are the initial values where names and shapes match; " \
        "embeddings are copied by dictionary entry. Empty: random initialization."), \
    NM_OPTION(T, freeze, "", 0, 0, \
        "Parameters that are not trained, comma-separated: names or prefixes of names (enc, enc.0, embed); " \
        "* matches any characters."), \
    NM_OPTION(T, dropout, dropout_, 0, 0.99, dropout_help),                                                  \
    NM_OPTION(T, attention_dropout, attention_, 0, 0.99, "Dropout rate on attention weights."),              \
    NM_OPTION(T, relu_dropout, relu_, 0, 0.99, "Dropout rate after the activation of feed-forward layers."), \
    NM_OPTION(T, embedding_dropout, embedding_, 0, 0.99, \
        "Dropout rate on the sum of token and position embeddings.")

/* Rules of these options, for the rules of all models. */
#define NM_STACK_RULES \
    {"model.post_layers", "model.norm_position", "mix", "only mix has layers of both positions", NULL}, \
    {"model.layer_scale", "model.residual", "layerscale", "only layerscale has these numbers", NULL}, \
    {"model.qk_norm_type", NULL, NULL, "queries, keys and values are not normalized", \
        nm_stack_normalizes_heads}, \
    {"model.rope_base", "model.rope", "!none", "there are no rotary position embeddings", NULL}, \
    {"model.rope_scaling", "model.rope", "!none", "there are no rotary position embeddings", NULL}, \
    {"model.rope_factor", "model.rope_scaling", "!none", "frequencies are not scaled", NULL}, \
    {"model.rope_low", "model.rope_scaling", "llama3", "only llama3 has it", NULL}, \
    {"model.rope_high", "model.rope_scaling", "llama3", "only llama3 has it", NULL}, \
    {"model.rope_original", "model.rope_scaling", "llama3", "only llama3 has it", NULL}, \
    {"model.qk_norm_after_rope", NULL, NULL, "it needs model.rope and model.qk_norm", nm_stack_orders_rope}
/* Rules of the options of softmax attention; applies: whether the model has it, otherwise the reason is
 * given. */
#define NM_SOFTMAX_RULES(applies, reason) \
    {"model.key_value_heads", NULL, NULL, reason, applies}, \
    {"model.head_width", NULL, NULL, reason, applies}, \
    {"model.rope", NULL, NULL, reason, applies}, \
    {"model.qk_norm", NULL, NULL, reason, applies}, \
    {"model.v_norm", NULL, NULL, reason, applies}
/* clang-format on */

bool nm_stack_normalizes_heads(const nm_options *options);
bool nm_stack_orders_rope(const nm_options *options);
/* Whether the stacks have a final norm: all but post-norm, except ResiDual. */
bool nm_stack_has_final_norm(const nm_options *options);

typedef enum nm_attention_kind {
    NM_SOFTMAX_ATTENTION,    /* scaled dot-product attention, queries, keys and values with biases */
    NM_BLOCK_TERM_ATTENTION, /* of the tensorized Transformer (Ma et al. 2019), see nn/sublayers.h */
    NM_RELATIVE_ATTENTION    /* of TENER (Yan et al. 2019), see nn/sublayers.h */
} nm_attention_kind;

typedef struct nm_stack_config {
    int32_t width, ff, heads, layers;
    int32_t key_value_heads; /* of self-attention; 0: heads */
    int32_t value_width;     /* features of values, all heads together; 0: width */
    /* features of queries and keys of self-attention, all heads together; 0: value_width */
    int32_t key_width;
    nm_norm_position position;
    int32_t post_layers; /* of mix; 0: the default */
    nm_residual_form residual;
    double layer_scale;          /* initial value */
    nm_depths depths;            /* of the model, for deepnorm and model.init */
    bool decoder;                /* causal self-attention, and cross-attention unless decoder_only */
    bool decoder_only;           /* no encoder, no cross-attention */
    bool feeds_decoder;          /* a translation encoder: its final norm is the site NM_SITE_ENCODER_FINAL */
    nm_attention_kind attention; /* of self-attention */
    int32_t cores, core_width, context; /* block-term; context: longest sequence in tokens */
    bool noncausal;                     /* block-term: no causal mask, as published */
    /* rates; position_drop: block-term's position table */
    double drop, attention_drop, relu_drop, position_drop;
    nm_activation activation;
    bool gated, bias; /* bias: of linear layers */
    nm_rope rope;
    nm_rope_angles rope_angles;
    /* Softmax self-attention of a decoder: a token attends to itself and the window - 1 tokens before it,
     * except in the layers global_every, 2 global_every, ..., which attend to all (0: no such layers). window
     * 0: all layers attend to all tokens. */
    int32_t window, global_every;
    nm_rope_angles local_angles; /* of layers with a window */
    nm_head_norm qk_norm, v_norm;
    bool qk_norm_after_rope;
    nm_init_scheme init;
    /* Types of norm; final_norm: NULL: none, and not with post-norm; embedding_norm: NULL: none. */
    const char *norm, *final_norm, *embedding_norm, *qk_norm_type;
    double embedding_drop; /* rate after the embedding norm, if there is one */
    /* length of all sequences, for norms over images (nm_norm_site.rows); 0: it varies */
    int32_t sequence_rows;
    nm_norm_plan plan;  /* of the training run */
    const char *prefix; /* of parameter names: "enc" */
} nm_stack_config;

/* Sets the fields that NM_STACK_ROWS describe, with the same norm at all sites, plan and prefix; the others
 * are zero. */
nm_stack_config nm_stack_configure(const nm_stack_options *options, nm_norm_plan plan, const char *prefix);
/* The norm of a decoder for which no option names one, given that of the encoder: LayerNorm in place of norms
 * with batch statistics. */
const char *nm_stack_decoder_norm(const char *norm);
/* NM_USAGE if heads and widths, or the position of the norms and the residual form do not fit together.
 * has_heads: the attention has heads, which divide the width; block-term attention has not. */
nm_status nm_stack_check(const nm_stack_options *options, bool has_heads, nm_error *err);
/* NM_UNSUPPORTED, naming the option, unless the stacks are those of Vaswani et al. 2017 with pre-norm or
 * post-norm: plain residual connections and softmax attention, biases, no gated units. what: "the format
 * CTranslate2". */
nm_status nm_stack_require_plain(const nm_stack_options *options, const char *what, nm_error *err);
/* A warning if model.residual = deepnorm or admin is without the initialization that belongs to it, heap,
 * freed by the caller; NULL: none. */
char *nm_stack_init_warning(const nm_options *options);
bool nm_stack_has_embedding_norm(const nm_stack_options *options);
/* Dropout rate that a model applies to its embeddings: with an embedding norm the stack applies it. */
double nm_stack_embedding_drop(const nm_stack_options *options);

/* What a sublayer has besides its function F. */
typedef struct nm_sublayer {
    nm_norm *norm;
    nm_norm *output_norm; /* sandwich: N'; otherwise NULL */
    nm_tensor *scale;     /* layerscale [1, d]; skipinit, rezero [1, 1]; otherwise NULL */
    nm_tensor *omega;     /* admin [1, d]; otherwise NULL */
} nm_sublayer;

typedef struct nm_sublayer_attention {
    union {
        nm_sublayer common;
        struct {
            nm_norm *norm, *output_norm;
            nm_tensor *scale, *omega;
        };
    };
    nm_norm *inner_norm; /* sub: of the output projection's input, self-attention only; otherwise NULL */
    nm_norm *query_norm, *key_norm, *value_norm; /* NULL: none */
    int32_t window;                              /* 0: none, see nm_stack_config */
    /* Self-attention: rows of q, k, v in heads and groups, see nm_head_widths; block-term [3h, d], relative
     * [3d, d], both without bias. Cross-attention: rows of q, [value_width, d]. */
    nm_tensor *in_weight, *in_bias;
    nm_tensor *kv_weight, *kv_bias; /* cross-attention: rows of k, v, [2 value_width, d] */
    nm_tensor *out_weight,
        *out_bias; /* [d, value_width]; block-term [context^2, d] without bias; relative: none */
    nm_tensor *core, *position_weight;   /* block-term: [cores, h], [h, d] */
    nm_tensor *key_bias, *distance_bias; /* relative: [1, d] each, u and v of all heads */
} nm_sublayer_attention;

typedef struct nm_sublayer_ffn {
    union {
        nm_sublayer common;
        struct {
            nm_norm *norm, *output_norm;
            nm_tensor *scale, *omega;
        };
    };
    nm_norm *inner_norm; /* sub: of the activations, width ff; otherwise NULL */
    /* [ff, d], [1, ff], [d, ff], [1, d]; gated: in_weight [2 ff, d], rows of Wg and W1, in_bias [1, 2 ff] */
    nm_tensor *in_weight, *in_bias, *out_weight, *out_bias;
} nm_sublayer_ffn;

typedef struct nm_layer {
    nm_tensor *scale;                  /* rezero: [1, 1], which the sublayers share; otherwise NULL */
    nm_sublayer_attention self, cross; /* cross.in_weight is NULL without cross-attention */
    nm_sublayer_ffn ffn;
} nm_layer;

typedef struct nm_stack {
    nm_stack_config config;
    nm_layer *layers;
    nm_norm *embedding_norm, *final_norm;    /* NULL: none */
    nm_tensor *content_bias, *position_bias; /* block-term: [1, h] each, shared by all layers */
    nm_mat positions;                        /* block-term: [context, d], device, owned */
    nm_relative_table distances;             /* relative: [2 longest, d / heads], device, owned */
    nm_mat rotations;       /* rope: [longest, features of a key head], cosines and sines, device, owned */
    nm_mat local_rotations; /* of layers with a window; without data: there are none */
} nm_stack;

/* Heads of softmax attention, and features per head. Query head i uses the key and value head floor(i groups
 * / heads). */
typedef struct nm_head_widths {
    int32_t heads, groups; /* of queries; of keys and values */
    int32_t key, value;    /* features of a query or key head, of a value head */
} nm_head_widths;

nm_head_widths nm_stack_head_widths(const nm_stack_config *config, bool cross);

/* Registers parameters and norms. The caller calls nm_stack_release in every case. Errors as
 * nm_params_add_norm. */
nm_status nm_stack_build(nm_stack *stack, const nm_stack_config *config, nm_params *params,
                         const nm_options *options, nm_error *err);
/* Allocates the position tables of block-term attention (for `context` tokens), of relative attention and of
 * rotary position embeddings (for sequences of up to `longest` tokens); no effect for other stacks. Call it
 * after nm_params_allocate. NM_MEMORY. */
nm_status nm_stack_ready(nm_stack *stack, nm_backend *backend, int32_t longest, nm_error *err);
void nm_stack_release(nm_stack *stack, nm_backend *backend);

/* Adds all norms with their readers to the fold, the final norm last and without readers, which the caller
 * adds. option, final_option: options that set the types of the sublayers' norms and of the final norm.
 * Returns whether there is a final norm. */
bool nm_stack_fold(const nm_stack *stack, nm_fold *fold, const char *option, const char *final_option);

/* x: [tokens, d], packed sequences. memory [source tokens, d] and its packing: the encoder's output, for
 * stacks with cross-attention; otherwise NULL. guide: alignments that a cross-attention learns in training,
 * valid until backward has finished; NULL: none. Returns [tokens, d]. */
nm_tensor *nm_stack_forward(nm_tape *tape, const nm_stack *stack, nm_tensor *x, const nm_packing *packing,
                            nm_tensor *memory, const nm_packing *memory_packing,
                            const nm_alignment_guide *guide);

/* The attention sublayers of a forward pass, F without residual connection and norm: h [tokens, d] ->
 * [tokens, d]. context must stay valid until backward has finished. */
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
