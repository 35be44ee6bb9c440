#include "nn/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/sublayers.h"

nm_stack_config nm_stack_configure(const nm_stack_options *options, nm_norm_plan plan, const char *prefix)
{
    return (nm_stack_config){.width = (int32_t)options->width,
                             .ff = (int32_t)options->ff,
                             .heads = (int32_t)options->heads,
                             .key_value_heads = (int32_t)options->key_value_heads,
                             .value_width = (int32_t)(options->heads * options->head_width),
                             .position = options->norm_position,
                             .post_layers = (int32_t)options->post_layers,
                             .residual = options->residual,
                             .layer_scale = options->layer_scale,
                             .drop = options->dropout,
                             .attention_drop = options->attention_dropout,
                             .relu_drop = options->relu_dropout,
                             .activation = options->activation,
                             .gated = options->gated,
                             .bias = options->bias,
                             .rope = options->rope,
                             .rope_angles = {options->rope_base, options->rope_scaling, options->rope_factor,
                                             options->rope_low, options->rope_high, options->rope_original},
                             .qk_norm = options->qk_norm,
                             .v_norm = options->v_norm,
                             .qk_norm_after_rope = options->qk_norm_after_rope,
                             .norm = options->norm,
                             .final_norm = options->norm,
                             .embedding_norm =
                                 nm_stack_has_embedding_norm(options) ? options->embedding_norm : NULL,
                             .embedding_drop = options->embedding_dropout,
                             .qk_norm_type = options->qk_norm_type,
                             .plan = plan,
                             .prefix = prefix};
}

bool nm_stack_has_embedding_norm(const nm_stack_options *options)
{
    return strcmp(options->embedding_norm, nm_norm_none.name) != 0;
}

double nm_stack_embedding_drop(const nm_stack_options *options)
{
    return nm_stack_has_embedding_norm(options) ? 0 : options->embedding_dropout;
}

static const nm_stack_options *options_of(const nm_options *options)
{
    return nm_options_find(options, "model"); /* the first member of every configuration */
}

bool nm_stack_normalizes_heads(const nm_options *options)
{
    const nm_stack_options *c = options_of(options);
    return c->qk_norm != NM_HEAD_NORM_NONE || c->v_norm != NM_HEAD_NORM_NONE;
}

bool nm_stack_orders_rope(const nm_options *options)
{
    const nm_stack_options *c = options_of(options);
    return c->qk_norm != NM_HEAD_NORM_NONE && c->rope != NM_ROPE_NONE;
}

bool nm_stack_has_final_norm(const nm_options *options)
{
    const nm_stack_options *c = options_of(options);
    return c->norm_position != NM_POST_NORM || c->residual == NM_RESIDUAL_DUAL;
}

static nm_status check_heads(const nm_stack_options *c, nm_error *err)
{
    if (!c->head_width && c->width % c->heads)
        return nm_fail(err, NM_USAGE, "model.width = %lld is not a multiple of model.heads = %lld",
                       (long long)c->width, (long long)c->heads);
    if (c->key_value_heads && c->heads % c->key_value_heads)
        return nm_fail(err, NM_USAGE, "model.heads = %lld is not a multiple of model.key_value_heads = %lld",
                       (long long)c->heads, (long long)c->key_value_heads);
    return NM_OK;
}

const char *nm_stack_decoder_norm(const char *norm)
{
    const nm_norm_type *type = nm_norm_type_find(norm);
    return type && type->traits & NM_USES_BATCH ? "layer" : norm;
}

