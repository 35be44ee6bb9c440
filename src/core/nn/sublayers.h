/* The attention sublayers of transformer.c: their parameters and the function F.
 *
 * Softmax attention (Vaswani et al. 2017), optionally with fewer heads of keys and values (Ainslie et al.
 * 2023), norms of queries, keys and values, rotary position embeddings (Su et al. 2021), and a norm before
 * the output projection.
 *
 * Block-term attention (Ma et al. 2019): one head of width h; a matrix [context^2, d] maps the scores of each
 * query with all pairs of positions of a segment to d features (nm_block_term_args).
 *
 * Relative attention (Yan et al. 2019): softmax attention with relative positions, without scale and output
 * projection. */
#pragma once

#include "nn/transformer.h"

/* The feed-forward layer F(h), [tokens, d]. */
nm_tensor *nm_feed_forward(nm_tape *tape, nm_tensor *h, const nm_sublayer_ffn *ffn,
                           const nm_stack_config *config);

/* Registers the linear layers of stack->layers[layer].self or .cross. */
void nm_softmax_build(nm_stack *stack, int32_t layer, bool cross, nm_params *params,
                      const nm_depth_factors *factors);

/* F(h), [tokens, d]; positions: device [tokens], for rope. */
nm_tensor *nm_softmax_self(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                           nm_tensor *h, const nm_packing *packing, const int32_t *positions);

typedef struct nm_memory { /* output of the encoder */
    nm_tensor *x;          /* [source tokens, d] */
    const nm_packing *packing;
} nm_memory;

/* F(h), [tokens, d]; guide: alignments for this layer, or NULL. */
nm_tensor *nm_softmax_cross(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *cross,
                            nm_tensor *h, const nm_packing *packing, const nm_memory *memory,
                            const nm_alignment_guide *guide);

/* Parts of F for attention over a KV cache, at inference. */

/* y = x W^T + b with the rows first .. first + y.cols - 1 of W and b; bias may be NULL. */
void nm_linear_rows(nm_backend *backend, nm_mat x, const nm_tensor *weight, const nm_tensor *bias,
                    int32_t first, nm_mat y);
/* Queries of self-attention or cross-attention, [tokens, heads key], normalized and rotated. */
nm_tensor *nm_softmax_queries(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *attention,
                              nm_tensor *h, const int32_t *positions);
/* Keys and values in groups of heads, normalized, keys rotated: [tokens, groups key] and [tokens, groups
 * value]. h: the input of self-attention, or the output of the encoder. */
typedef struct nm_key_values {
    nm_tensor *keys, *values;
} nm_key_values;
nm_key_values nm_softmax_key_values(nm_tape *tape, const nm_stack *stack,
                                    const nm_sublayer_attention *attention, nm_tensor *h,
                                    const int32_t *positions);
/* Whether queries, keys and values are the results of the linear layers. */
bool nm_softmax_is_plain(const nm_stack *stack);
/* The output projection of the weighted values, with the norm before it, [tokens, d]. */
nm_tensor *nm_softmax_output(nm_tape *tape, const nm_sublayer_attention *attention, nm_tensor *h);

/* Registers the parameters of stack->layers[layer].self. */
void nm_block_term_build(nm_stack *stack, int32_t layer, nm_params *params);
/* The position table after dropout, [context, d]; call it once per forward pass. */
nm_tensor *nm_block_term_positions(nm_tape *tape, const nm_stack *stack);
/* F(h), [tokens, d]; positions: from nm_block_term_positions. */
nm_tensor *nm_block_term_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                                 nm_tensor *h, nm_tensor *positions, const nm_packing *packing);

/* Registers the parameters of stack->layers[layer].self. */
void nm_relative_build(nm_stack *stack, int32_t layer, nm_params *params);
/* F(h), [tokens, d]. */
nm_tensor *nm_relative_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                               nm_tensor *h, const nm_packing *packing);
