/* The encoder-decoder Transformer (Vaswani et al. 2017) with the variants of the papers on translation: norms
 * per site, pre- or post-norm, FixNorm, shared embeddings, position tables and initializations of fairseq and
 * of Nguyen and Salazar 2019. */
#include "model/seq2seq.h"

#include <math.h>
#include <stdlib.h>

#include "nn/positions.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_seq2seq_config, field, initial, min, max, help)
#define PICK(field, initial, LIST, help)    NM_CHOICE(nm_seq2seq_config, field, initial, LIST, help)
#define WORD(field, initial, words, help)   NM_WORD(nm_seq2seq_config, field, initial, words, help)

/* clang-format off */
static const nm_option seq2seq_options[] = {
    WORD(preset, "small", "tiny|small|iwslt|base|big|tears|tfixup",
        "Sizes, dropout rates and defaults of a known model, or a structure (tfixup)."),
    NM_STACK_ROWS(nm_seq2seq_config, "256", "1024", "4",
                  "pre",
                  "0.3", "Dropout rate on the output of each sublayer.", "0.1", "0.1", "0.3"),
    ROW(encoder_layers, "3", 1, 1000, "Number of encoder layers."),
    ROW(decoder_layers, "3", 1, 1000, "Number of decoder layers."),
    ROW(encoder_norm, "", 0, 0, "Normalization of the encoder's sublayers; empty: as model.norm."),
    ROW(encoder_final_norm, "", 0, 0,
        "Normalization after the encoder, not in post-norm; empty: as model.encoder_norm."),
    ROW(decoder_norm, "", 0, 0,
        "Normalization of the decoder's sublayers; empty: as model.norm, but layer if that uses batch "
        "statistics, as in the papers."),
    ROW(decoder_final_norm, "", 0, 0,
        "Normalization after the decoder, not in post-norm; empty: as model.decoder_norm."),
    ROW(fixnorm, "false", 0, 1,
        "FixNorm: L2-normalized token embeddings (Nguyen and Salazar 2019, section 2.3)."),
    PICK(init, "fairseq", NM_INIT_SCHEMES, NM_INIT_SCHEME_HELP),
    PICK(share_embeddings, "all", NM_SHARINGS,
        "Sharing of matrices: source, target and output (all), target and output (decoder), or none."),
    ROW(output_bias, "false", 0, 1, "Bias of the output projection."),
    PICK(positions, "fairseq", NM_SEQ2SEQ_POSITIONS,
        "Sinusoidal position embeddings: fairseq's, those of Transformers without Tears, of Marian models in "
        "transformers, or of tensor2tensor and Marian; or none."),
    ROW(max_positions, "1024", 8, 1 << 20, "Maximum length of a sequence in tokens."),
    ROW(alignment_head, "0", 0, 1000,
        "Guided alignment: cross-attention head that is trained on the word alignments of the data folder, "
        "from 1; translate --alignment uses it; 0: none."),
    ROW(alignment_layer, "0", 0, 1000,
        "Guided alignment: decoder layer of model.alignment_head, from 1; 0: the penultimate one."),
    {0}};

static const nm_option_rule seq2seq_rules[] = {
    NM_STACK_RULES,
    {"model.alignment_layer", "model.alignment_head", "!0", "it is the layer of that head", NULL},
    {"model.encoder_final_norm", NULL, NULL, "post-norm has no final norm", nm_stack_has_final_norm},
    {"model.decoder_final_norm", NULL, NULL, "post-norm has no final norm", nm_stack_has_final_norm},
    {0}};

static const nm_preset seq2seq_presets[] = {
    {"tiny",
        "width=128 ff=512 heads=4 encoder_layers=2 decoder_layers=2 dropout=0.1 attention_dropout=0 "
        "relu_dropout=0 embedding_dropout=0.1", "Demos and tests."},
    {"small",
        "width=256 ff=1024 heads=4 encoder_layers=3 decoder_layers=3 dropout=0.3 attention_dropout=0.1 "
        "relu_dropout=0.1 embedding_dropout=0.3", "About 30,000 sentence pairs on a laptop."},
    {"iwslt",
        "width=512 ff=1024 heads=4 encoder_layers=6 decoder_layers=6 dropout=0.3 attention_dropout=0.1 "
        "relu_dropout=0.1 embedding_dropout=0.3", "fairseq's transformer_iwslt_de_en (PN and RBN papers)."},
    {"base",
        "width=512 ff=2048 heads=8 encoder_layers=6 decoder_layers=6 dropout=0.1 attention_dropout=0.1 "
        "relu_dropout=0.1 embedding_dropout=0.1", "fairseq's transformer_wmt_en_de."},
    {"big",
        "width=1024 ff=4096 heads=16 encoder_layers=6 decoder_layers=6 dropout=0.3 attention_dropout=0.1 "
        "relu_dropout=0.1 embedding_dropout=0.3", "fairseq's transformer_wmt_en_de_big."},
    {"tears",
        "width=512 ff=2048 heads=8 encoder_layers=6 decoder_layers=6 dropout=0.3 attention_dropout=0.3 "
        "relu_dropout=0.3 embedding_dropout=0.3", "Sizes of Transformers without Tears, low-resource "
        "language pairs."},
    /* a structure; sizes are set separately */
    {"tfixup", "norm=none norm_position=pre residual=plain init=tfixup",
        "Structure of T-Fixup: no norms, and an initialization that needs no warm-up."},
    {0}};