nm_status nm_stack_check(const nm_stack_options *c, bool has_heads, nm_error *err)
{
    bool post = c->norm_position == NM_POST_NORM;
    bool input = c->norm_position == NM_PRE_NORM || c->norm_position == NM_SANDWICH_NORM ||
                 c->norm_position == NM_SUB_NORM;
    if (has_heads)
        NM_TRY(check_heads(c, err));
#define WORD(constant, word) [constant] = word,
    static const char *const forms[] = {NM_RESIDUAL_FORMS(WORD)};
#undef WORD
    bool needs_post = c->residual == NM_RESIDUAL_DEEPNORM || c->residual == NM_RESIDUAL_DUAL ||
                      c->residual == NM_RESIDUAL_ADMIN;
    if (needs_post && !post)
        return nm_fail(err, NM_USAGE, "model.residual = %s needs model.norm_position = post",
                       forms[c->residual]);
    if (c->residual == NM_RESIDUAL_DEPTH_SCALED && !input)
        return nm_fail(err, NM_USAGE,
                       "model.residual = depth-scaled scales the norms before sublayers and needs "
                       "model.norm_position = pre, sandwich or sub");
    return NM_OK;
}

char *nm_stack_init_warning(const nm_options *options)
{
    static const struct {
        nm_residual_form form;
        const char *residual, *init, *alternative;
    } pairs[] = {{NM_RESIDUAL_DEEPNORM, "deepnorm", "deepnorm", "torchscale"},
                 {NM_RESIDUAL_ADMIN, "admin", "admin", "admin"}};
    char *init = nm_options_get(options, "model.init"), *warning = NULL;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (options_of(options)->residual == pairs[i].form &&
            !(init && (!strcmp(init, pairs[i].init) || !strcmp(init, pairs[i].alternative))))
            warning =
                nm_format("model.residual = %s without its initialization: deep models may not train; %s%s",
                          pairs[i].residual, init ? "set model.init = " : "this model has no model.init",
                          init ? pairs[i].init : "");
    free(init);
    return warning;
}

nm_status nm_stack_require_plain(const nm_stack_options *c, const char *what, nm_error *err)
{
    const struct {
        bool plain;
        const char *setting;
    } parts[] = {{c->norm_position <= NM_POST_NORM, "model.norm_position other than pre and post"},
                 {c->residual == NM_RESIDUAL_PLAIN, "model.residual other than plain"},
                 {!nm_stack_has_embedding_norm(c), "model.embedding_norm"},
                 {!c->gated, "model.gated"},
                 {c->bias, "model.bias = false"},
                 {!c->key_value_heads || c->key_value_heads == c->heads, "model.key_value_heads"},
                 {!c->head_width || c->head_width * c->heads == c->width, "model.head_width"},
                 {c->rope == NM_ROPE_NONE, "model.rope"},
                 {c->qk_norm == NM_HEAD_NORM_NONE, "model.qk_norm"},
                 {c->v_norm == NM_HEAD_NORM_NONE, "model.v_norm"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].plain)
            return nm_fail(err, NM_UNSUPPORTED, "%s has no %s", what, parts[i].setting);
    return NM_OK;
}

/* Number of first layers with post-norm. */
static int32_t post_layers(const nm_stack_config *c)
{
    if (c->position == NM_POST_NORM)
        return c->layers;
    if (c->position != NM_MIX_NORM)
        return 0;
    return c->post_layers ? c->post_layers : c->layers > 4 ? c->layers / 4 : 1;
}

static bool is_post(const nm_stack_config *c, int32_t layer)
{
    return layer < post_layers(c);
}

/* Whether a norm precedes the sublayers. */
static bool normalizes_input(const nm_stack_config *c, int32_t layer)
{
    return c->position != NM_INSIDE_NORM && !is_post(c, layer);
}

typedef struct builder {
    nm_stack *stack;
    nm_params *params;
    const nm_options *options;
    nm_error *err;
    int32_t layer;
    nm_depth_factors factors;
} builder;

static nm_status add_norm_of(const builder *to, const char *type, const char *name, int32_t width,
                             nm_norm_site_kind kind, nm_norm **norm)
{
    const nm_stack_config *c = &to->stack->config;
    int32_t groups = width == c->width || (width > c->width && width % c->heads == 0) ? c->heads : 1;
    const nm_norm_site site = {.name = name,
                               .width = width,
                               .groups = groups,
                               .rows = width >= c->width ? c->sequence_rows : 0, /* not of heads */
                               .plan = c->plan,
                               .kind = kind,
                               .sequences = !c->sequence_rows};
    return nm_params_add_norm(to->params, type, to->options, &site, norm, to->err);
}

