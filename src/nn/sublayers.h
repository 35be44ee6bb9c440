/* Self-attention sublayers other than absolute softmax attention, for transformer.c: their parameters and the function F.
 *
 * Block-term attention (Ma et al. 2019): one head of width h; a matrix [context^2, d] maps the scores of each query with all
 * pairs of positions of a segment to d features (nm_block_term_args).
 *
 * Relative attention (Yan et al. 2019): softmax attention with relative positions, without scale and output projection. */
#ifndef NM_SUBLAYERS_H
#define NM_SUBLAYERS_H

#include "nn/transformer.h"

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

#endif
