/* Text classifier of Wang et al. 2022, whose code is declare-lab's "identifiable transformers" (Bhardwaj et
 * al. 2021): token embeddings, an encoder, the output at the first token, a linear layer to the classes.
 * Differences: texts are packed, so that padding is neither attended to nor part of a batch statistic (that
 * code masks real tokens instead of padding); mean pooling is an option.
 *
 * With model.ngram_dim the vector of a text has a second part g, as in fastText (Joulin et al. 2017), because
 * a few thousand texts are too few to train an encoder alone: the mean of the embeddings U of its tokens w_t
 * and B of its hashed bigrams,
 *
 *     g = 1/n sum over t of (U[w_t] + B[hash(w_{t-1}, w_t)])
 *
 * With model.ngram_weights = idf each distinct token v and hash k of a bigram in the text counts once,
 * weighted by its inverse document frequency, and the sum is L2-normalized:
 *
 *     h   = sum over v of a_v U[v] + sum over k of b_k B[k]
 *     g   = h / |h|
 *     a_v = 1 + ln((1 + N) / (1 + N_v))      0 if N_v = 0
 *     b_k = 1 + ln((1 + N) / (1 + N_k))      0 if N_k = 0
 *
 * N: number of training texts; N_v, N_k: number of those that contain the token, the hash. */
#include "model/classifier_model.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash_map.h"
#include "nn/positions.h"

#define ROW(field, initial, min, max, help)                                                                  \
    NM_OPTION(nm_classifier_model_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)  NM_CHOICE(nm_classifier_model_config, field, initial, LIST, help)
#define WORD(field, initial, words, help) NM_WORD(nm_classifier_model_config, field, initial, words, help)

/* clang-format off */
static const nm_option classifier_options[] = {
    WORD(preset, "small", "reference|small|tiny", "Sizes and dropout rates of a known model."),
    NM_STACK_ROWS(nm_classifier_model_config, "128", "256", "4",
                  "post",
                  "0.1", "Dropout rate on the output of each sublayer.", "0.1", "0.1", "0.1"),
    ROW(key_size, "16", 0, 65536,
        "Number of features of queries and keys per head; 0: width / heads, as for values."),
    ROW(layers, "1", 1, 1000, "Number of encoder layers."),
    ROW(final_norm, "", 0, 0, "Normalization after the encoder, not in post-norm; empty: as model.norm."),
    PICK(init, "torch", NM_INIT_SCHEMES, NM_INIT_SCHEME_HELP),
    PICK(positions, "none", NM_CLASSIFIER_POSITIONS, "Position embeddings."),
    ROW(max_positions, "512", 8, 1 << 20, "Maximum length of a text in tokens, including <s> and </s>."),
    PICK(pooling, "first", NM_CLASSIFIER_POOLINGS,
        "Representation of a text: the output at the first token, or the mean over all tokens."),
    ROW(embedding_init, "1", 0, 100, "Standard deviation of the initial token embeddings."),
    ROW(ngram_dim, "0", 0, 65536,
        "Dimension of the embeddings of words and bigrams whose mean is concatenated with the vector of the "
        "text; 0: none."),
    ROW(ngram_buckets, "50000", 1, 1 << 24,
        "Number of bigram embeddings, which bigrams share by their hash."),
    PICK(ngram_weights, "uniform", NM_NGRAM_WEIGHTS,
        "Weights of the words and bigrams: uniform, or inverse document frequencies in the training texts, "
        "with L2 normalization."),
    {0}};

static bool has_positions(const nm_options *options)
{
    return nm_classifier_model_has_positions(nm_options_find(options, "model"));
}

static const nm_option_rule classifier_rules[] = {
    NM_STACK_RULES,
    {"model.final_norm", NULL, NULL, "post-norm has no final norm", nm_stack_has_final_norm},
    {"model.ngram_buckets", "model.ngram_dim", "!", "the vector of a text has no part for n-grams", NULL},
    {"model.ngram_weights", "model.ngram_dim", "!", "the vector of a text has no part for n-grams", NULL},
    {"model.max_positions", NULL, NULL, "without position embeddings the length of a text is not limited",
        has_positions},
    {0}};

static const nm_preset classifier_presets[] = {
    {"reference",
        "width=32 ff=256 heads=4 key_size=16 layers=1 dropout=0.1 attention_dropout=0.1 relu_dropout=0.1 "
        "embedding_dropout=0.1", "Sizes of the code of the RBN paper."},
    {"small",
        "width=128 ff=256 heads=4 key_size=16 layers=1 dropout=0.1 attention_dropout=0.1 relu_dropout=0.1 "
        "embedding_dropout=0.1", "The reference model with four times the width."},
    {"tiny",
        "width=16 ff=32 heads=2 key_size=0 layers=1 dropout=0 attention_dropout=0 relu_dropout=0 "
        "embedding_dropout=0", "Tests."},
    {0}};