/* The norm "PREFIX.LAYER.SUBLAYER.PART.norm"; part NULL: without that part. */
static nm_status add_inner_norm(const builder *to, const char *type, const char *sublayer, const char *part,
                                int32_t width, nm_norm **norm)
{
    const nm_stack_config *c = &to->stack->config;
    char name[96];
    snprintf(name, sizeof name, "%s.%d.%s.%s%snorm", c->prefix, to->layer, sublayer, part ? part : "",
             part ? "." : "");
    /* In a post-norm decoder the norm of the last sublayer is the one before the output projection. */
    bool before_output = !part && !strcmp(sublayer, "ffn") && c->decoder && !c->final_norm &&
                         to->layer == c->layers - 1 && is_post(c, to->layer);
    return add_norm_of(to, type, name, width, before_output ? NM_SITE_BEFORE_OUTPUT : NM_SITE_SUBLAYER, norm);
}

/* Norms of a sublayer, and the learned numbers of its residual connection. */
static nm_status build_common(const builder *to, const char *name, nm_sublayer *sublayer)
{
    const nm_stack_config *c = &to->stack->config;
    const char *prefix = c->prefix;
    NM_TRY(add_inner_norm(to, c->norm, name, NULL, c->width, &sublayer->norm));
    if (c->position == NM_SANDWICH_NORM)
        NM_TRY(add_inner_norm(to, c->norm, name, "output", c->width, &sublayer->output_norm));
    const nm_init initial = {NM_INIT_CONSTANT, c->layer_scale}, zero = {NM_INIT_CONSTANT, 0},
                  one = {NM_INIT_CONSTANT, 1};
    if (c->residual == NM_RESIDUAL_LAYERSCALE)
        sublayer->scale =
            nm_params_add(to->params, 1, c->width, initial, "%s.%d.%s.scale", prefix, to->layer, name);
    if (c->residual == NM_RESIDUAL_SKIPINIT)
        sublayer->scale = nm_params_add(to->params, 1, 1, zero, "%s.%d.%s.scale", prefix, to->layer, name);
    if (c->residual == NM_RESIDUAL_REZERO)
        sublayer->scale = to->stack->layers[to->layer].scale;
    if (c->residual == NM_RESIDUAL_ADMIN)
        sublayer->omega =
            nm_params_add(to->params, 1, c->width, one, "%s.%d.%s.omega", prefix, to->layer, name);
    return NM_OK;
}

static nm_status build_attention(const builder *to, const char *name, bool cross,
                                 nm_sublayer_attention *attention)
{
    const nm_stack_config *c = &to->stack->config;
    NM_TRY(build_common(to, name, &attention->common));
    if (c->attention == NM_BLOCK_TERM_ATTENTION)
        nm_block_term_build(to->stack, to->layer, to->params);
    else if (c->attention == NM_RELATIVE_ATTENTION)
        nm_relative_build(to->stack, to->layer, to->params);
    else
        nm_softmax_build(to->stack, to->layer, cross, to->params, &to->factors);
    if (c->attention != NM_SOFTMAX_ATTENTION)
        return NM_OK;
    nm_head_widths w = nm_stack_head_widths(c, cross);
    bool together = c->qk_norm == NM_HEAD_NORM_FULL;
    if (c->qk_norm != NM_HEAD_NORM_NONE) {
        NM_TRY(add_inner_norm(to, c->qk_norm_type, name, "query", w.key * (together ? w.heads : 1),
                              &attention->query_norm));
        NM_TRY(add_inner_norm(to, c->qk_norm_type, name, "key", w.key * (together ? w.groups : 1),
                              &attention->key_norm));
    }
    if (c->v_norm != NM_HEAD_NORM_NONE)
        NM_TRY(add_inner_norm(to, c->qk_norm_type, name, "value", w.value, &attention->value_norm));
    if (c->position == NM_SUB_NORM && !cross)
        NM_TRY(add_inner_norm(to, c->norm, name, "inner", w.heads * w.value, &attention->inner_norm));
    return NM_OK;
}

