#include "nn/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/positions.h"
#include "nn/sublayers.h"

/* ---- initialization ----
 * Xavier normal and SmallInit: Nguyen and Salazar 2019, section 2.1 and table 2. RBN's scheme is fairseq's with PyTorch's
 * defaults in the feed-forward layers of the encoder. */

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

/* fairseq uses PyTorch's default for the biases of q, k and v. */
static nm_init attention_bias_init(const nm_stack_config *c)
{
    bool uniform = c->init == NM_SCHEME_FAIRSEQ || c->init == NM_SCHEME_RBN;
    return uniform ? (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(c->width)} : zeros;
}

/* Whether feed-forward layers have PyTorch's default initialization of linear layers. */
static bool is_torch_ffn(const nm_stack_config *c)
{
    return c->init == NM_SCHEME_TORCH || (c->init == NM_SCHEME_RBN && !c->decoder);
}

static nm_init ffn_init(const nm_stack_config *c, double fan_in, double fan_out)
{
    if (is_torch_ffn(c))
        return (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(fan_in)};
    if (c->init == NM_SCHEME_XL)
        return xl_init;
    bool uniform = c->init == NM_SCHEME_FAIRSEQ || c->init == NM_SCHEME_RBN;
    return uniform ? xavier_uniform(fan_in, fan_out, 1) : xavier_normal(fan_in, fan_out);
}

static nm_init ffn_bias_init(const nm_stack_config *c, double fan_in)
{
    return is_torch_ffn(c) ? (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(fan_in)} : zeros;
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
                             .activation = options->activation,
                             .norm = options->norm,
                             .final_norm = options->norm,
                             .plan = plan,
                             .prefix = prefix};
}

nm_status nm_stack_check_heads(const nm_stack_options *options, nm_error *err)
{
    if (options->width % options->heads == 0)
        return NM_OK;
    return nm_fail(err, NM_USAGE, "model.width = %lld is not a multiple of model.heads = %lld",
                   (long long)options->width, (long long)options->heads);
}

typedef struct builder {
    nm_stack *stack;
    nm_params *params;
    const nm_options *options;
    nm_error *err;
    int32_t layer;
} builder;

static nm_status add_norm(const builder *to, const char *type, const char *name, bool is_final,
                          nm_norm **norm)
{
    const nm_stack_config *c = &to->stack->config;
    nm_norm_site_kind kind = is_final && c->decoder         ? NM_SITE_BEFORE_OUTPUT
                             : is_final && c->feeds_decoder ? NM_SITE_ENCODER_FINAL
                                                            : NM_SITE_SUBLAYER;
    const nm_norm_site site = {
        .name = name, .width = c->width, .groups = c->heads, .plan = c->plan, .kind = kind};
    return nm_params_add_norm(to->params, type, to->options, &site, norm, to->err);
}

