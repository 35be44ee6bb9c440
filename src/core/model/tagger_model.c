/* Sizes, dropout rates and initialization are those of the authors' code, fastnlp/TENER. */
#include "model/tagger_model.h"

#include <math.h>
#include <stdlib.h>

#define ROW(field, initial, min, max, help) NM_OPTION(nm_tagger_model_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_tagger_model_config, field, initial, LIST, help)
#define WORD(field, initial, words, help)   NM_WORD(nm_tagger_model_config, field, initial, words, help)

/* clang-format off */
static const nm_option tagger_options[] = {
    WORD(preset, "small", "tiny|small|conll|resume", "Sizes, dropout rates and defaults of a known model."),
    NM_STACK_ROWS(nm_tagger_model_config, "128", "256", "4",
                  "post",
                  "0.15", "Dropout rate on the output of feed-forward layers.", "0.15", "0.15", "0.5"),
    ROW(layers, "2", 1, 1000, "Number of encoder layers."),
    ROW(word_dim, "100", 1, 65536, "Number of features of a word embedding."),
    ROW(char_dim, "30", 0, 4096,
        "Number of features of the character encoder, a convolution of width 3; 0: no character encoder."),
    ROW(bigram_dim, "0", 0, 65536,
        "Number of features of the embedding of a token and its right neighbor; 0: no bigram embeddings."),
    ROW(max_positions, "512", 8, 1 << 16, "Maximum length of a sentence in tokens."),
    ROW(char_dropout, "0.3", 0, 0.99,
        "Dropout rate on character embeddings and on the output of the character encoder."),
    ROW(output_dropout, "0.4", 0, 0.99, "Dropout rate before the output projection."),
    {0}};

static bool has_softmax(const nm_options *options)
{
    (void)options;
    return false;
}

static const nm_option_rule tagger_rules[] = {
    NM_STACK_RULES,
    NM_SOFTMAX_RULES(has_softmax, "attention with relative positions has no such parts"),
    {"model.char_dropout", "model.char_dim", "!", "there is no character encoder", NULL},
    {0}};

static const nm_preset tagger_presets[] = {
    {"tiny",
        "width=32 ff=64 heads=2 layers=1 word_dim=24 char_dim=8 dropout=0 attention_dropout=0 relu_dropout=0 "
        "embedding_dropout=0.1 char_dropout=0 output_dropout=0.1", "Tests."},
    {"small",
        "width=128 ff=256 heads=4 layers=2 word_dim=100 char_dim=30 dropout=0.15 attention_dropout=0.15 "
        "relu_dropout=0.15 embedding_dropout=0.5 char_dropout=0.3 output_dropout=0.4", "Several hours on two "
        "cores."},
    {"conll",
        "width=1792 ff=3584 heads=14 layers=2 word_dim=100 char_dim=30 dropout=0.15 attention_dropout=0.15 "
        "relu_dropout=0.15 embedding_dropout=0.5 char_dropout=0.3 output_dropout=0.4", "CoNLL-2003 (TENER "
        "and RBN papers)."},
    {"resume",
        "width=256 ff=512 heads=4 layers=2 word_dim=50 char_dim=0 bigram_dim=50 dropout=0.15 "
        "attention_dropout=0.15 relu_dropout=0.15 embedding_dropout=0.3 output_dropout=0.4", "Resume, tokens "
        "are Chinese characters."},
    {0}};
/* clang-format on */

static nm_init linear_init(int64_t fan_in)
{
    return (nm_init){NM_INIT_UNIFORM, 1 / sqrt((double)fan_in)};
}

/* Uniform with variance 1 / dim: the expected squared L2 norm of a row is 1. */
static nm_init table_init(int64_t dim)
{
    return (nm_init){NM_INIT_UNIFORM, sqrt(3 / (double)dim)};
}

static void build_linear(nm_params *params, const char *name, int64_t out, int64_t in, nm_tensor **weight,
                         nm_tensor **bias)
{
    *weight = nm_params_add(params, (int32_t)out, (int32_t)in, linear_init(in), "%s.weight", name);
    *bias = nm_params_add(params, 1, (int32_t)out, linear_init(in), "%s.bias", name);
}

static void build_inputs(nm_model *model, nm_tagger_model_layers *t)
{
    const nm_tagger_model_config *c = model->config;
    const nm_tagger_model_sizes *sizes = model->more_sizes;
    nm_params *params = &model->params;
    int32_t chars = (int32_t)c->char_dim, bigrams = (int32_t)c->bigram_dim;
    t->words = nm_params_add(params, model->source_size, (int32_t)c->word_dim, table_init(c->word_dim),
                             "embed.weight");
    if (chars) {
        t->chars = nm_params_add(params, sizes->chars, chars, table_init(chars), "chars.embed.weight");
        build_linear(params, "chars.conv", chars, 3 * chars, &t->conv_weight, &t->conv_bias);
        build_linear(params, "chars.out", chars, chars, &t->char_weight, &t->char_bias);
    }
    if (bigrams)
        t->bigrams =
            nm_params_add(params, sizes->bigrams, bigrams, table_init(bigrams), "bigrams.embed.weight");
    build_linear(params, "in", c->width, c->word_dim + chars + bigrams, &t->in_weight, &t->in_bias);
}