static nm_status build_ffn(const builder *to, nm_sublayer_ffn *ffn)
{
    const nm_stack_config *c = &to->stack->config;
    char at[64];
    snprintf(at, sizeof at, "%s.%d.ffn", c->prefix, to->layer);
    NM_TRY(build_common(to, "ffn", &ffn->common));
    int32_t d = c->width, ff = c->ff, rows = c->gated ? 2 * ff : ff;
    double factor = to->factors.projected, bias_factor = to->factors.biases ? factor : 1;
    nm_params *params = to->params;
    nm_init in = nm_init_ffn(c->init, c->decoder, d, ff), out = nm_init_ffn(c->init, c->decoder, ff, d);
    nm_init in_bias = nm_init_ffn_bias(c->init, c->decoder, d),
            out_bias = nm_init_ffn_bias(c->init, c->decoder, ff);
    ffn->in_weight = nm_params_add(params, rows, d, nm_init_scaled(in, factor), "%s.in.weight", at);
    nm_params_mark_hidden(ffn->in_weight, (int32_t[NM_PARAM_BLOCKS]){ff, rows - ff});
    if (c->bias)
        ffn->in_bias = nm_params_add(params, 1, rows, nm_init_scaled(in_bias, bias_factor), "%s.in.bias", at);
    ffn->out_weight = nm_params_add(params, d, ff, nm_init_scaled(out, factor), "%s.out.weight", at);
    nm_params_mark_hidden(ffn->out_weight, (int32_t[NM_PARAM_BLOCKS]){d});
    if (c->bias)
        ffn->out_bias = nm_params_add(params, 1, d, nm_init_scaled(out_bias, bias_factor), "%s.out.bias", at);
    if (c->position == NM_SUB_NORM)
        NM_TRY(add_inner_norm(to, c->norm, "ffn", "inner", ff, &ffn->inner_norm));
    return NM_OK;
}

static nm_status build_layer(const builder *to)
{
    const nm_stack_config *c = &to->stack->config;
    nm_layer *layer = &to->stack->layers[to->layer];
    if (c->residual == NM_RESIDUAL_REZERO)
        layer->scale = nm_params_add(to->params, 1, 1, (nm_init){NM_INIT_CONSTANT, 0}, "%s.%d.scale",
                                     c->prefix, to->layer);
    NM_TRY(build_attention(to, "self", false, &layer->self));
    if (c->decoder && !c->decoder_only)
        NM_TRY(build_attention(to, "cross", true, &layer->cross));
    return build_ffn(to, &layer->ffn);
}

static nm_status check_config(const nm_stack_config *c, nm_error *err)
{
    if (c->init == NM_SCHEME_TFIXUP && !(c->depths.encoder && c->depths.decoder))
        return nm_fail(err, NM_USAGE, "model.init = tfixup is defined for models with encoder and decoder");
    if (c->init == NM_SCHEME_ADMIN && c->residual != NM_RESIDUAL_ADMIN)
        return nm_fail(err, NM_USAGE,
                       "model.init = admin sets omega of the residual connections and needs "
                       "model.residual = admin");
    if (c->post_layers > c->layers)
        return nm_fail(err, NM_USAGE, "model.post_layers = %d: the stack %s has %d layers", c->post_layers,
                       c->prefix, c->layers);
    if (c->rope_angles.scaling == NM_ROPE_LLAMA3 && c->rope_angles.low >= c->rope_angles.high)
        return nm_fail(err, NM_USAGE, "model.rope_low = %g is not below model.rope_high = %g",
                       c->rope_angles.low, c->rope_angles.high);
    if (c->rope && nm_stack_head_widths(c, false).key % 2)
        return nm_fail(err, NM_USAGE, "model.rope needs an even number of features per head, not %d",
                       nm_stack_head_widths(c, false).key);
    return NM_OK;
}

