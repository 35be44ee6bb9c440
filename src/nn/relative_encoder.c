#include "nn/relative_encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nn/positions.h"

typedef struct builder {
    const nm_stack_config *config;
    nm_params *params;
    const nm_options *options;
    nm_error *err;
} builder;

static nm_status add_norm(builder *to, const char *at, nm_norm **norm)
{
    const nm_stack_config *c = to->config;
    char name[96];
    snprintf(name, sizeof name, "%s.norm", at);
    const nm_norm_site place = {.name = name, .width = c->width, .groups = c->heads, .plan = c->plan};
    return nm_params_add_norm(to->params, c->norm, to->options, &place, norm, to->err);
}

static nm_init linear_init(int32_t fan_in)
{
    return (nm_init){NM_INIT_UNIFORM, 1 / sqrt((double)fan_in)};
}

static nm_status build_attention(builder *to, int32_t i, nm_relative_layer *layer)
{
    const nm_stack_config *c = to->config;
    int32_t d = c->width, size = d / c->heads;
    const nm_init bias = {NM_INIT_NORMAL, sqrt(2.0 / (c->heads + size))}; /* Xavier normal of [heads, size] */
    char at[64];
    snprintf(at, sizeof at, "%s.%d.self", c->prefix, i);
    NM_TRY(add_norm(to, at, &layer->norm));
    layer->qkv_weight = nm_params_add(to->params, 3 * d, d, linear_init(d), "%s.qkv.weight", at);
    layer->key_bias = nm_params_add(to->params, 1, d, bias, "%s.key_bias", at);
    layer->distance_bias = nm_params_add(to->params, 1, d, bias, "%s.distance_bias", at);
    return NM_OK;
}

static nm_status build_ffn(builder *to, int32_t i, nm_sublayer_ffn *ffn)
{
    const nm_stack_config *c = to->config;
    int32_t d = c->width, ff = c->ff;
    char at[64];
    snprintf(at, sizeof at, "%s.%d.ffn", c->prefix, i);
    NM_TRY(add_norm(to, at, &ffn->norm));
    ffn->in_weight = nm_params_add(to->params, ff, d, linear_init(d), "%s.in.weight", at);
    ffn->in_bias = nm_params_add(to->params, 1, ff, linear_init(d), "%s.in.bias", at);
    ffn->out_weight = nm_params_add(to->params, d, ff, linear_init(ff), "%s.out.weight", at);
    ffn->out_bias = nm_params_add(to->params, 1, d, linear_init(ff), "%s.out.bias", at);
    return NM_OK;
}

nm_status nm_relative_encoder_build(nm_relative_encoder *encoder, const nm_stack_config *config,
                                    nm_params *params, const nm_options *options, nm_error *err)
{
    *encoder = (nm_relative_encoder){.stack = {.config = *config},
                                     .layers = nm_allocate((size_t)config->layers * sizeof *encoder->layers)};
    builder to = {config, params, options, err};
    for (int32_t i = 0; i < config->layers; i++) {
        NM_TRY(build_attention(&to, i, &encoder->layers[i]));
        NM_TRY(build_ffn(&to, i, &encoder->layers[i].ffn));
    }
    return NM_OK;
}

nm_status nm_relative_encoder_ready(nm_relative_encoder *encoder, nm_backend *backend, int32_t longest,
                                    nm_error *err)
{
    const nm_stack_config *c = &encoder->stack.config;
    int32_t rows = 2 * longest, size = c->width / c->heads;
    encoder->table.zero_row = longest;
    return nm_positions_alloc(backend, NM_POSITIONS_RELATIVE, rows, size, &encoder->table.rows, err);
}

void nm_relative_encoder_release(nm_relative_encoder *encoder, nm_backend *backend)
{
    nm_positions_dealloc(backend, &encoder->table.rows);
    free(encoder->layers);
    *encoder = (nm_relative_encoder){0};
}

typedef struct layer_call {
    const nm_relative_encoder *encoder;
    const nm_relative_layer *layer;
    nm_tensor *x;
    nm_packing packing;
} layer_call;

static nm_tensor *layer_forward(nm_tape *tape, const void *context)
{
    const layer_call *call = context;
    const nm_stack *stack = &call->encoder->stack;
    const nm_stack_config *c = &stack->config;
    const nm_relative_layer *layer = call->layer;
    nm_tensor *h = nm_sublayer_before(tape, stack, layer->norm, call->x);
    h = nm_linear(tape, h, layer->qkv_weight, NULL, NM_ACT_NONE, 0);
    h = nm_relative_attention(tape, h, layer->key_bias, layer->distance_bias, &call->encoder->table,
                              &call->packing, c->heads, c->attention_drop);
    h = nm_residual(tape, call->x, h, 0);
    h = c->pre_norm ? h : nm_normalize(tape, layer->norm, h);
    return nm_ffn_forward(tape, stack, &layer->ffn, h);
}

nm_tensor *nm_relative_encoder_forward(nm_tape *tape, const nm_relative_encoder *encoder, nm_tensor *x,
                                       const nm_packing *packing)
{
    layer_call call = {.encoder = encoder, .x = x, .packing = *packing};
    for (int32_t i = 0; i < encoder->stack.config.layers; i++) {
        call.layer = &encoder->layers[i];
        call.x = nm_recomputed_segment(tape, layer_forward, &call, sizeof call);
    }
    return call.x;
}
