/* Text classification as in Wang et al. 2022, whose program is declare-lab's "identifiable transformers" (Bhardwaj et al.
 * 2021): token embeddings, few encoder layers, the first token's vector, one linear map to the classes. Differences to
 * that program: texts are packed, so that padding is neither attended to nor counted in a batch statistic (its mask is
 * built the wrong way round); the mean of all tokens is a choice beside the first one. */
#include "model/classifier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/positions.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_classifier_config, field, initial, min, max, help)
#define PICK(field, initial, choices, help) NM_CHOICE(nm_classifier_config, field, initial, choices, help)

/* clang-format off */
static const nm_option classifier_options[] = {
    PICK(preset, "small", "reference|small|tiny", "sizes and dropout of a known model"),
    ROW(width, "128", 2, 65536, "features per token (d)"),
    ROW(ff, "256", 1, 1 << 20, "width of the feed-forward layer"),
    ROW(heads, "4", 1, 1024, "attention heads"),
    ROW(key_size, "16", 0, 65536, "features of a query or key in each head; 0: width / heads, as values have"),
    ROW(layers, "1", 1, 1000, "encoder layers"),
    PICK(norm_position, "post", "pre|post", "norm before each sublayer (and behind the last) or after each residual sum"),
    ROW(norm, "layer", 0, 0, "normalization of every site"),
    ROW(final_norm, "", 0, 0, "behind the encoder (pre-norm); empty: as norm"),
    PICK(init, "torch", "torch|xavier-normal|small|fairseq|rbn", "initialization (PyTorch's own layers, Xavier normal, SmallInit, fairseq's, RBN's)"),
    PICK(positions, "none", "none|learned|sinusoid", "what is added to say where a token stands"),
    ROW(max_positions, "512", 8, 1 << 20, "longest text in tokens, with the two that frame it"),
    PICK(pooling, "first", "first|mean", "the text's vector: that of the first token, or the mean of all"),
    ROW(dropout, "0.1", 0, 0.99, "on every sublayer's output"),
    ROW(attention_dropout, "0.1", 0, 0.99, "on attention weights"),
    ROW(relu_dropout, "0.1", 0, 0.99, "behind the feed-forward activation"),
    ROW(embedding_dropout, "0.1", 0, 0.99, "on token embeddings"),
    {0}};

static const nm_preset classifier_presets[] = {
    {"reference", "width=32 ff=256 heads=4 key_size=16 layers=1 norm_position=post init=torch positions=none pooling=first dropout=0.1 attention_dropout=0.1 relu_dropout=0.1 embedding_dropout=0.1", "the defaults of the program that the RBN paper used"},
    {"small", "width=128 ff=256 heads=4 key_size=16 layers=1 norm_position=post init=torch positions=none pooling=first dropout=0.1 attention_dropout=0.1 relu_dropout=0.1 embedding_dropout=0.1", "the same four times as wide"},
    {"tiny", "width=16 ff=32 heads=2 key_size=0 layers=1 norm_position=post init=torch positions=none pooling=first dropout=0 attention_dropout=0 relu_dropout=0 embedding_dropout=0", "for tests"},
    {0}};
/* clang-format on */

typedef struct classifier {
    nm_tensor *table, *position_table, *output_weight, *output_bias;
    nm_stack encoder;
    nm_mat sinusoid; /* [max_positions, width], device; empty unless positions = sinusoid */
} classifier;

/* ---- building ---- */

static nm_stack_config stack_config(const nm_model *model)
{
    const nm_classifier_config *c = model->config;
    nm_stack_config config = nm_stack_configure(&c->stack, model->warmup_steps, "enc");
    config.layers = (int32_t)c->layers;
    config.key_width = (int32_t)(c->key_size * c->heads);
    config.init = nm_init_scheme_find(c->init);
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
    const nm_init normal = {NM_INIT_NORMAL, 1}, linear = {NM_INIT_UNIFORM, 1 / sqrt(d)};
    self->table = nm_params_add(&model->params, model->source_size, d, normal, "embed.weight");
    if (!strcmp(c->positions, "learned"))
        self->position_table =
            nm_params_add(&model->params, (int32_t)c->max_positions, d, normal, "positions.weight");
    nm_stack_config stack = stack_config(model);
    NM_TRY(nm_stack_build(&self->encoder, &stack, &model->params, model->options, err));
    self->output_weight = nm_params_add(&model->params, model->target_size, d, linear, "output.weight");
    self->output_bias = nm_params_add(&model->params, 1, model->target_size, linear, "output.bias");
    return NM_OK;
}

static nm_status classifier_ready(nm_model *model, nm_error *err)
{
    const nm_classifier_config *c = model->config;
    classifier *self = model->parts;
    if (strcmp(c->positions, "sinusoid"))
        return NM_OK;
    return nm_positions_alloc(model->backend, NM_POSITIONS_TEARS, (int32_t)c->max_positions,
                              (int32_t)c->width, &self->sinusoid, err);
}

static void classifier_release(nm_model *model)
{
    classifier *self = model->parts;
    nm_positions_dealloc(model->backend, &self->sinusoid);
    nm_stack_release(&self->encoder);
    free(self);
}

/* Pooling is a mean, which a map per feature can follow as well as precede. */
static void classifier_fold(const nm_model *model, nm_fold *fold)
{
    const classifier *self = model->parts;
    if (nm_stack_fold(&self->encoder, fold, "model.norm", "model.final_norm"))
        nm_fold_add_map(fold, self->output_weight, self->output_bias);
}

/* ---- running ---- */

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

static nm_model_output classifier_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    const nm_classifier_config *c = model->config;
    classifier *self = model->parts;
    nm_packing texts = nm_tape_packing(tape, &batch->source);
    nm_tensor *x = nm_stack_forward(tape, &self->encoder, embed(model, tape, batch), &texts, NULL, NULL);
    nm_tensor *pooled = nm_pool(tape, x, &texts, strcmp(c->pooling, "mean") ? NM_POOL_FIRST : NM_POOL_MEAN);
    return (nm_model_output){.hidden = pooled, .weight = self->output_weight, .bias = self->output_bias};
}

const nm_model_type nm_model_classifier = {
    .name = "classifier",
    .options = classifier_options,
    .presets = classifier_presets,
    .config_size = sizeof(nm_classifier_config),
    .build = classifier_build,
    .ready = classifier_ready,
    .forward = classifier_forward,
    .release = classifier_release,
    .fold = classifier_fold,
};