nm_status nm_stack_build(nm_stack *stack, const nm_stack_config *config, nm_params *params,
                         const nm_options *options, nm_error *err)
{
    const nm_stack_config *c = config;
    *stack = (nm_stack){.config = *config, .layers = nm_allocate((size_t)config->layers * sizeof(nm_layer))};
    builder to = {stack, params, options, err, 0, nm_init_depth_factors(c->init, c->depths, c->decoder)};
    char name[64];
    NM_TRY(check_config(c, err));
    bool dual = c->residual == NM_RESIDUAL_DUAL;
    const char *final = c->final_norm || !dual ? c->final_norm : c->norm;
    stack->config.final_norm = final = c->position != NM_POST_NORM || dual ? final : NULL;
    snprintf(name, sizeof name, "%s.embedding.norm", c->prefix);
    if (c->embedding_norm)
        NM_TRY(add_norm_of(&to, c->embedding_norm, name, c->width, NM_SITE_SUBLAYER, &stack->embedding_norm));
    for (; to.layer < c->layers; to.layer++)
        NM_TRY(build_layer(&to));
    snprintf(name, sizeof name, "%s.final.norm", c->prefix);
    nm_norm_site_kind kind = c->decoder         ? NM_SITE_BEFORE_OUTPUT
                             : c->feeds_decoder ? NM_SITE_ENCODER_FINAL
                                                : NM_SITE_SUBLAYER;
    return final ? add_norm_of(&to, final, name, c->width, kind, &stack->final_norm) : NM_OK;
}

static nm_status alloc_rotations(nm_stack *stack, nm_backend *backend, int32_t longest, nm_error *err)
{
    const nm_stack_config *c = &stack->config;
    int32_t width = nm_stack_head_widths(c, false).key;
    NM_TRY(nm_rotations_alloc(backend, longest, width, &c->rope_angles, &stack->rotations, err));
    return c->window
               ? nm_rotations_alloc(backend, longest, width, &c->local_angles, &stack->local_rotations, err)
               : NM_OK;
}

nm_status nm_stack_ready(nm_stack *stack, nm_backend *backend, int32_t longest, nm_error *err)
{
    const nm_stack_config *c = &stack->config;
    if (c->attention == NM_BLOCK_TERM_ATTENTION)
        return nm_positions_alloc(backend, NM_POSITIONS_REVERSED, c->context, c->width, &stack->positions,
                                  err);
    if (c->attention == NM_SOFTMAX_ATTENTION)
        return c->rope ? alloc_rotations(stack, backend, longest, err) : NM_OK;
    stack->distances.zero_row = longest;
    return nm_positions_alloc(backend, NM_POSITIONS_RELATIVE, 2 * longest, c->width / c->heads,
                              &stack->distances.rows, err);
}

void nm_stack_release(nm_stack *stack, nm_backend *backend)
{
    nm_positions_dealloc(backend, &stack->positions);
    nm_positions_dealloc(backend, &stack->distances.rows);
    nm_positions_dealloc(backend, &stack->rotations);
    nm_positions_dealloc(backend, &stack->local_rotations);
    free(stack->layers);
    *stack = (nm_stack){0};
}

/* Adds a norm that only the linear layer reads; weight NULL: other operations read it, and it cannot be
 * folded. */
static void fold_add_norm(nm_fold *fold, const char *option, nm_norm *norm, nm_tensor *weight,
                          nm_tensor *bias)
{
    if (!norm)
        return;
    nm_fold_add_site(fold, norm, option);
    if (weight)
        nm_fold_add_reader(fold, weight, bias);
}

/* Norms after a residual connection are read by the next one, too. Norms before it (inside, sandwich) are
 * read by it only. Depth scaling stands between a norm and the linear layer. */
static void fold_add_sublayer(const nm_stack *stack, nm_fold *fold, const char *option, int32_t layer,
                              const nm_sublayer *sublayer, nm_tensor *weight, nm_tensor *bias)
{
    const nm_stack_config *c = &stack->config;
    bool read_by_linear = normalizes_input(c, layer) && c->residual != NM_RESIDUAL_DEPTH_SCALED;
    fold_add_norm(fold, option, sublayer->norm, read_by_linear ? weight : NULL, bias);
    fold_add_norm(fold, option, sublayer->output_norm, NULL, NULL);
}

