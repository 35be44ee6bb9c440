/* Decoder-only Transformer, and the tensorized Transformer as in the code of Ma et al. 2019, with a causal
 * mask by default: pre- or post-norm, learned or sinusoidal position embeddings, shared embeddings, adaptive
 * softmax (Grave et al. 2017). */
#include "model/lm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/positions.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_lm_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_lm_config, field, initial, LIST, help)
#define WORD(field, initial, words, help)   NM_WORD(nm_lm_config, field, initial, words, help)

/* clang-format off */
static const nm_option lm_options[] = {
    WORD(preset, "small", "tiny|small|medium|ptb|wt103|gpt2|llama|olmo2|qwen3|gemma3|deepnet",
        "Sizes, dropout rates and defaults of a known model; from gpt2 on: its structure, whose sizes are "
        "set separately."),
    PICK(attention, "softmax", NM_LM_ATTENTIONS,
        "Attention: scaled dot-product attention (softmax), or block-term attention of the tensorized "
        "Transformer, in which each query attends to all pairs of positions, without a softmax."),
    ROW(causal, "true", 0, 1,
        "Causal masking; false: block-term attention as published, with target leakage, so that exp of the "
        "loss is not a perplexity."),
    NM_STACK_ROWS(nm_lm_config, "128", "512", "4",
                  "pre",
                  "0.1", "Dropout rate on the output of each sublayer.", "0", "0.1", "0.1"),
    ROW(layers, "2", 1, 1000, "Number of layers."),
    ROW(context, "64", 2, NM_LM_MAX_CONTEXT,
        "Context length in tokens (L): length of training segments and longest context at inference."),
    ROW(window, "0", 0, NM_LM_MAX_CONTEXT,
        "Sliding-window attention: a token attends to itself and the window - 1 tokens before it; "
        "0: to all tokens before it."),
    ROW(global_every, "0", 0, 1000,
        "With model.window: every layer whose number is a multiple of global_every attends to all tokens "
        "(Gemma 2: 2, Gemma 3: 6); 0: no layer."),
    ROW(local_rope_base, "0", 0, 1e9,
        "With model.window: base of the angles of rotary position embeddings in the layers with a window, "
        "which are not scaled (Gemma 3: 10000); 0: rope_base, scaled as in the other layers."),
    ROW(cores, "1", 1, 64,
        "Number of cores of block-term attention, vectors of feature weights that are averaged (core-1, "
        "core-2 in the paper)."),
    ROW(core_width, "20", 1, 4096, "Width of a core of block-term attention (h)."),
    ROW(final_norm, "", 0, 0, "Normalization after the last layer, not in post-norm; empty: as model.norm."),
    PICK(init, "xl", NM_INIT_SCHEMES, NM_INIT_SCHEME_HELP),
    ROW(share_embeddings, "true", 0, 1, "One matrix for the input embedding and the output projection."),
    PICK(embedding_scale, "sqrt", NM_LM_EMBEDDING_SCALES,
        "Factor of the input embeddings: none (GPT-2, Llama), or the square root of width (sqrt: the "
        "original Transformer, Gemma)."),
    ROW(output_bias, "true", 0, 1, "Bias of the output projection."),
    ROW(adaptive, "false", 0, 1, "Adaptive softmax: frequent tokens in the head, the others in clusters."),
    ROW(cutoffs, "auto", 0, 0,
        "First token ids of the adaptive softmax's clusters, comma-separated; auto: 7.5, 15 and 75 % of the "
        "vocabulary, at most 20000, 40000 and 200000 (WikiText-103's)."),
    PICK(positions, "sinusoid", NM_LM_POSITIONS, "Position embeddings."),
    PICK(first_input, "eos", NM_LM_FIRST_INPUTS,
        "Input from which the first token of a text is predicted: </s>, as after an earlier text (eos), or "
        "<s> (bos: Llama 3)."),
    ROW(hidden_dropout, "0.1", 0, 0.99, "Dropout rate before the output projection."),
    {0}};

/* Presets set the width of a core for both kinds of attention. */
static bool core_width_applies(const nm_options *options)
{
    const nm_lm_config *c = nm_options_find(options, "model");
    return c->attention == NM_LM_BLOCK_TERM ||
           nm_options_origin(options, "model.core_width") == NM_ORIGIN_PRESET;
}

