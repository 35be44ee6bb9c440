#include "nn/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- initialization: Nguyen and Salazar 2019, section 2.1 and table 2; fairseq; RBN's encoder feed-forward;
 * PyTorch's own layers as they come ---- */

static const nm_init zeros = {NM_INIT_CONSTANT, 0}, xl_init = {NM_INIT_NORMAL, 0.02};

static nm_init xavier_normal(double fan_in, double fan_out)
{
    return (nm_init){.kind = NM_INIT_NORMAL, .scale = sqrt(2 / (fan_in + fan_out))};
}

static nm_init xavier_uniform(double fan_in, double fan_out, double gain)
{
    return (nm_init){.kind = NM_INIT_UNIFORM, .scale = gain * sqrt(6 / (fan_in + fan_out))};
}

static int32_t key_width(const nm_stack_config *c)
{
    return c->key_width ? c->key_width : c->width;
}

static nm_init attention_init(const nm_stack_config *c, bool output)
{
    switch (c->init) {
    case NM_SCHEME_TORCH:
        return output ? (nm_init){NM_INIT_UNIFORM, 1 / sqrt(c->width)}
                      : xavier_uniform(c->width, key_width(c), 1);
    case NM_SCHEME_XAVIER_NORMAL:
        return xavier_normal(c->width, c->width);
    case NM_SCHEME_SMALL:
        return xavier_normal(c->width, 4 * c->width);
    case NM_SCHEME_XL:
        return xl_init;
    default:
        return xavier_uniform(c->width, c->width, output ? 1 : sqrt(0.5));
    }
}

/* fairseq leaves the q, k, v biases at its framework's default */
static nm_init attention_bias_init(const nm_stack_config *c)
{
    bool uniform = c->init == NM_SCHEME_FAIRSEQ || c->init == NM_SCHEME_RBN;
    return uniform ? (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(c->width)} : zeros;
}

static bool default_linear(const nm_stack_config *c)
{
    return c->init == NM_SCHEME_TORCH || (c->init == NM_SCHEME_RBN && !c->decoder);
}

static nm_init ffn_init(const nm_stack_config *c, double fan_in, double fan_out)
{
    if (default_linear(c))
        return (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(fan_in)};
    if (c->init == NM_SCHEME_XL)
        return xl_init;
    bool uniform = c->init == NM_SCHEME_FAIRSEQ || c->init == NM_SCHEME_RBN;
    return uniform ? xavier_uniform(fan_in, fan_out, 1) : xavier_normal(fan_in, fan_out);
}

static nm_init ffn_bias_init(const nm_stack_config *c, double fan_in)
{
    return default_linear(c) ? (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(fan_in)} : zeros;
}

/* ---- building ---- */

nm_stack_config nm_stack_configure(const nm_stack_options *options, nm_norm_plan plan, const char *prefix)
{
    return (nm_stack_config){.width = (int32_t)options->width,
                             .ff = (int32_t)options->ff,
                             .heads = (int32_t)options->heads,
                             .pre_norm = options->norm_position == NM_PRE_NORM,
                             .drop = options->dropout,
                             .attention_drop = options->attention_dropout,
                             .relu_drop = options->relu_dropout,
                             .norm = options->norm,
                             .final_norm = options->norm,
                             .plan = plan,
                             .prefix = prefix};
}

nm_status nm_stack_check_heads(const nm_stack_options *options, nm_error *err)
{
    if (options->width % options->heads == 0)
        return NM_OK;
    return nm_fail(err, NM_USAGE, "model.width = %lld is no multiple of model.heads = %lld",
                   (long long)options->width, (long long)options->heads);
}

typedef struct builder {
    nm_stack *stack;
    const nm_stack_config *config;
    nm_params *params;
    const nm_options *options;
    nm_error *err;
    int layer;
} builder;

/* final: the norm behind the last layer; last: in post-norm the last sublayer's norm plays that part */
static nm_status add_norm(builder *to, const char *type, const char *place_name, bool final, bool last,
                          nm_norm **norm)
{
    const nm_stack_config *c = to->config;
    nm_norm_site_kind kind = c->decoder && (final || last) ? NM_SITE_BEFORE_OUTPUT
                             : final && c->feeds_decoder   ? NM_SITE_ENCODER_FINAL
                                                           : NM_SITE_SUBLAYER;
    nm_norm_site place = {
        .name = place_name, .width = c->width, .groups = c->heads, .plan = c->plan, .kind = kind};
    return nm_params_add_norm(to->params, type, to->options, &place, norm, to->err);
}