static void fold_add_attention(const nm_stack *stack, nm_fold *fold, const char *option, int32_t layer,
                               const nm_sublayer_attention *attention)
{
    if (!attention->norm)
        return;
    fold_add_sublayer(stack, fold, option, layer, &attention->common, attention->in_weight,
                      attention->in_bias);
    fold_add_norm(fold, option, attention->inner_norm, attention->out_weight, attention->out_bias);
    nm_norm *const of_heads[] = {attention->query_norm, attention->key_norm, attention->value_norm};
    for (int i = 0; i < 3; i++)
        fold_add_norm(fold, "model.qk_norm_type", of_heads[i], NULL, NULL);
}

bool nm_stack_fold(const nm_stack *stack, nm_fold *fold, const char *option, const char *final_option)
{
    fold_add_norm(fold, "model.embedding_norm", stack->embedding_norm, NULL, NULL);
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        fold_add_attention(stack, fold, option, i, &layer->self);
        fold_add_attention(stack, fold, option, i, &layer->cross);
        fold_add_sublayer(stack, fold, option, i, &layer->ffn.common, layer->ffn.in_weight,
                          layer->ffn.in_bias);
        fold_add_norm(fold, option, layer->ffn.inner_norm, layer->ffn.out_weight, layer->ffn.out_bias);
    }
    if (stack->final_norm)
        nm_fold_add_site(fold, stack->final_norm, final_option);
    return stack->final_norm && stack->config.residual != NM_RESIDUAL_DUAL;
}

/* The residual stream between two sublayers. */
typedef struct stream {
    nm_tensor *x;   /* residual input of the next sublayer */
    nm_tensor *h;   /* input of its function F */
    nm_tensor *sum; /* resi-dual: the stack's input and all F so far; otherwise NULL */
} stream;

typedef struct layer_call {
    const nm_stack *stack;
    int32_t layer;
    nm_tensor *x; /* [tokens, d]; resi-dual: [tokens, 2d], post-norm stream and sum */
    nm_stack_attention attention;
    double padding; /* see nm_norm_call */
} layer_call;

/* u / sqrt(l) for the norms of layer l = 1, 2, ... */
static nm_tensor *depth_scaled(nm_tape *tape, const nm_stack_config *c, int32_t layer, nm_tensor *u)
{
    if (c->residual != NM_RESIDUAL_DEPTH_SCALED)
        return u;
    nm_tensor *scaled = nm_scaled(tape, u, 1 / sqrt(layer + 1.0));
    if (scaled != u)
        nm_tape_discard(tape, u);
    return scaled;
}

/* The output of F, normalized and scaled. */
static nm_tensor *branch_output(nm_tape *tape, const nm_stack_config *c, const nm_sublayer *sublayer,
                                nm_tensor *f)
{
    if (sublayer->output_norm)
        f = nm_normalize(tape, sublayer->output_norm, f);
    if (c->position == NM_INSIDE_NORM)
        f = nm_normalize(tape, sublayer->norm, f);
    return sublayer->scale ? nm_feature_scaled(tape, f, sublayer->scale) : f;
}

/* Ends a sublayer with the output f of F: updates the stream. next: norm of the next sublayer of the layer,
 * NULL: none. drop: rate of the dropout of f. */
