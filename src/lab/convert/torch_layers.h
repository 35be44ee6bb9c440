/* Names of the tensors of fairseq's Transformer, which M2M100 and Marian in transformers also use. */
#pragma once

#include "convert/tensor_map.h"
#include "model/model.h"

/* Maps the layers of a stack and its final norm; prefix: "model.encoder". All norms must be LayerNorm. */
void nm_torch_layers_add(nm_tensor_map *map, const nm_model *model, const nm_stack *stack,
                         const char *prefix);
/* Maps NAME.weight and NAME.bias of a LayerNorm. */
void nm_torch_norm_add(nm_tensor_map *map, const nm_model *model, const nm_norm *norm, const char *name);