/* clang-format on */

int32_t nm_seq2seq_alignment_layer(const nm_seq2seq_config *config)
{
    int64_t penultimate = config->decoder_layers > 1 ? config->decoder_layers - 2 : 0;
    return (int32_t)(config->alignment_layer ? config->alignment_layer - 1 : penultimate);
}

static const char *or_else(const char *chosen, const char *otherwise)
{
    return *chosen ? chosen : otherwise;
}

static nm_stack_config stack_config(const nm_model *model, bool decoder)
{
    const nm_seq2seq_config *c = model->config;
    nm_stack_config config = nm_stack_configure(&c->stack, model->plan, decoder ? "dec" : "enc");
    config.decoder = decoder;
    config.feeds_decoder = !decoder;
    config.layers = (int32_t)(decoder ? c->decoder_layers : c->encoder_layers);
    config.init = c->init;
    config.depths = (nm_depths){(int32_t)c->encoder_layers, (int32_t)c->decoder_layers};
    config.norm = decoder ? or_else(c->decoder_norm, nm_stack_decoder_norm(c->norm))
                          : or_else(c->encoder_norm, c->norm);
    config.final_norm = or_else(decoder ? c->decoder_final_norm : c->encoder_final_norm, config.norm);
    return config;
}

/* T-Fixup scales embeddings by the depth of the stack that reads them, a shared table by that of the
 * encoder. */
static nm_init table_init(const nm_seq2seq_config *c, bool decoder)
{
    const nm_init init = {.kind = c->fixnorm ? NM_INIT_UNIFORM : NM_INIT_NORMAL,
                          .scale = c->fixnorm ? 0.01 : 1 / sqrt((double)c->width)};
    const nm_depths depths = {(int32_t)c->encoder_layers, (int32_t)c->decoder_layers};
    return nm_init_scaled(init, nm_init_depth_factors(c->init, depths, decoder).embedding);
}

static void build_tables(nm_model *model, nm_seq2seq *s)
{
    const nm_seq2seq_config *c = model->config;
    int32_t d = (int32_t)c->width;
    nm_init source = table_init(c, false), target = table_init(c, true);
    nm_params *params = &model->params;
    bool shared = c->share_embeddings == NM_SHARE_ALL, tied = c->share_embeddings != NM_SHARE_NONE;
    s->source_table =
        nm_params_add(params, model->source_size, d, source, shared ? "embed.weight" : "enc.embed.weight");
    s->target_table =
        shared ? s->source_table : nm_params_add(params, model->target_size, d, target, "dec.embed.weight");
    s->output_weight =
        tied ? s->target_table : nm_params_add(params, model->target_size, d, target, "output.weight");
    if (c->output_bias)
        s->output_bias =
            nm_params_add(params, 1, model->target_size, (nm_init){.kind = NM_INIT_CONSTANT}, "output.bias");
}

static nm_status seq2seq_build(nm_model *model, nm_error *err)
{
    const nm_seq2seq_config *c = model->config;
    nm_seq2seq *s = model->parts = nm_allocate(sizeof *s);
    NM_TRY(nm_stack_check(&c->stack, true, err));
    if (c->share_embeddings == NM_SHARE_ALL && model->source_size != model->target_size)
        return nm_fail(
            err, NM_MISMATCH,
            "model.share_embeddings = all needs a joint vocabulary, but the source vocabulary has %d "
            "tokens and the target vocabulary %d: prepare the data with a joint vocabulary or set "
            "model.share_embeddings = decoder",
            model->source_size, model->target_size);
    if (c->alignment_head > c->heads || c->alignment_layer > c->decoder_layers)
        return nm_fail(
            err, NM_USAGE,
            "model.alignment_head = %lld, model.alignment_layer = %lld: the model has %lld heads and "
            "%lld decoder layers",
            (long long)c->alignment_head, (long long)c->alignment_layer, (long long)c->heads,
            (long long)c->decoder_layers);
    build_tables(model, s);
    nm_stack_config encoder = stack_config(model, false), decoder = stack_config(model, true);
    NM_TRY(nm_stack_build(&s->encoder, &encoder, &model->params, model->options, err));
    return nm_stack_build(&s->decoder, &decoder, &model->params, model->options, err);
}

