/* Self-attention sublayers other than softmax attention, for transformer.c: parameters and the function F.
 *
 * Block-term attention (Ma et al. 2019): one head of width h; the products of each query with all pairs of positions of a
 * segment are mapped to d features by a matrix [context^2, d].
 *
 * Relative attention (Yan et al. 2019): attention with relative positions, without scale and output projection. */
#ifndef NM_SUBLAYERS_H
#define NM_SUBLAYERS_H

#include "nn/transformer.h"

void nm_block_term_build(nm_stack *stack, int32_t layer, nm_params *params);
/* The table of positions after dropout, [context, d]; once per forward pass. */
nm_tensor *nm_block_term_positions(nm_tape *tape, const nm_stack *stack);
nm_tensor *nm_block_term_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                                 nm_tensor *h, nm_tensor *positions, const nm_packing *packing);

void nm_relative_build(nm_stack *stack, int32_t layer, nm_params *params);
nm_tensor *nm_relative_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                               nm_tensor *h, const nm_packing *packing);

#endif
