#include <math.h>

#include "nn/sublayers.h"

void nm_relative_build(nm_stack *stack, int32_t layer, nm_params *params)
{
    const nm_stack_config *c = &stack->config;
    nm_sublayer_attention *self = &stack->layers[layer].self;
    int32_t d = c->width, head_width = d / c->heads;
    const nm_init uniform = {NM_INIT_UNIFORM, 1 / sqrt((double)d)};
    /* Xavier normal of a matrix [heads, d / heads] */
    const nm_init bias = {NM_INIT_NORMAL, sqrt(2.0 / (c->heads + head_width))};
    self->in_weight = nm_params_add(params, 3 * d, d, uniform, "%s.%d.self.qkv.weight", c->prefix, layer);
    nm_params_mark_hidden(self->in_weight, (int32_t[NM_PARAM_BLOCKS]){d, d, d});
    self->key_bias = nm_params_add(params, 1, d, bias, "%s.%d.self.key_bias", c->prefix, layer);
    self->distance_bias = nm_params_add(params, 1, d, bias, "%s.%d.self.distance_bias", c->prefix, layer);
}

nm_tensor *nm_relative_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                               nm_tensor *h, const nm_packing *packing)
{
    const nm_stack_config *c = &stack->config;
    nm_tensor *qkv = nm_linear(tape, h, self->in_weight, NULL, NM_ACT_NONE, 0);
    return nm_relative_attention(tape, qkv, self->key_bias, self->distance_bias, &stack->distances, packing,
                                 c->heads, c->attention_drop);
}