static bool has_softmax(const nm_options *options)
{
    const nm_lm_config *c = nm_options_find(options, "model");
    return c->attention == NM_LM_SOFTMAX;
}

static const nm_option_rule lm_rules[] = {
    NM_STACK_RULES,
    NM_SOFTMAX_RULES(has_softmax, "block-term attention has one head, without norms and rotations"),
    {"model.final_norm", NULL, NULL, "post-norm has no final norm", nm_stack_has_final_norm},
    {"model.cores", "model.attention", "block-term", "softmax attention has no cores", NULL},
    {"model.core_width", NULL, NULL, "softmax attention has no cores", core_width_applies},
    {"model.attention_dropout", "model.attention", "softmax", "block-term attention has no attention weights",
        NULL},
    {"model.window", "model.attention", "softmax", "block-term attention has no window", NULL},
    {"model.global_every", "model.window", "!0", "all layers attend to all tokens", NULL},
    {"model.local_rope_base", "model.window", "!0", "no layer has a window", NULL},
    {"model.local_rope_base", "model.rope", "!none", "there are no rotary position embeddings", NULL},
    {"model.cutoffs", "model.adaptive", "true", "only the adaptive softmax has clusters", NULL},
    {0}};

static const nm_preset lm_presets[] = {
    {"tiny",
        "width=64 ff=128 heads=4 layers=2 context=32 core_width=12 dropout=0 relu_dropout=0 "
        "embedding_dropout=0 hidden_dropout=0", "Demos and tests."},
    {"small",
        "width=128 ff=512 heads=4 layers=2 context=32 core_width=20 dropout=0.2 relu_dropout=0.2 "
        "embedding_dropout=0.2 hidden_dropout=0.2", "Several million tokens on two cores."},
    {"medium",
        "width=256 ff=1024 heads=4 layers=4 context=64 core_width=40 dropout=0.2 attention_dropout=0.1 "
        "relu_dropout=0.2 embedding_dropout=0.2 hidden_dropout=0.2", "A machine with many cores."},
    {"ptb",
        "width=256 ff=2100 layers=3 context=32 core_width=40 dropout=0.3 relu_dropout=0.3 "
        "embedding_dropout=0.3 hidden_dropout=0.3", "Sizes of the tensorized Transformer on the Penn "
        "Treebank (PN and RBN papers)."},
    {"wt103",
        "width=256 ff=2100 layers=6 context=80 core_width=40 dropout=0.1 relu_dropout=0.1 "
        "embedding_dropout=0.1 hidden_dropout=0.1", "Sizes of the tensorized Transformer on WikiText-103 (PN "
        "and RBN papers)."},
    /* structures of known models; width, ff, heads, layers and context are set separately */
    {"gpt2",
        "norm=layer norm_position=pre activation=gelu-tanh positions=learned embedding_scale=none "
        "output_bias=false attention_dropout=0.1", "Structure of GPT-2."},
    {"llama",
        "norm=rms norm_position=pre activation=silu gated=true bias=false rope=half positions=none "
        "embedding_scale=none share_embeddings=false output_bias=false dropout=0 relu_dropout=0 "
        "embedding_dropout=0 hidden_dropout=0", "Structure of Llama: pre-norm RMSNorm, SwiGLU, rotary "
        "position embeddings, no biases."},
    {"olmo2",
        "norm=rms norm_position=inside qk_norm=full activation=silu gated=true bias=false rope=half "
        "rope_base=500000 positions=none embedding_scale=none share_embeddings=false output_bias=false "
        "dropout=0 relu_dropout=0 embedding_dropout=0 hidden_dropout=0", "Structure of OLMo 2: RMSNorm of "
        "the outputs of sublayers, and of queries and keys."},
    {"qwen3",
        "norm=rms norm_position=pre qk_norm=head activation=silu gated=true bias=false rope=half "
        "rope_base=1000000 positions=none embedding_scale=none share_embeddings=false output_bias=false "
        "dropout=0 relu_dropout=0 embedding_dropout=0 hidden_dropout=0", "Structure of Qwen3: Llama with "
        "RMSNorm of the queries and keys of each head."},
    {"gemma3",
        "norm=rms norm_position=sandwich qk_norm=head activation=gelu-tanh gated=true bias=false rope=half "
        "rope_base=1000000 window=512 global_every=6 local_rope_base=10000 positions=none output_bias=false "
        "dropout=0 relu_dropout=0 embedding_dropout=0 hidden_dropout=0", "Structure of Gemma 3: RMSNorm "
        "before and after sublayers, GEGLU, a sliding window in five of six layers."},
    {"deepnet", "norm=layer norm_position=post residual=deepnorm init=deepnorm",
        "Structure of DeepNet: post-norm with DeepNorm."},
    {0}};
