/* Text classification as in Wang et al. 2022, whose program is declare-lab's "identifiable transformers" (Bhardwaj et al.
 * 2021): token embeddings, an encoder, the output at the first token, a linear layer to the classes.
 * Differences: texts are packed, so that padding is neither attended to nor part of a batch statistic (that program masks
 * real tokens instead of padding); mean pooling is an option.
 *
 * With model.ngram_dim the vector of a text has a second part, as in fastText (Joulin et al. 2017): the mean over its words w_t
 *
 *     g = 1/n sum over t of U[w_t] + B[hash(w_{t-1}, w_t)]
 *
 * of embeddings of words and hashed bigrams. A few thousand texts are too few for an encoder alone. */
#include "model/classifier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash_map.h"
#include "nn/positions.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_classifier_config, field, initial, min, max, help)
#define PICK(field, initial, choices, help) NM_CHOICE(nm_classifier_config, field, initial, choices, help)

/* clang-format off */
static const nm_option classifier_options[] = {
    PICK(preset, "small", "reference|small|tiny", "Sizes, dropout rates and defaults of a known model."),
    NM_STACK_ROWS(nm_classifier_config, "128", "256", "4",
                  "post", "Position of the norms: before each sublayer, with a final norm after the last layer (pre), or after each residual addition (post).",
                  "0.1", "Dropout rate on the output of each sublayer.", "0.1", "0.1", "0.1"),
    ROW(key_size, "16", 0, 65536, "Number of features of queries and keys per head; 0: width / heads, as for values."),
    ROW(layers, "1", 1, 1000, "Number of encoder layers."),
    ROW(final_norm, "", 0, 0, "Normalization after the encoder, in pre-norm only; empty: as model.norm."),
    PICK(init, "torch", NM_INIT_SCHEMES, "Initialization of linear layers: Xavier normal, SmallInit, fairseq's, RBN's, PyTorch's defaults or Transformer-XL's N(0, 0.02)."),
    PICK(positions, "none", "none|learned|sinusoid", "Position embeddings."),
    ROW(max_positions, "512", 8, 1 << 20, "Maximum length of a text in tokens, including its begin and end symbols."),
    PICK(pooling, "first", "first|mean", "Vector of a text: the output at the first token, or the mean over all tokens."),
    ROW(embedding_init, "1", 0, 100, "Standard deviation of the initial token embeddings."),
    ROW(ngram_dim, "0", 0, 65536, "Dimension of the embeddings of words and bigrams whose mean is concatenated with the vector of the text; 0: none."),
    ROW(ngram_buckets, "50000", 1, 1 << 24, "Number of bigram embeddings, which bigrams share by their hash."),
    {0}};

static const nm_option_rule classifier_rules[] = {
    {"model.final_norm", "model.norm_position", "pre", "post-norm has no final norm", NULL},
    {"model.ngram_buckets", "model.ngram_dim", "!", "the vector of a text has no part for n-grams", NULL},
    {"model.max_positions", "model.positions", "!none", "without position embeddings the length of a text is not limited", NULL},
    {0}};

static const nm_preset classifier_presets[] = {
    {"reference", "width=32 ff=256 heads=4 key_size=16 layers=1 norm_position=post init=torch positions=none pooling=first dropout=0.1 attention_dropout=0.1 relu_dropout=0.1 embedding_dropout=0.1", "Defaults of the program of the RBN paper."},
    {"small", "width=128 ff=256 heads=4 key_size=16 layers=1 norm_position=post init=torch positions=none pooling=first dropout=0.1 attention_dropout=0.1 relu_dropout=0.1 embedding_dropout=0.1", "The reference model with four times the width."},
    {"tiny", "width=16 ff=32 heads=2 key_size=0 layers=1 norm_position=post init=torch positions=none pooling=first dropout=0 attention_dropout=0 relu_dropout=0 embedding_dropout=0", "Tests."},
    {0}};
/* clang-format on */

typedef struct classifier {
    nm_tensor *table, *position_table, *output_weight, *output_bias;
    nm_tensor *words, *bigrams; /* U [vocabulary, k], B [buckets, k]; NULL unless ngram_dim */
    nm_stack encoder;
    nm_mat sinusoid; /* [max_positions, width], device; empty unless positions = sinusoid */
} classifier;

/* ---- building ---- */

static nm_stack_config stack_config(const nm_model *model)
{
    const nm_classifier_config *c = model->config;
    nm_stack_config config = nm_stack_configure(&c->stack, model->plan, "enc");
    config.layers = (int32_t)c->layers;
    config.key_width = (int32_t)(c->key_size * c->heads);
    config.init = c->init;
    if (*c->final_norm)
        config.final_norm = c->final_norm;
    return config;
}