static void end_sublayer(nm_tape *tape, const layer_call *call, const nm_sublayer *sublayer, nm_norm *next,
                         nm_tensor *f, double drop, stream *s)
{
    const nm_stack_config *c = &call->stack->config;
    nm_tensor *h = s->h, *x = s->x, *sum;
    f = branch_output(tape, c, sublayer, f);
    if (c->residual == NM_RESIDUAL_DUAL) {
        f = nm_dropped(tape, f, drop);
        drop = 0;
        s->sum = nm_residual(tape, s->sum, f, 0);
    }
    if (c->residual == NM_RESIDUAL_DEEPNORM)
        x = nm_scaled(tape, x, nm_deepnorm_alpha(c->depths, c->decoder));
    if (sublayer->omega)
        x = nm_feature_scaled(tape, x, sublayer->omega);
    if (is_post(c, call->layer)) {
        s->x = s->h = nm_residual_normalize(tape, sublayer->norm, x, f, drop, &sum);
    } else if (next && normalizes_input(c, call->layer)) {
        s->h = depth_scaled(tape, c, call->layer, nm_residual_normalize(tape, next, x, f, drop, &s->x));
    } else {
        s->x = s->h = nm_residual(tape, x, f, drop);
    }
    nm_tape_report_residual(tape, sublayer->norm->site.name, x, f, s->x, sublayer->omega);
    /* F's linear layers read h in the backward pass, as omega's gradient does, and nothing reads f. */
    if (!sublayer->omega)
        nm_tape_keep_operand(tape, h);
    nm_tape_discard(tape, f);
}

/* drop(f(W1 h + b1)), or with a gate. The linear kernel applies relu itself. */
static nm_tensor *activated_linear(nm_tape *tape, nm_tensor *h, const nm_sublayer_ffn *ffn,
                                   const nm_stack_config *c)
{
    static const nm_map_op ops[] = {NM_ACTIVATIONS(NM_ACTIVATION_OP)};
    bool fused = c->activation == NM_ACTIVATION_RELU && !c->gated;
    h = nm_linear(tape, h, ffn->in_weight, ffn->in_bias, fused ? NM_ACT_RELU : NM_ACT_NONE,
                  fused ? c->relu_drop : 0);
    if (fused)
        return h;
    return c->gated ? nm_gated(tape, h, ops[c->activation], c->relu_drop)
                    : nm_activated(tape, h, ops[c->activation], c->relu_drop);
}

nm_tensor *nm_feed_forward(nm_tape *tape, nm_tensor *h, const nm_sublayer_ffn *ffn, const nm_stack_config *c)
{
    nm_tensor *hidden = activated_linear(tape, h, ffn, c);
    if (ffn->inner_norm)
        hidden = nm_normalize(tape, ffn->inner_norm, hidden);
    nm_tensor *f = nm_linear(tape, hidden, ffn->out_weight, ffn->out_bias, NM_ACT_NONE, 0);
    nm_tape_keep_operand(tape, hidden);
    return f;
}

static nm_tensor *layer_forward(nm_tape *tape, const void *context)
{
    const layer_call *call = context;
    const nm_stack *stack = call->stack;
    const nm_stack_config *c = &stack->config;
    const nm_layer *layer = &stack->layers[call->layer];
    tape->padding = call->padding; /* of this stack, also when the layer is recomputed */
    const nm_sublayer_ffn *ffn = &layer->ffn;
    stream s = {.x = call->x};
    if (c->residual == NM_RESIDUAL_DUAL) {
        s.x = nm_column_copy(tape, call->x, 0, c->width);
        s.sum = nm_column_copy(tape, call->x, c->width, c->width);
    }

    /* TENER has no dropout on the output of attention. */
    double attention_drop = c->attention == NM_RELATIVE_ATTENTION ? 0 : c->drop;
    s.h = normalizes_input(c, call->layer)
              ? depth_scaled(tape, c, call->layer, nm_normalize(tape, layer->self.norm, s.x))
              : s.x;
    nm_tensor *f = call->attention.self(tape, stack, call->layer, s.h, call->attention.context);
    end_sublayer(tape, call, &layer->self.common, layer->cross.norm ? layer->cross.norm : ffn->norm, f,
                 attention_drop, &s);
    if (layer->cross.norm) {
        f = call->attention.cross(tape, stack, call->layer, s.h, call->attention.context);
        end_sublayer(tape, call, &layer->cross.common, ffn->norm, f, c->drop, &s);
    }
    end_sublayer(tape, call, &ffn->common, NULL, nm_feed_forward(tape, s.h, ffn, c), c->drop, &s);
    return s.sum ? nm_concat(tape, (nm_tensor *[]){s.x, s.sum}, 2) : s.x;
}