/* clang-format on */

/* Context length of block-term attention in tokens: the maximum, and the longest one without a warning. */
enum { BLOCK_TERM_CONTEXT = 1024, BLOCK_TERM_COSTLY = 128 };

static bool is_block_term(const nm_lm_config *c)
{
    return c->attention == NM_LM_BLOCK_TERM;
}

static nm_stack_config stack_config(const nm_model *model)
{
    const nm_lm_config *c = model->config;
    nm_stack_config config = nm_stack_configure(&c->stack, model->plan, "lm");
    config.layers = (int32_t)c->layers;
    config.decoder = config.decoder_only = true;
    config.attention = is_block_term(c) ? NM_BLOCK_TERM_ATTENTION : NM_SOFTMAX_ATTENTION;
    config.cores = (int32_t)c->cores;
    config.core_width = (int32_t)c->core_width;
    config.context = (int32_t)c->context;
    config.noncausal = !c->causal;
    config.position_drop = c->embedding_dropout;
    config.window = is_block_term(c) ? 0 : (int32_t)c->window;
    config.global_every = (int32_t)c->global_every;
    config.local_angles =
        c->local_rope_base > 0 ? (nm_rope_angles){.base = c->local_rope_base} : config.rope_angles;
    config.init = c->init;
    config.depths = (nm_depths){0, (int32_t)c->layers};
    if (*c->final_norm)
        config.final_norm = c->final_norm;
    return config;
}

/* The cutoffs for WikiText-103's 267,735 words (Ma et al. 2019, released code); the same fractions of fewer
 * words. */
static nm_status choose_cutoffs(int32_t words, nm_adaptive_clusters *clusters, nm_error *err)
{
    static const struct {
        double fraction;
        int32_t most;
    } cuts[] = {{0.075, 20000}, {0.15, 40000}, {0.75, 200000}};
    if (words < 14)
        return nm_fail(err, NM_USAGE, "model.adaptive: a vocabulary of %d tokens has no rare ones", words);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        int32_t cut = (int32_t)(cuts[i].fraction * words);
        clusters->first[clusters->n++] = cut < cuts[i].most ? cut : cuts[i].most;
    }
    return NM_OK;
}

static nm_status parse_cutoffs(const nm_model *model, nm_adaptive_clusters *clusters, nm_error *err)
{
    const char *text = nm_lm_config_of(model)->cutoffs, *at = text;
    int32_t words = model->target_size, last = 0;
    if (strcmp(text, "auto") == 0)
        return choose_cutoffs(words, clusters, err);
    for (bool more = true; more;) {
        char *end;
        long long cut = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ','))
            return nm_fail(err, NM_USAGE,
                           "model.cutoffs = %.100s: a comma-separated list of token ids is expected", text);
        if (cut <= last || cut >= words)
            return nm_fail(err, NM_USAGE,
                           "model.cutoffs = %.100s: %lld does not lie between %d and the vocabulary size %d",
                           text, cut, last, words);
        if (clusters->n == NM_MAX_CLUSTERS)
            return nm_fail(err, NM_USAGE, "model.cutoffs = %.100s: at most %d clusters", text,
                           NM_MAX_CLUSTERS);
        clusters->first[clusters->n++] = last = (int32_t)cut;
        more = *end == ',';
        at = end + 1;
    }
    return NM_OK;
}