/* clang-format on */

typedef struct classifier {
    nm_tensor *table, *position_table, *output_weight, *output_bias;
    nm_classifier_model_ngrams words, bigrams; /* U [vocabulary, k], B [buckets, k] */
    nm_stack encoder;
    nm_mat sinusoid; /* [max_positions, width], device; empty unless positions = sinusoid */
} classifier;

static nm_stack_config stack_config(const nm_model *model)
{
    const nm_classifier_model_config *c = model->config;
    nm_stack_config config = nm_stack_configure(&c->stack, model->plan, "enc");
    config.layers = (int32_t)c->layers;
    config.key_width = (int32_t)(c->key_size * c->heads);
    config.init = c->init;
    config.depths = (nm_depths){(int32_t)c->layers, 0};
    if (*c->final_norm)
        config.final_norm = c->final_norm;
    return config;
}

static nm_classifier_model_ngrams add_ngrams(nm_model *model, int32_t rows, const char *name)
{
    const nm_classifier_model_config *c = model->config;
    int32_t k = (int32_t)c->ngram_dim;
    nm_classifier_model_ngrams ngrams = {0};
    ngrams.table =
        nm_params_add(&model->params, rows, k, (nm_init){NM_INIT_UNIFORM, 1.0 / k}, "ngrams.%s", name);
    if (c->ngram_weights == NM_CLASSIFIER_UNIFORM)
        return ngrams;
    ngrams.weights =
        nm_params_add(&model->params, rows + 1, 1, (nm_init){NM_INIT_CONSTANT, 1}, "ngrams.%s_idf", name);
    nm_params_fix(ngrams.weights);
    nm_params_keep_exact(ngrams.weights);
    return ngrams;
}

static nm_status classifier_build(nm_model *model, nm_error *err)
{
    const nm_classifier_model_config *c = model->config;
    classifier *self = model->parts = nm_allocate(sizeof *self);
    int32_t d = (int32_t)c->width;
    NM_TRY(nm_stack_check(&c->stack, true, err));
    int32_t k = (int32_t)c->ngram_dim;
    const nm_init normal = {NM_INIT_NORMAL, 1}, linear = {NM_INIT_UNIFORM, 1 / sqrt(d)};
    const nm_init embedding = {NM_INIT_NORMAL, c->embedding_init};
    self->table = nm_params_add(&model->params, model->source_size, d, embedding, "embed.weight");
    if (c->positions == NM_CLASSIFIER_LEARNED)
        self->position_table =
            nm_params_add(&model->params, (int32_t)c->max_positions, d, normal, "positions.weight");
    nm_stack_config stack = stack_config(model);
    NM_TRY(nm_stack_build(&self->encoder, &stack, &model->params, model->options, err));
    if (k) {
        self->words = add_ngrams(model, model->source_size, "words");
        self->bigrams = add_ngrams(model, (int32_t)c->ngram_buckets, "bigrams");
    }
    self->output_weight = nm_params_add(&model->params, model->target_size, d + k, linear, "output.weight");
    self->output_bias = nm_params_add(&model->params, 1, model->target_size, linear, "output.bias");
    return NM_OK;
}

