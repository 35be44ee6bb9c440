/* The names that fairseq gave to the tensors of its Transformer, and that transformers has kept in M2M100 and Marian. */
#ifndef NM_TORCH_LAYERS_H
#define NM_TORCH_LAYERS_H

#include "convert/tensor_map.h"
#include "model/model.h"

/* Adds the layers of a stack and its final norm; prefix: "model.encoder". All norms must be LayerNorms. */
void nm_torch_layers_add(nm_tensor_map *map, const nm_model *model, const nm_stack *stack,
                         const char *prefix);
/* Adds NAME.weight and NAME.bias of a LayerNorm. */
void nm_torch_norm_add(nm_tensor_map *map, const nm_model *model, const nm_norm *norm, const char *name);

#endif