static nm_status build_tables(nm_model *model, nm_lm *lm, nm_error *err)
{
    const nm_lm_config *c = model->config;
    nm_params *params = &model->params;
    int32_t d = (int32_t)c->width, words = model->target_size;
    bool xl = c->init == NM_SCHEME_XL;
    nm_init init = {.kind = NM_INIT_NORMAL, .scale = xl ? 0.02 : 1 / sqrt(d)},
            zeros = {.kind = NM_INIT_CONSTANT};
    lm->table = nm_params_add(params, words, d, init, "embed.weight");
    lm->output_weight =
        c->share_embeddings ? lm->table : nm_params_add(params, words, d, init, "output.weight");
    if (c->output_bias)
        lm->output_bias = nm_params_add(params, 1, words, zeros, "output.bias");
    if (c->positions == NM_LM_LEARNED)
        lm->position_table = nm_params_add(params, (int32_t)c->context, d, init, "position.weight");
    if (!c->adaptive)
        return NM_OK;
    NM_TRY(parse_cutoffs(model, &lm->clusters, err));
    lm->cluster_weight = nm_params_add(params, lm->clusters.n, d, init, "output.cluster.weight");
    lm->cluster_bias = nm_params_add(params, 1, lm->clusters.n, zeros, "output.cluster.bias");
    return NM_OK;
}

/* Transformer-XL's code initializes the weights of norms with N(1, 0.02). */
static void randomize_norm_weights(nm_params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        nm_param *param = params->list[i];
        const char *end = strstr(param->tensor.name, ".norm.weight");
        if (end && !param->fixed && param->init.kind == NM_INIT_CONSTANT && param->init.scale == 1)
            param->init = (nm_init){NM_INIT_NORMAL_MEAN_ONE, 0.02};
    }
}

static char *lm_warning(const nm_model *model)
{
    const nm_lm_config *c = model->config;
    if (!is_block_term(c) || c->context <= BLOCK_TERM_COSTLY)
        return NULL;
    return nm_format("model.context = %lld: block-term attention takes context^2 model.width multiplications "
                     "for each token, "
                     "%.1f times those of a context of %d",
                     (long long)c->context,
                     (double)c->context * (double)c->context / (BLOCK_TERM_COSTLY * BLOCK_TERM_COSTLY),
                     (int)BLOCK_TERM_COSTLY);
}

static nm_status lm_build(nm_model *model, nm_error *err)
{
    const nm_lm_config *c = model->config;
    nm_lm *lm = model->parts = nm_allocate(sizeof *lm);
    NM_TRY(nm_stack_check(&c->stack, !is_block_term(c), err));
    if (is_block_term(c) && c->context > BLOCK_TERM_CONTEXT)
        return nm_fail(
            err, NM_USAGE,
            "model.context = %lld: block-term attention has weights of context^2 rows, and at most %d tokens",
            (long long)c->context, (int)BLOCK_TERM_CONTEXT);
    if (!is_block_term(c) && !c->causal)
        return nm_fail(err, NM_USAGE,
                       "model.causal = false is implemented for model.attention = block-term only");
    NM_TRY(build_tables(model, lm, err));
    nm_stack_config config = stack_config(model);
    NM_TRY(nm_stack_build(&lm->stack, &config, &model->params, model->options, err));
    if (config.init == NM_SCHEME_XL)
        randomize_norm_weights(&model->params);
    return NM_OK;
}

static nm_status lm_ready(nm_model *model, nm_error *err)
{
    const nm_lm_config *c = model->config;
    nm_lm *lm = model->parts;
    int32_t rows = (int32_t)c->context, d = (int32_t)c->width;
    if (c->positions == NM_LM_SINUSOID)
        NM_TRY(nm_positions_alloc(model->backend, NM_POSITIONS_FAIRSEQ, rows, d, &lm->positions, err));
    return nm_stack_ready(&lm->stack, model->backend, rows, err);
}

static void lm_release(nm_model *model)
{
    nm_lm *lm = model->parts;
    nm_positions_dealloc(model->backend, &lm->positions);
    nm_stack_release(&lm->stack, model->backend);
    free(lm);
}

static void lm_fold(const nm_model *model, nm_fold *fold)
{
    const nm_lm *lm = model->parts;
    if (!nm_stack_fold(&lm->stack, fold, "model.norm", "model.final_norm") || lm->output_weight == lm->table)
        return;
    nm_fold_add_reader(fold, lm->output_weight, lm->output_bias);
    if (lm->cluster_weight)
        nm_fold_add_reader(fold, lm->cluster_weight, lm->cluster_bias);
}

