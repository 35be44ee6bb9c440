/* The block-term attention sublayer of the tensorized Transformer (Ma et al. 2019): one "head" of width h; what a query
 * finds is mapped to d features by a matrix over the pairs of places of a segment. */
#include "nn/transformer.h"

static const nm_init xl_init = {NM_INIT_NORMAL, 0.02};

void nm_block_term_build(nm_stack *stack, int layer, nm_sublayer_attention *self, nm_params *params)
{
    const nm_stack_config *c = &stack->config;
    const char *prefix = c->prefix;
    int32_t h = c->core_width, d = c->width;
    if (layer == 0) {
        stack->content = nm_params_add(params, 1, h, xl_init, "%s.content.bias", prefix);
        stack->place = nm_params_add(params, 1, h, xl_init, "%s.place.bias", prefix);
    }
    /* The program means N(0, 0.01) but never gets there: 1/h begins as a mean over features. */
    nm_init core = {.kind = NM_INIT_CONSTANT, .scale = 1.0 / h};
    self->core = nm_params_add(params, c->cores, h, core, "%s.%d.self.core", prefix, layer);
    self->in_weight = nm_params_add(params, 3 * h, d, xl_init, "%s.%d.self.qkv.weight", prefix, layer);
    self->place_weight = nm_params_add(params, h, d, xl_init, "%s.%d.self.place.weight", prefix, layer);
    self->out_weight =
        nm_params_add(params, c->segment * c->segment, d, xl_init, "%s.%d.self.out.weight", prefix, layer);
    nm_params_keep_exact(self->core);
    nm_params_keep_exact(self->out_weight);
}

nm_tensor *nm_block_term_places(nm_tape *tape, const nm_stack *stack)
{
    nm_tensor *table = nm_tape_host(tape, sizeof *table);
    if (!table)
        return nm_tape_tensor(tape, 0, stack->config.width);
    *table = (nm_tensor){.data = stack->places.data, .rows = stack->places.rows, .cols = stack->places.cols};
    return nm_dropped(tape, table, stack->config.place_drop);
}

nm_tensor *nm_block_term_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                                 nm_tensor *h, nm_tensor *places, const nm_packing *packing)
{
    nm_tensor *qkv = nm_linear(tape, h, self->in_weight, NULL, NM_ACT_NONE, 0);
    nm_tensor *p = nm_linear(tape, places, self->place_weight, NULL, NM_ACT_NONE, 0);
    nm_block_term_maps maps = {self->out_weight, self->core, stack->content, stack->place};
    return nm_block_term_attention(tape, qkv, p, &maps, packing, !stack->config.sees_ahead);
}