static nm_status build_attention(builder *to, const char *part, bool cross, nm_sublayer_attention *attention)
{
    const nm_stack_config *c = to->config;
    char at[64], name[96];
    snprintf(at, sizeof at, "%s.%d.%s", c->prefix, to->layer, part);
    snprintf(name, sizeof name, "%s.norm", at);
    int32_t d = c->width;
    NM_TRY(add_norm(to, c->norm, name, false, false, &attention->norm));
    if (c->cores) {
        nm_block_term_build(to->stack, to->layer, attention, to->params);
        return NM_OK;
    }
    int32_t rows = cross ? d : 2 * key_width(c) + d;
    const char *in = cross ? "q" : "qkv";
    attention->in_weight =
        nm_params_add(to->params, rows, d, attention_init(c, false), "%s.%s.weight", at, in);
    attention->in_bias = nm_params_add(to->params, 1, rows, attention_bias_init(c), "%s.%s.bias", at, in);
    if (cross) {
        attention->kv_weight =
            nm_params_add(to->params, 2 * d, d, attention_init(c, false), "%s.kv.weight", at);
        attention->kv_bias = nm_params_add(to->params, 1, 2 * d, attention_bias_init(c), "%s.kv.bias", at);
    }
    attention->out_weight = nm_params_add(to->params, d, d, attention_init(c, true), "%s.out.weight", at);
    attention->out_bias = nm_params_add(to->params, 1, d, zeros, "%s.out.bias", at);
    return NM_OK;
}

static nm_status build_ffn(builder *to, nm_sublayer_ffn *ffn)
{
    const nm_stack_config *c = to->config;
    char at[64], name[96];
    snprintf(at, sizeof at, "%s.%d.ffn", c->prefix, to->layer);
    snprintf(name, sizeof name, "%s.norm", at);
    NM_TRY(add_norm(to, c->norm, name, false, !c->pre_norm && to->layer == c->layers - 1, &ffn->norm));
    int32_t d = c->width, ff = c->ff;
    ffn->in_weight = nm_params_add(to->params, ff, d, ffn_init(c, d, ff), "%s.in.weight", at);
    ffn->in_bias = nm_params_add(to->params, 1, ff, ffn_bias_init(c, d), "%s.in.bias", at);
    ffn->out_weight = nm_params_add(to->params, d, ff, ffn_init(c, ff, d), "%s.out.weight", at);
    ffn->out_bias = nm_params_add(to->params, 1, d, ffn_bias_init(c, ff), "%s.out.bias", at);
    return NM_OK;
}

nm_status nm_stack_build(nm_stack *stack, const nm_stack_config *config, nm_params *params,
                         const nm_options *options, nm_error *err)
{
    *stack = (nm_stack){.config = *config, .layers = nm_allocate((size_t)config->layers * sizeof(nm_layer))};
    builder to = {stack, config, params, options, err, 0};
    for (; to.layer < config->layers; to.layer++) {
        nm_layer *layer = &stack->layers[to.layer];
        NM_TRY(build_attention(&to, "self", false, &layer->self));
        if (config->decoder && !config->alone)
            NM_TRY(build_attention(&to, "cross", true, &layer->cross));
        NM_TRY(build_ffn(&to, &layer->ffn));
    }
    char name[64];
    snprintf(name, sizeof name, "%s.final.norm", config->prefix);
    return config->pre_norm ? add_norm(&to, config->final_norm, name, true, false, &stack->final_norm)
                            : NM_OK;
}

void nm_stack_release(nm_stack *stack)
{
    free(stack->layers);
    *stack = (nm_stack){0};
}

/* ---- what reads a norm ---- */

/* In post-norm the residual sum reads it too. */
static void list_site(const nm_stack *stack, nm_fold *fold, const char *option, nm_norm *norm,
                      nm_tensor *weight, nm_tensor *bias)
{
    nm_fold_add_site(fold, norm, option);
    if (stack->config.pre_norm)
        nm_fold_add_reader(fold, weight, bias);
}

bool nm_stack_fold(const nm_stack *stack, nm_fold *fold, const char *option, const char *final_option)
{
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        const nm_sublayer_attention *attention[] = {&layer->self, &layer->cross};
        for (int a = 0; a < 2 && attention[a]->norm; a++)
            list_site(stack, fold, option, attention[a]->norm, attention[a]->in_weight,
                      attention[a]->in_bias);
        list_site(stack, fold, option, layer->ffn.norm, layer->ffn.in_weight, layer->ffn.in_bias);
    }
    if (stack->final_norm)
        nm_fold_add_site(fold, stack->final_norm, final_option);
    return stack->final_norm != NULL;
}

/* ---- running ---- */