static nm_status classifier_ready(nm_model *model, nm_error *err)
{
    const nm_classifier_model_config *c = model->config;
    classifier *self = model->parts;
    NM_TRY(nm_stack_ready(&self->encoder, model->backend, (int32_t)c->max_positions, err));
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

/* The output layer reads the final norm through the pooling, which commutes with a per-feature affine map.
 * With n-grams the layer has further inputs, which a fold would scale, too. */
static void classifier_fold(const nm_model *model, nm_fold *fold)
{
    const classifier *self = model->parts;
    bool final = nm_stack_fold(&self->encoder, fold, "model.norm", "model.final_norm");
    if (final && !self->words.table)
        nm_fold_add_reader(fold, self->output_weight, self->output_bias);
}

static nm_tensor *embed(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_classifier_model_config *c = model->config;
    classifier *self = model->parts;
    int32_t n = batch->source.n_tokens;
    nm_tensor *x = nm_embed(tape, self->table, batch->source_ids, batch->source_pos, n, 1,
                            self->sinusoid.data ? &self->sinusoid : NULL, nm_stack_embedding_drop(&c->stack));
    if (!self->position_table)
        return x;
    return nm_residual(tape, x, nm_embed(tape, self->position_table, batch->source_pos, NULL, n, 1, NULL, 0),
                       0);
}

int32_t nm_classifier_model_bucket(int64_t buckets, const int32_t *ids, size_t i)
{
    uint32_t before = i ? (uint32_t)ids[i - 1] : UINT32_MAX;
    return (int32_t)(nm_hash_pair(before, (uint32_t)ids[i]) % (uint32_t)buckets);
}

/* The entry of the bigram that ends at each position. */
static const int32_t *find_buckets(nm_tape *tape, const nm_packing *source, const int32_t *ids,
                                   int64_t buckets)
{
    int32_t *found = nm_tape_host(tape, (size_t)source->n_tokens * sizeof *found);
    for (int32_t s = 0; found && s < source->n_seqs; s++)
        for (int32_t i = 0, begin = source->offsets[s]; i < source->offsets[s + 1] - begin; i++)
            found[begin + i] = nm_classifier_model_bucket(buckets, ids + begin, (size_t)i);
    return found;
}

void nm_classifier_model_find_ngrams(nm_model *model, nm_classifier_model_ngrams *words,
                                     nm_classifier_model_ngrams *bigrams)
{
    const classifier *self = model->parts;
    *words = self->words;
    *bigrams = self->bigrams;
}

/* Rows of nm_classifier_model_ngrams.weights for the tokens of packed texts, [tokens]: the id itself where
 * it occurs first in its
 * text, otherwise `entries`, the row with weight 0. */
static const int32_t *first_positions(nm_tape *tape, const nm_packing *source, const int32_t *ids,
                                      int32_t entries)
{
    int32_t *first = nm_tape_host(tape, (size_t)source->n_tokens * sizeof *first);
    int32_t *last_text = nm_tape_host(tape, (size_t)entries * sizeof *last_text);
    for (int32_t s = 0; first && last_text && s < source->n_seqs; s++)
        for (int32_t i = source->offsets[s]; i < source->offsets[s + 1]; i++) {
            first[i] = last_text[ids[i]] == s + 1 ? entries : ids[i];
            last_text[ids[i]] = s + 1;
        }
    return first;
}

/* Weighted sum per text of x, the embeddings of the n-grams with these ids; each n-gram of a text counts
 * once. */
static nm_tensor *sum_ngrams(nm_tape *tape, const nm_classifier_model_ngrams *ngrams, nm_tensor *x,
                             const nm_packing *texts, const int32_t *ids)
{
    const int32_t *entries = first_positions(tape, texts, ids, ngrams->table->rows);
    return nm_pool_weighted(tape, x, texts, ngrams->weights, entries);
}

/* g, [texts, ngram_dim]. */
static nm_tensor *embed_ngrams(const classifier *self, const nm_classifier_model_config *c, nm_tape *tape,
                               const nm_packing *source, const int32_t *ids, const nm_packing *texts)
{
    int32_t n = source->n_tokens;
    const int32_t *buckets = find_buckets(tape, source, ids, c->ngram_buckets);
    double rate = c->embedding_dropout;
    nm_tensor *words = nm_embed(tape, self->words.table, ids, NULL, n, 1, NULL, rate);
    nm_tensor *bigrams = nm_embed(tape, self->bigrams.table, buckets, NULL, n, 1, NULL, rate);
    if (!self->words.weights)
        return nm_pool(tape, nm_residual(tape, words, bigrams, 0), texts, NM_POOL_MEAN);
    nm_tensor *h = nm_residual(tape, sum_ngrams(tape, &self->words, words, texts, ids),
                               sum_ngrams(tape, &self->bigrams, bigrams, texts, buckets), 0);
    return nm_l2_normalize(tape, h);
}

static nm_model_output classifier_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_classifier_model_config *c = model->config;
    classifier *self = model->parts;
    nm_packing texts = nm_tape_packing(tape, &batch->source);
    nm_tensor *x =
        nm_stack_forward(tape, &self->encoder, embed(model, tape, batch), &texts, NULL, NULL, NULL);
    nm_tensor *pooled =
        nm_pool(tape, x, &texts, c->pooling == NM_CLASSIFIER_MEAN ? NM_POOL_MEAN : NM_POOL_FIRST);
    if (self->words.table)
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
    .config_size = sizeof(nm_classifier_model_config),
    .build = classifier_build,
    .ready = classifier_ready,
    .forward = classifier_forward,
    .release = classifier_release,
    .fold = classifier_fold,
};