double nm_lm_embedding_factor(const nm_lm_config *config)
{
    return config->embedding_scale == NM_LM_UNSCALED ? 1 : sqrt((double)config->width);
}

/* See nm_generator.embed; table is always nm_lm.table. */
static nm_tensor *lm_embed(nm_model *model, nm_tape *tape, nm_tensor *table, const int32_t *ids,
                           const int32_t *pos, int32_t n)
{
    const nm_lm_config *c = model->config;
    nm_lm *lm = model->parts;
    double scale = nm_lm_embedding_factor(c);
    double drop = nm_stack_embedding_drop(&c->stack);
    const nm_mat *sinusoid = lm->positions.data ? &lm->positions : NULL;
    if (!lm->position_table)
        return nm_embed(tape, table, ids, pos, n, scale, sinusoid, drop);
    nm_tensor *x = nm_embed(tape, table, ids, NULL, n, scale, NULL, 0);
    x = nm_residual(tape, x, nm_embed(tape, lm->position_table, pos, NULL, n, 1, NULL, 0), 0);
    return nm_dropped(tape, x, drop);
}

nm_tensor *nm_lm_hidden(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    nm_packing packing = nm_tape_packing(tape, &batch->target);
    nm_tensor *x =
        lm_embed(model, tape, nm_lm_of(model)->table, batch->target_in, batch->target_pos, packing.n_tokens);
    x = nm_stack_forward(tape, &nm_lm_of(model)->stack, x, &packing, NULL, NULL, NULL);
    return nm_dropped(tape, x, nm_lm_config_of(model)->hidden_dropout);
}

static nm_model_output output_of(const nm_lm *lm, nm_tensor *hidden)
{
    return (nm_model_output){.hidden = hidden,
                             .weight = lm->output_weight,
                             .bias = lm->output_bias,
                             .cluster_weight = lm->cluster_weight,
                             .cluster_bias = lm->cluster_bias,
                             .clusters = lm->cluster_weight ? &lm->clusters : NULL};
}

static nm_model_output lm_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    return output_of(model->parts, nm_lm_hidden(model, tape, batch));
}

static double *softmax_loss(const nm_model *model, nm_tape *tape, nm_tensor *hidden, const nm_loss_spec *spec)
{
    const nm_lm *lm = model->parts;
    nm_loss_spec masked = *spec;
    masked.allowed = model->allowed;
    return nm_softmax_loss_of(tape, hidden, lm->output_weight, lm->output_bias, &masked);
}

double *nm_lm_loss(nm_model *model, nm_tape *tape, nm_tensor *hidden, const nm_loss_spec *spec)
{
    nm_lm *lm = model->parts;
    if (!lm->cluster_weight)
        return softmax_loss(model, tape, hidden, spec);
    nm_adaptive_params params = {lm->output_weight, lm->output_bias, lm->cluster_weight, lm->cluster_bias,
                                 lm->clusters};
    return nm_adaptive_loss_of(tape, hidden, &params, spec);
}

static const nm_stack *lm_decoder(const nm_model *model)
{
    const nm_stack *stack = &nm_lm_of(model)->stack;
    return stack->config.attention == NM_SOFTMAX_ATTENTION ? stack : NULL;
}

static int32_t lm_context(const nm_model *model)
{
    return (int32_t)nm_lm_config_of(model)->context;
}

static bool lm_is_causal(const nm_model *model)
{
    return nm_lm_config_of(model)->causal;
}

static nm_generator_tables lm_tables(nm_model *model, nm_tape *tape)
{
    (void)tape;
    const nm_lm *lm = model->parts;
    return (nm_generator_tables){.target = lm->table, .output = output_of(lm, NULL)};
}

static const nm_generator lm_generator = {.decoder = lm_decoder,
                                          .context = lm_context,
                                          .is_causal = lm_is_causal,
                                          .tables = lm_tables,
                                          .embed = lm_embed};

const nm_model_type nm_model_lm = {
    .name = "lm",
    .options = lm_options,
    .presets = lm_presets,
    .rules = lm_rules,
    .config_size = sizeof(nm_lm_config),
    .build = lm_build,
    .ready = lm_ready,
    .forward = lm_forward,
    .release = lm_release,
    .fold = lm_fold,
    .generator = &lm_generator,
    .warning = lm_warning,
};