static nm_status seq2seq_ready(nm_model *model, nm_error *err)
{
    const nm_seq2seq_config *c = model->config;
    nm_seq2seq *s = model->parts;
    int32_t longest = (int32_t)c->max_positions;
#define KIND(constant, word, kind) [constant] = kind,
    static const nm_position_kind kinds[] = {NM_SEQ2SEQ_POSITIONS(KIND)};
#undef KIND
    NM_TRY(nm_stack_ready(&s->encoder, model->backend, longest, err));
    NM_TRY(nm_stack_ready(&s->decoder, model->backend, longest, err));
    if (c->positions == NM_SEQ2SEQ_NO_POSITIONS)
        return NM_OK;
    return nm_positions_alloc(model->backend, kinds[c->positions], longest, (int32_t)c->width, &s->positions,
                              err);
}

static void seq2seq_release(nm_model *model)
{
    nm_seq2seq *s = model->parts;
    nm_positions_dealloc(model->backend, &s->positions);
    nm_stack_release(&s->encoder, model->backend);
    nm_stack_release(&s->decoder, model->backend);
    free(s);
}

/* The encoder's final norm is read by the key and value projections of all decoder layers, the decoder's by
 * the output projection. An output projection that is shared with an embedding or L2-normalized (FixNorm)
 * cannot absorb a norm. */
static void seq2seq_fold(const nm_model *model, nm_fold *fold)
{
    const nm_seq2seq *s = model->parts;
    const nm_seq2seq_config *c = model->config;
    if (nm_stack_fold(&s->encoder, fold, "model.encoder_norm", "model.encoder_final_norm"))
        for (int32_t i = 0; i < s->decoder.config.layers; i++)
            nm_fold_add_reader(fold, s->decoder.layers[i].cross.kv_weight,
                               s->decoder.layers[i].cross.kv_bias);
    if (nm_stack_fold(&s->decoder, fold, "model.decoder_norm", "model.decoder_final_norm") &&
        c->share_embeddings == NM_SHARE_NONE && !c->fixnorm)
        nm_fold_add_reader(fold, s->output_weight, s->output_bias);
}

static nm_generator_tables seq2seq_tables(nm_model *model, nm_tape *tape)
{
    const nm_seq2seq *s = model->parts;
    nm_generator_tables tables = {.source = s->source_table,
                                  .target = s->target_table,
                                  .output = {.weight = s->output_weight, .bias = s->output_bias}};
    if (!nm_seq2seq_config_of(model)->fixnorm)
        return tables;
    tables.source = nm_l2_normalize(tape, s->source_table);
    tables.target =
        s->target_table == s->source_table ? tables.source : nm_l2_normalize(tape, s->target_table);
    tables.output.weight =
        s->output_weight == s->target_table ? tables.target : nm_l2_normalize(tape, s->output_weight);
    return tables;
}

static nm_tensor *seq2seq_embed(nm_model *model, nm_tape *tape, nm_tensor *table, const int32_t *ids,
                                const int32_t *pos, int32_t n)
{
    const nm_seq2seq_config *c = model->config;
    const nm_mat *positions = &nm_seq2seq_of(model)->positions;
    return nm_embed(tape, table, ids, pos, n, sqrt((double)c->width), positions->data ? positions : NULL,
                    nm_stack_embedding_drop(&c->stack));
}

static nm_model_output seq2seq_forward(nm_model *model, nm_tape *tape, const nm_batch *batch)
{
    nm_seq2seq *s = model->parts;
    nm_packing source = nm_tape_packing(tape, &batch->source), target = nm_tape_packing(tape, &batch->target);
    nm_generator_tables tables = seq2seq_tables(model, tape);
    nm_tensor *x =
        seq2seq_embed(model, tape, tables.source, batch->source_ids, batch->source_pos, source.n_tokens);
    nm_tensor *memory = nm_stack_forward(tape, &s->encoder, x, &source, NULL, NULL, NULL);
    nm_tensor *y =
        seq2seq_embed(model, tape, tables.target, batch->target_in, batch->target_pos, target.n_tokens);
    tables.output.hidden = nm_stack_forward(tape, &s->decoder, y, &target, memory, &source, batch->more);
    return tables.output;
}

static const nm_stack *seq2seq_decoder(const nm_model *model)
{
    return &nm_seq2seq_of(model)->decoder;
}

static const nm_stack *seq2seq_encoder(const nm_model *model)
{
    return &nm_seq2seq_of(model)->encoder;
}

static int32_t seq2seq_context(const nm_model *model)
{
    return (int32_t)nm_seq2seq_config_of(model)->max_positions;
}

static const nm_generator seq2seq_generator = {.decoder = seq2seq_decoder,
                                               .encoder = seq2seq_encoder,
                                               .context = seq2seq_context,
                                               .tables = seq2seq_tables,
                                               .embed = seq2seq_embed};

const nm_model_type nm_model_seq2seq = {
    .name = "seq2seq",
    .options = seq2seq_options,
    .presets = seq2seq_presets,
    .rules = seq2seq_rules,
    .config_size = sizeof(nm_seq2seq_config),
    .build = seq2seq_build,
    .ready = seq2seq_ready,
    .forward = seq2seq_forward,
    .release = seq2seq_release,
    .fold = seq2seq_fold,
    .generator = &seq2seq_generator,
};