static nm_status build_attention(const builder *to, const char *sublayer, bool cross,
                                 nm_sublayer_attention *attention)
{
    const nm_stack_config *c = &to->stack->config;
    char at[64], name[96];
    snprintf(at, sizeof at, "%s.%d.%s", c->prefix, to->layer, sublayer);
    snprintf(name, sizeof name, "%s.norm", at);
    int32_t d = c->width;
    NM_TRY(add_norm(to, c->norm, name, false, &attention->norm));
    if (c->attention == NM_BLOCK_TERM_ATTENTION || c->attention == NM_RELATIVE_ATTENTION) {
        (c->attention == NM_RELATIVE_ATTENTION ? nm_relative_build
                                               : nm_block_term_build)(to->stack, to->layer, to->params);
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

static nm_status build_ffn(const builder *to, nm_sublayer_ffn *ffn)
{
    const nm_stack_config *c = &to->stack->config;
    char at[64], name[96];
    snprintf(at, sizeof at, "%s.%d.ffn", c->prefix, to->layer);
    snprintf(name, sizeof name, "%s.norm", at);
    /* In a post-norm decoder the norm of the last sublayer is the one before the output projection. */
    NM_TRY(add_norm(to, c->norm, name, !c->pre_norm && c->decoder && to->layer == c->layers - 1, &ffn->norm));
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
    builder to = {stack, params, options, err, 0};
    for (; to.layer < config->layers; to.layer++) {
        nm_layer *layer = &stack->layers[to.layer];
        NM_TRY(build_attention(&to, "self", false, &layer->self));
        if (config->decoder && !config->decoder_only)
            NM_TRY(build_attention(&to, "cross", true, &layer->cross));
        NM_TRY(build_ffn(&to, &layer->ffn));
    }
    if (!config->pre_norm || !config->final_norm)
        return NM_OK;
    char name[64];
    snprintf(name, sizeof name, "%s.final.norm", config->prefix);
    return add_norm(&to, config->final_norm, name, true, &stack->final_norm);
}

nm_status nm_stack_ready(nm_stack *stack, nm_backend *backend, int32_t longest, nm_error *err)
{
    const nm_stack_config *c = &stack->config;
    if (c->attention == NM_BLOCK_TERM_ATTENTION)
        return nm_positions_alloc(backend, NM_POSITIONS_REVERSED, c->context, c->width, &stack->positions,
                                  err);
    if (c->attention != NM_RELATIVE_ATTENTION)
        return NM_OK;
    stack->distances.zero_row = longest;
    return nm_positions_alloc(backend, NM_POSITIONS_RELATIVE, 2 * longest, c->width / c->heads,
                              &stack->distances.rows, err);
}

void nm_stack_release(nm_stack *stack, nm_backend *backend)
{
    nm_positions_dealloc(backend, &stack->positions);
    nm_positions_dealloc(backend, &stack->distances.rows);
    free(stack->layers);
    *stack = (nm_stack){0};
}

/* ---- folding ---- */

/* In post-norm the residual connection reads the norm, too, so the norm cannot be folded. */
static void fold_add_norm(const nm_stack *stack, nm_fold *fold, const char *option, nm_norm *norm,
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
            fold_add_norm(stack, fold, option, attention[a]->norm, attention[a]->in_weight,
                          attention[a]->in_bias);
        fold_add_norm(stack, fold, option, layer->ffn.norm, layer->ffn.in_weight, layer->ffn.in_bias);
    }
    if (stack->final_norm)
        nm_fold_add_site(fold, stack->final_norm, final_option);
    return stack->final_norm != NULL;
}

/* ---- forward ---- */

/* f = F(h), the output of a sublayer: after the residual connection, F's linear layers read h in the backward pass, and
 * nothing reads f. */
static void finish_sublayer(nm_tape *tape, nm_tensor *h, nm_tensor *f)
{
    nm_tape_keep_operand(tape, h);
    nm_tape_discard(tape, f);
}

/* f = F(h): output of a sublayer with the norm `norm` and the residual input *x; `next`: norm of the next sublayer. Sets *x to
 * the residual input of the next sublayer and returns the input of its function F. */
static nm_tensor *next_input(nm_tape *tape, const nm_stack *stack, nm_norm *norm, nm_norm *next,
                             nm_tensor **x, nm_tensor *h, nm_tensor *f, double drop)
{
    nm_tensor *sum;
    nm_tensor *y = nm_residual_normalize(tape, stack->config.pre_norm ? next : norm, *x, f, drop, &sum);
    finish_sublayer(tape, h, f);
    *x = stack->config.pre_norm ? sum : y;
    return y;
}

/* The output of a layer, from the output f = F(h) of its last sublayer. */
static nm_tensor *layer_output(nm_tape *tape, const nm_stack *stack, nm_norm *norm, nm_tensor *x,
                               nm_tensor *h, nm_tensor *f, double drop)
{
    nm_tensor *sum;
    nm_tensor *y = stack->config.pre_norm ? nm_residual(tape, x, f, drop)
                                          : nm_residual_normalize(tape, norm, x, f, drop, &sum);
    finish_sublayer(tape, h, f);
    return y;
}

typedef struct layer_call {
    const nm_stack *stack;
    int32_t layer;
    nm_tensor *x;
    nm_stack_attention attention;
} layer_call;

/* drop(f(W1 h + b1)). The linear kernel applies relu itself. */
static nm_tensor *activated_linear(nm_tape *tape, nm_tensor *h, const nm_sublayer_ffn *ffn,
                                   const nm_stack_config *c)
{
    static const nm_map_op ops[] = {[NM_ACTIVATION_GELU] = NM_MAP_GELU,
                                    [NM_ACTIVATION_GELU_TANH] = NM_MAP_GELU_TANH,
                                    [NM_ACTIVATION_SILU] = NM_MAP_SILU};
    if (c->activation == NM_ACTIVATION_RELU)
        return nm_linear(tape, h, ffn->in_weight, ffn->in_bias, NM_ACT_RELU, c->relu_drop);
    h = nm_linear(tape, h, ffn->in_weight, ffn->in_bias, NM_ACT_NONE, 0);
    return nm_activated(tape, h, ops[c->activation], c->relu_drop);
}

static nm_tensor *layer_forward(nm_tape *tape, const void *context)
{
    const layer_call *call = context;
    const nm_stack *stack = call->stack;
    const nm_stack_config *c = &stack->config;
    const nm_layer *layer = &stack->layers[call->layer];
    const nm_sublayer_ffn *ffn = &layer->ffn;
    nm_tensor *x = call->x, *f;

    /* TENER has no dropout on the output of attention. */
    double attention_drop = c->attention == NM_RELATIVE_ATTENTION ? 0 : c->drop;
    nm_tensor *h = c->pre_norm ? nm_normalize(tape, layer->self.norm, x) : x;
    f = call->attention.self(tape, stack, call->layer, h, call->attention.context);
    h = next_input(tape, stack, layer->self.norm, layer->cross.norm ? layer->cross.norm : ffn->norm, &x, h, f,
                   attention_drop);

    if (layer->cross.norm) {
        f = call->attention.cross(tape, stack, call->layer, h, call->attention.context);
        h = next_input(tape, stack, layer->cross.norm, ffn->norm, &x, h, f, c->drop);
    }

    nm_tensor *hidden = activated_linear(tape, h, ffn, c);
    f = nm_linear(tape, hidden, ffn->out_weight, ffn->out_bias, NM_ACT_NONE, 0);
    nm_tape_keep_operand(tape, hidden);
    return layer_output(tape, stack, ffn->norm, x, h, f, c->drop);
}

nm_tensor *nm_stack_forward_with(nm_tape *tape, const nm_stack *stack, nm_tensor *x,
                                 const nm_stack_attention *attention)
{
    layer_call call = {.stack = stack, .x = x, .attention = *attention};
    for (; call.layer < stack->config.layers; call.layer++)
        call.x = nm_recomputed_segment(tape, layer_forward, &call, sizeof call);
    return stack->final_norm ? nm_normalize(tape, stack->final_norm, call.x) : call.x;
}

typedef struct attention_inputs {
    nm_packing packing, memory_packing;
    nm_tensor *memory, *positions;
    const nm_alignment_guide *guide;
} attention_inputs;

/* Keys are the columns from k_first of their tensor, followed by the values. The scale is 1/sqrt(width of a value head) even if
 * keys have another width, as in declare-lab's classifier. */
static nm_attention_shape attention_shape(const nm_stack_config *c, int32_t key_columns, int32_t k_first,
                                          bool causal)
{
    return (nm_attention_shape){.key_width = key_columns,
                                .value_width = c->width,
                                .k_first = k_first,
                                .v_first = k_first + key_columns,
                                .heads = c->heads,
                                .causal = causal,
                                .scale = 1 / sqrt((double)c->width / c->heads)};
}

static nm_tensor *self_attention(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                                 const void *context)
{
    const attention_inputs *in = context;
    const nm_stack_config *c = &stack->config;
    const nm_sublayer_attention *self = &stack->layers[layer].self;
    if (c->attention == NM_BLOCK_TERM_ATTENTION)
        return nm_block_term_forward(tape, stack, self, h, in->positions, &in->packing);
    if (c->attention == NM_RELATIVE_ATTENTION)
        return nm_relative_forward(tape, stack, self, h, &in->packing);
    nm_tensor *qkv = nm_linear(tape, h, self->in_weight, self->in_bias, NM_ACT_NONE, 0);
    const nm_attention_shape shape = attention_shape(c, key_width(c), key_width(c), c->decoder);
    h = nm_attention(tape, qkv, qkv, &shape, &in->packing, &in->packing, c->attention_drop);
    nm_tape_keep_operand(tape, qkv);
    return nm_linear(tape, h, self->out_weight, self->out_bias, NM_ACT_NONE, 0);
}

static nm_tensor *cross_attention(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                                  const void *context)
{
    const attention_inputs *in = context;
    const nm_stack_config *c = &stack->config;
    const nm_sublayer_attention *cross = &stack->layers[layer].cross;
    nm_tensor *q = nm_linear(tape, h, cross->in_weight, cross->in_bias, NM_ACT_NONE, 0);
    nm_tensor *kv = nm_linear(tape, in->memory, cross->kv_weight, cross->kv_bias, NM_ACT_NONE, 0);
    const nm_attention_shape shape = attention_shape(c, c->width, 0, false);
    const bool guided = in->guide && in->guide->layer == layer;
    if (guided)
        nm_guided_attention(tape, q, kv, &shape, &in->packing, &in->memory_packing, in->guide);
    h = nm_attention(tape, q, kv, &shape, &in->packing, &in->memory_packing, c->attention_drop);
    if (!guided) { /* guided attention reads them in float */
        nm_tape_keep_operand(tape, q);
        nm_tape_keep_operand(tape, kv);
    }
    return nm_linear(tape, h, cross->out_weight, cross->out_bias, NM_ACT_NONE, 0);
}

nm_tensor *nm_stack_forward(nm_tape *tape, const nm_stack *stack, nm_tensor *x, const nm_packing *packing,
                            nm_tensor *memory, const nm_packing *memory_packing,
                            const nm_alignment_guide *guide)
{
    attention_inputs *in = nm_tape_host(tape, sizeof *in);
    if (!in)
        return x;
    *in = (attention_inputs){.packing = *packing, .memory = memory, .guide = guide};
    if (memory)
        in->memory_packing = *memory_packing;
    if (stack->config.attention == NM_BLOCK_TERM_ATTENTION)
        in->positions = nm_block_term_positions(tape, stack);
    return nm_stack_forward_with(tape, stack, x, &(nm_stack_attention){self_attention, cross_attention, in});
}