static nm_status classifier_build(nm_model *model, nm_error *err)
{
    const nm_classifier_config *c = model->config;
    classifier *self = model->parts = nm_allocate(sizeof *self);
    int32_t d = (int32_t)c->width;
    NM_TRY(nm_stack_check_heads(&c->stack, err));
    int32_t k = (int32_t)c->ngram_dim;
    const nm_init normal = {NM_INIT_NORMAL, 1}, linear = {NM_INIT_UNIFORM, 1 / sqrt(d)};
    const nm_init embedding = {NM_INIT_NORMAL, c->embedding_init}, ngram = {NM_INIT_UNIFORM, k ? 1.0 / k : 0};
    self->table = nm_params_add(&model->params, model->source_size, d, embedding, "embed.weight");
    if (c->positions == NM_CLASSIFIER_LEARNED)
        self->position_table =
            nm_params_add(&model->params, (int32_t)c->max_positions, d, normal, "positions.weight");
    nm_stack_config stack = stack_config(model);
    NM_TRY(nm_stack_build(&self->encoder, &stack, &model->params, model->options, err));
    if (k) {
        self->words = nm_params_add(&model->params, model->source_size, k, ngram, "ngrams.words");
        self->bigrams = nm_params_add(&model->params, (int32_t)c->ngram_buckets, k, ngram, "ngrams.bigrams");
    }
    self->output_weight = nm_params_add(&model->params, model->target_size, d + k, linear, "output.weight");
    self->output_bias = nm_params_add(&model->params, 1, model->target_size, linear, "output.bias");
    return NM_OK;
}

static nm_status classifier_ready(nm_model *model, nm_error *err)
{
    const nm_classifier_config *c = model->config;
    classifier *self = model->parts;
    if (c->positions != NM_CLASSIFIER_SINUSOID)
        return NM_OK;
    return nm_positions_alloc(model->backend, NM_POSITIONS_TEARS, (int32_t)c->max_positions,
                              (int32_t)c->width, &self->sinusoid, err);
}

static void classifier_release(nm_model *model)
{
    classifier *self = model->parts;
    nm_positions_dealloc(model->backend, &self->sinusoid);
    nm_stack_release(&self->encoder, model->backend);
    free(self);
}

/* The output layer reads the final norm through the pooling, which commutes with an affine map per feature. */
static void classifier_fold(const nm_model *model, nm_fold *fold)
{
    const classifier *self = model->parts;
    bool final = nm_stack_fold(&self->encoder, fold, "model.norm", "model.final_norm");
    if (final && !self->words)
        nm_fold_add_reader(fold, self->output_weight, self->output_bias);
}

/* ---- forward ---- */

static nm_tensor *embed(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_classifier_config *c = model->config;
    classifier *self = model->parts;
    int32_t n = batch->source.n_tokens;
    nm_tensor *x = nm_embed(tape, self->table, batch->source_ids, batch->source_pos, n, 1,
                            self->sinusoid.data ? &self->sinusoid : NULL, c->embedding_dropout);
    if (!self->position_table)
        return x;
    return nm_residual(tape, x, nm_embed(tape, self->position_table, batch->source_pos, NULL, n, 1, NULL, 0),
                       0);
}

/* g, one row per text. */
static nm_tensor *embed_ngrams(const classifier *self, const nm_classifier_config *c, nm_tape *tape,
                               const nm_packing *source, const int32_t *ids, const nm_packing *texts)
{
    int32_t n = source->n_tokens, *buckets = nm_tape_host(tape, (size_t)n * sizeof *buckets);
    for (int32_t s = 0; buckets && s < source->n_seqs; s++)
        for (int32_t i = source->offsets[s]; i < source->offsets[s + 1]; i++) {
            uint32_t before = i > source->offsets[s] ? (uint32_t)ids[i - 1] : UINT32_MAX;
            buckets[i] = (int32_t)(nm_hash_pair(before, (uint32_t)ids[i]) % (uint32_t)c->ngram_buckets);
        }
    double rate = c->embedding_dropout;
    nm_tensor *words = nm_embed(tape, self->words, ids, NULL, n, 1, NULL, rate);
    nm_tensor *bigrams = nm_embed(tape, self->bigrams, buckets, NULL, n, 1, NULL, rate);
    return nm_pool(tape, nm_residual(tape, words, bigrams, 0), texts, NM_POOL_MEAN);
}

static nm_model_output classifier_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_classifier_config *c = model->config;
    classifier *self = model->parts;
    nm_packing texts = nm_tape_packing(tape, &batch->source);
    nm_tensor *x =
        nm_stack_forward(tape, &self->encoder, embed(model, tape, batch), &texts, NULL, NULL, NULL);
    nm_tensor *pooled =
        nm_pool(tape, x, &texts, c->pooling == NM_CLASSIFIER_MEAN ? NM_POOL_MEAN : NM_POOL_FIRST);
    if (self->words)
        pooled = nm_concat(
            tape,
            (nm_tensor *[]){pooled, embed_ngrams(self, c, tape, &batch->source, batch->source_ids, &texts)},
            2);
    return (nm_model_output){.hidden = pooled, .weight = self->output_weight, .bias = self->output_bias};
}

const nm_model_type nm_model_classifier = {
    .name = "classifier",
    .options = classifier_options,
    .presets = classifier_presets,
    .rules = classifier_rules,
    .config_size = sizeof(nm_classifier_config),
    .build = classifier_build,
    .ready = classifier_ready,
    .forward = classifier_forward,
    .release = classifier_release,
    .fold = classifier_fold,
};
