#include "convert/torch_layers.h"

#include <stdio.h>

void nm_torch_norm_add(nm_tensor_map *map, const nm_model *model, const nm_norm *norm, const char *name)
{
    static const char *const parts[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        char param[160];
        snprintf(param, sizeof param, "%s.%s", norm->site.name, parts[i]);
        nm_tensor_map_add(map, &nm_params_find(&model->params, param)->tensor, "%s.%s", name, parts[i]);
    }
}

static void map_linear(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, int32_t part, int32_t parts,
                       const char *name)
{
    nm_tensor_map_add_part(map, weight, part, parts, "%s.weight", name);
    nm_tensor_map_add_part(map, bias, part, parts, "%s.bias", name);
}

static void map_attention(nm_tensor_map *map, const nm_sublayer_attention *attention, const char *name)
{
    static const char *const projections[] = {"q_proj", "k_proj", "v_proj"};
    char at[128];
    bool cross = attention->kv_weight != NULL;
    for (int i = 0; i < 3; i++) {
        snprintf(at, sizeof at, "%s.%s", name, projections[i]);
        if (cross && i)
            map_linear(map, attention->kv_weight, attention->kv_bias, i - 1, 2, at);
        else
            map_linear(map, attention->in_weight, attention->in_bias, cross ? 0 : i, cross ? 1 : 3, at);
    }
    snprintf(at, sizeof at, "%s.out_proj", name);
    map_linear(map, attention->out_weight, attention->out_bias, 0, 1, at);
}

void nm_torch_layers_add(nm_tensor_map *map, const nm_model *model, const nm_stack *stack, const char *prefix)
{
    char at[64], name[128];
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        snprintf(at, sizeof at, "%s.layers.%d", prefix, i);
#define NAMED(part) (snprintf(name, sizeof name, "%s.%s", at, part), name)
        map_attention(map, &layer->self, NAMED("self_attn"));
        nm_torch_norm_add(map, model, layer->self.norm, NAMED("self_attn_layer_norm"));
        if (layer->cross.norm) {
            map_attention(map, &layer->cross, NAMED("encoder_attn"));
            nm_torch_norm_add(map, model, layer->cross.norm, NAMED("encoder_attn_layer_norm"));
        }
        map_linear(map, layer->ffn.in_weight, layer->ffn.in_bias, 0, 1, NAMED("fc1"));
        map_linear(map, layer->ffn.out_weight, layer->ffn.out_bias, 0, 1, NAMED("fc2"));
        nm_torch_norm_add(map, model, layer->ffn.norm, NAMED("final_layer_norm"));
#undef NAMED
    }
    if (stack->final_norm) {
        snprintf(name, sizeof name, "%s.layer_norm", prefix);
        nm_torch_norm_add(map, model, stack->final_norm, name);
    }
}
