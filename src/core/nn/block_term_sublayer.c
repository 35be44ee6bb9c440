#include "nn/sublayers.h"

static const nm_init xl_init = {NM_INIT_NORMAL, 0.02};

void nm_block_term_build(nm_stack *stack, int32_t layer, nm_params *params)
{
    const nm_stack_config *c = &stack->config;
    nm_sublayer_attention *self = &stack->layers[layer].self;
    const char *prefix = c->prefix;
    int32_t h = c->core_width, d = c->width;
    if (layer == 0) {
        stack->content_bias = nm_params_add(params, 1, h, xl_init, "%s.content.bias", prefix);
        stack->position_bias = nm_params_add(params, 1, h, xl_init, "%s.place.bias", prefix);
    }
    /* The authors' code defines N(0, 0.01) but does not apply it. With 1/h a core is initially a mean over
     * features. */
    nm_init core = {.kind = NM_INIT_CONSTANT, .scale = 1.0 / h};
    self->core = nm_params_add(params, c->cores, h, core, "%s.%d.self.core", prefix, layer);
    self->in_weight = nm_params_add(params, 3 * h, d, xl_init, "%s.%d.self.qkv.weight", prefix, layer);
    nm_params_mark_hidden(self->in_weight, (int32_t[NM_PARAM_BLOCKS]){h, h, h});
    self->position_weight = nm_params_add(params, h, d, xl_init, "%s.%d.self.place.weight", prefix, layer);
    nm_params_mark_hidden(self->position_weight, (int32_t[NM_PARAM_BLOCKS]){h});
    self->out_weight =
        nm_params_add(params, c->context * c->context, d, xl_init, "%s.%d.self.out.weight", prefix, layer);
    nm_params_keep_exact(self->core);
    nm_params_keep_exact(self->out_weight);
}

nm_tensor *nm_block_term_positions(nm_tape *tape, const nm_stack *stack)
{
    const nm_mat *positions = &stack->positions;
    nm_tensor *table = nm_tape_host(tape, sizeof *table);
    if (!table)
        return nm_tape_tensor(tape, 0, stack->config.width);
    *table = (nm_tensor){.data = positions->data, .rows = positions->rows, .cols = positions->cols};
    return nm_dropped(tape, table, stack->config.position_drop);
}

nm_tensor *nm_block_term_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                                 nm_tensor *h, nm_tensor *positions, const nm_packing *packing)
{
    nm_tensor *qkv = nm_linear(tape, h, self->in_weight, NULL, NM_ACT_NONE, 0);
    nm_tensor *p = nm_linear(tape, positions, self->position_weight, NULL, NM_ACT_NONE, 0);
    nm_block_term_params params = {self->out_weight, self->core, stack->content_bias, stack->position_bias};
    return nm_block_term_attention(tape, qkv, p, &params, packing, !stack->config.noncausal);
}