static nm_status tagger_build(nm_model *model, nm_error *err)
{
    const nm_tagger_model_config *c = model->config;
    nm_tagger_model_layers *t = model->parts = nm_allocate(sizeof *t);
    const nm_init normal = {NM_INIT_NORMAL, 1};
    int32_t tags = model->target_size;
    NM_TRY(nm_stack_check(&c->stack, true, err));
    build_inputs(model, t);
    nm_stack_config stack = nm_stack_configure(&c->stack, model->plan, "enc");
    stack.layers = (int32_t)c->layers;
    stack.depths = (nm_depths){(int32_t)c->layers, 0};
    stack.attention = NM_RELATIVE_ATTENTION;
    stack.init = NM_SCHEME_TORCH;
    stack.final_norm = NULL;
    stack.embedding_drop = 0; /* the embeddings have dropout before the linear layer */
    NM_TRY(nm_stack_build(&t->encoder, &stack, &model->params, model->options, err));
    build_linear(&model->params, "output", tags, c->width, &t->output_weight, &t->output_bias);
    t->crf = (nm_crf_scores){nm_params_add(&model->params, tags, tags, normal, "crf.transitions"),
                             nm_params_add(&model->params, 1, tags, normal, "crf.start"),
                             nm_params_add(&model->params, 1, tags, normal, "crf.end")};
    nm_params_keep_exact(t->crf.transitions);
    return NM_OK;
}

static nm_status tagger_ready(nm_model *model, nm_error *err)
{
    return nm_stack_ready(&nm_tagger_model_of(model)->encoder, model->backend,
                          (int32_t)nm_tagger_model_config_of(model)->max_positions, err);
}

static void tagger_release(nm_model *model)
{
    nm_stack_release(&nm_tagger_model_of(model)->encoder, model->backend);
    free(model->parts);
}

/* Character encoder, [words, char_dim]: a convolution of width 3 with ReLU, max pooling over each word, a
 * linear layer. */
static nm_tensor *encode_chars(nm_model *model, nm_tape *tape, const nm_tagger_model_inputs *in)
{
    const nm_tagger_model_layers *t = nm_tagger_model_of(model);
    double drop = nm_tagger_model_config_of(model)->char_dropout;
    const int32_t *ids[] = {in->char_before, in->char_ids, in->char_after};
    nm_packing packing = nm_tape_packing(tape, &in->chars);
    nm_tensor *window[3];
    for (int i = 0; i < 3; i++)
        window[i] = nm_embed(tape, t->chars, ids[i], NULL, packing.n_tokens, 1, NULL, drop);
    nm_tensor *h = nm_concat(tape, window, 3);
    h = nm_linear(tape, h, t->conv_weight, t->conv_bias, NM_ACT_RELU, 0);
    h = nm_pool_max(tape, h, &packing);
    return nm_linear(tape, h, t->char_weight, t->char_bias, NM_ACT_NONE, drop);
}

static nm_model_output tagger_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_tagger_model_config *c = model->config;
    const nm_tagger_model_layers *t = nm_tagger_model_of(model);
    const nm_tagger_model_inputs *in = batch->more;
    nm_packing packing = nm_tape_packing(tape, &batch->source);
    nm_tensor *parts[3];
    int n = 0;
    parts[n++] =
        nm_embed(tape, t->words, batch->source_ids, NULL, packing.n_tokens, 1, NULL, c->embedding_dropout);
    if (t->chars)
        parts[n++] = encode_chars(model, tape, in);
    if (t->bigrams)
        parts[n++] =
            nm_embed(tape, t->bigrams, in->bigrams, NULL, packing.n_tokens, 1, NULL, c->embedding_dropout);
    nm_tensor *x = nm_concat(tape, parts, n);
    x = nm_linear(tape, x, t->in_weight, t->in_bias, NM_ACT_NONE, 0);
    x = nm_stack_forward(tape, &t->encoder, x, &packing, NULL, NULL, NULL);
    return (nm_model_output){
        .hidden = nm_dropped(tape, x, c->output_dropout), .weight = t->output_weight, .bias = t->output_bias};
}

nm_tensor *nm_tagger_model_emissions(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    nm_model_output out = tagger_forward(model, tape, batch);
    return nm_linear(tape, out.hidden, out.weight, out.bias, NM_ACT_NONE, 0);
}

const nm_model_type nm_model_tagger = {
    .name = "tagger",
    .options = tagger_options,
    .presets = tagger_presets,
    .rules = tagger_rules,
    .config_size = sizeof(nm_tagger_model_config),
    .build = tagger_build,
    .ready = tagger_ready,
    .forward = tagger_forward,
    .release = tagger_release,
};