/* The output of ResiDual from its two streams, [tokens, 2d]. */
static nm_tensor *join_streams(nm_tape *tape, const nm_stack *stack, nm_tensor *both)
{
    int32_t d = stack->config.width;
    nm_tensor *x = nm_column_copy(tape, both, 0, d), *sum = nm_column_copy(tape, both, d, d);
    return nm_residual(tape, x, nm_normalize(tape, stack->final_norm, sum), 0);
}

nm_tensor *nm_stack_forward_with(nm_tape *tape, const nm_stack *stack, nm_tensor *x,
                                 const nm_stack_attention *attention)
{
    bool dual = stack->config.residual == NM_RESIDUAL_DUAL;
    if (stack->embedding_norm)
        x = nm_dropped(tape, nm_normalize(tape, stack->embedding_norm, x), stack->config.embedding_drop);
    layer_call call = {.stack = stack,
                       .x = dual ? nm_concat(tape, (nm_tensor *[]){x, x}, 2) : x,
                       .attention = *attention,
                       .padding = tape->padding};
    for (; call.layer < stack->config.layers; call.layer++)
        call.x = nm_recomputed_segment(tape, layer_forward, &call, sizeof call);
    if (dual && stack->final_norm)
        return join_streams(tape, stack, call.x);
    return stack->final_norm ? nm_normalize(tape, stack->final_norm, call.x) : call.x;
}

typedef struct attention_inputs {
    nm_packing packing, memory_packing;
    nm_tensor *memory, *block_term_positions;
    const int32_t *positions; /* rope: device [tokens] */
    const nm_alignment_guide *guide;
} attention_inputs;

static nm_tensor *self_attention(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                                 const void *context)
{
    const attention_inputs *in = context;
    const nm_sublayer_attention *self = &stack->layers[layer].self;
    switch (stack->config.attention) {
    case NM_BLOCK_TERM_ATTENTION:
        return nm_block_term_forward(tape, stack, self, h, in->block_term_positions, &in->packing);
    case NM_RELATIVE_ATTENTION:
        return nm_relative_forward(tape, stack, self, h, &in->packing);
    default:
        return nm_softmax_self(tape, stack, self, h, &in->packing, in->positions);
    }
}

static nm_tensor *cross_attention(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                                  const void *context)
{
    const attention_inputs *in = context;
    const nm_alignment_guide *guide = in->guide && in->guide->layer == layer ? in->guide : NULL;
    const nm_memory memory = {in->memory, &in->memory_packing};
    return nm_softmax_cross(tape, stack, &stack->layers[layer].cross, h, &in->packing, &memory, guide);
}

/* The position of each token in its sequence, device. */
static const int32_t *token_positions(nm_tape *tape, const nm_packing *packing)
{
    int32_t *positions = nm_tape_host(tape, (size_t)packing->n_tokens * sizeof *positions);
    for (int32_t s = 0; positions && s < packing->n_seqs; s++)
        for (int32_t i = packing->offsets[s]; i < packing->offsets[s + 1]; i++)
            positions[i] = i - packing->offsets[s];
    return positions ? nm_tape_upload(tape, positions, (size_t)packing->n_tokens * sizeof *positions) : NULL;
}

nm_tensor *nm_stack_forward(nm_tape *tape, const nm_stack *stack, nm_tensor *x, const nm_packing *packing,
                            nm_tensor *memory, const nm_packing *memory_packing,
                            const nm_alignment_guide *guide)
{
    attention_inputs *in = nm_tape_host(tape, sizeof *in);
    if (!in)
        return x;
    *in = (attention_inputs){.packing = *packing, .memory = memory, .guide = guide};
    tape->padding = 1 - packing->n_tokens / fmax(1, (double)packing->longest * packing->n_seqs);
    if (memory)
        in->memory_packing = *memory_packing;
    if (stack->config.attention == NM_BLOCK_TERM_ATTENTION)
        in->block_term_positions = nm_block_term_positions(tape, stack);
    if (stack->config.rope)
        in->positions = token_positions(tape, packing);
    return nm_stack_forward_with(tape, stack, x, &(nm_stack_attention){self_attention, cross_attention, in});
}