nm_tensor *nm_sublayer_before(nm_tape *tape, const nm_stack *stack, nm_norm *norm, nm_tensor *x)
{
    return stack->config.pre_norm ? nm_normalize(tape, norm, x) : x;
}

nm_tensor *nm_sublayer_after(nm_tape *tape, const nm_stack *stack, nm_norm *norm, nm_tensor *x, nm_tensor *f)
{
    nm_tensor *sum = nm_residual(tape, x, f, stack->config.drop);
    return stack->config.pre_norm ? sum : nm_normalize(tape, norm, sum);
}

nm_tensor *nm_ffn_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_ffn *ffn, nm_tensor *x)
{
    nm_tensor *h = nm_sublayer_before(tape, stack, ffn->norm, x);
    h = nm_linear(tape, h, ffn->in_weight, ffn->in_bias, NM_ACT_RELU, stack->config.relu_drop);
    h = nm_linear(tape, h, ffn->out_weight, ffn->out_bias, NM_ACT_NONE, 0);
    return nm_sublayer_after(tape, stack, ffn->norm, x, h);
}

static nm_tensor *self_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                               nm_tensor *x, const nm_packing *packing, nm_tensor *places)
{
    const nm_stack_config *c = &stack->config;
    nm_tensor *h = nm_sublayer_before(tape, stack, self->norm, x);
    if (c->cores) {
        h = nm_block_term_forward(tape, stack, self, h, places, packing);
        return nm_sublayer_after(tape, stack, self->norm, x, h);
    }
    nm_tensor *qkv = nm_linear(tape, h, self->in_weight, self->in_bias, NM_ACT_NONE, 0);
    /* the scale is that of the values' heads, also where keys have another size (declare-lab's classifier) */
    const nm_attention_shape shape = {.key_width = key_width(c),
                                      .value_width = c->width,
                                      .k_first = key_width(c),
                                      .v_first = 2 * key_width(c),
                                      .heads = c->heads,
                                      .causal = c->decoder,
                                      .scale = 1 / sqrt((double)c->width / c->heads)};
    h = nm_attention_of(tape, qkv, qkv, &shape, packing, packing, c->attention_drop);
    h = nm_linear(tape, h, self->out_weight, self->out_bias, NM_ACT_NONE, 0);
    return nm_sublayer_after(tape, stack, self->norm, x, h);
}

static nm_tensor *cross_forward(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *cross,
                                nm_tensor *x, const nm_packing *packing, nm_tensor *memory,
                                const nm_packing *memory_packing)
{
    const nm_stack_config *c = &stack->config;
    nm_tensor *h = nm_sublayer_before(tape, stack, cross->norm, x);
    nm_tensor *q = nm_linear(tape, h, cross->in_weight, cross->in_bias, NM_ACT_NONE, 0);
    nm_tensor *kv = nm_linear(tape, memory, cross->kv_weight, cross->kv_bias, NM_ACT_NONE, 0);
    h = nm_attention(tape, q, kv, c->width, 0, c->width, packing, memory_packing, c->heads, false,
                     c->attention_drop);
    h = nm_linear(tape, h, cross->out_weight, cross->out_bias, NM_ACT_NONE, 0);
    return nm_sublayer_after(tape, stack, cross->norm, x, h);
}

typedef struct layer_call {
    const nm_stack *stack;
    const nm_layer *layer;
    nm_tensor *x, *memory, *places;
    nm_packing packing, memory_packing;
} layer_call;

static nm_tensor *layer_forward(nm_tape *tape, const void *context)
{
    const layer_call *c = context;
    const nm_stack_config *config = &c->stack->config;
    nm_tensor *x = self_forward(tape, c->stack, &c->layer->self, c->x, &c->packing, c->places);
    if (config->decoder && !config->alone)
        x = cross_forward(tape, c->stack, &c->layer->cross, x, &c->packing, c->memory, &c->memory_packing);
    return nm_ffn_forward(tape, c->stack, &c->layer->ffn, x);
}

nm_tensor *nm_stack_forward(nm_tape *tape, const nm_stack *stack, nm_tensor *x, const nm_packing *packing,
                            nm_tensor *memory, const nm_packing *memory_packing)
{
    layer_call call = {.stack = stack,
                       .x = x,
                       .memory = memory,
                       .places = stack->config.cores ? nm_block_term_places(tape, stack) : NULL,
                       .packing = *packing};
    if (memory)
        call.memory_packing = *memory_packing;
    for (int32_t i = 0; i < stack->config.layers; i++) {
        call.layer = &stack->layers[i];
        call.x = nm_recomputed_segment(tape, layer_forward, &call, sizeof call);
    }
    return stack->final_norm ? nm_normalize(tape, stack->final_norm, call.x) : call.x;
}
