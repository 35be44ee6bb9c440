/* Transformers of Marian (Junczys-Dowmunt et al. 2018): npz files of its trainer, post-norm
 * (transformer-postprocess "dan") or pre-norm (transformer-preprocess "n", transformer-postprocess "da",
 * transformer-postprocess-top "n"), with vocabularies in YAML or SentencePiece models. The array
 * "special:model.yml" has the options of the model.
 *
 * Marian stores matrices as [inputs, outputs]. The first input of its decoder is a zero vector, which becomes
 * the embedding of <s> (special_ids = tears). Its positions are those of tensor2tensor; its LayerNorm has
 * epsilon 1e-6. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/npz.h"
#include "convert/convert.h"
#include "convert/import.h"
#include "convert/json_file.h"
#include "convert/yaml_file.h"
#include "model/seq2seq.h"
#include "task/translation.h"

static const char config_name[] = "special:model.yml";

typedef struct reader {
    const char *path;
    char *config_path; /* for messages */
    nm_npz file;
    json_t *config;
    nm_foreign_vocab vocabs[2];
    nm_import in;
    bool pre_norm;
    nm_error *err;
} reader;

static nm_status read_config(reader *from)
{
    const nm_npz_array *array = nm_npz_find(&from->file, config_name);
    if (!array || array->item_bytes != 1)
        return nm_fail(from->err, NM_FORMAT, "%s: not a model of Marian: no %s", from->path, config_name);
    return nm_yaml_parse(&from->config, array->data, strnlen(array->data, array->bytes), from->config_path,
                         from->err);
}

static const char *text_of(const reader *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from->config, key));
    return text ? text : "";
}

static nm_status unsupported(const reader *from, const char *key)
{
    NM_AUTO_FREE char *value = json_dumps(json_object_get(from->config, key), JSON_ENCODE_ANY | JSON_COMPACT);
    return nm_fail(from->err, NM_UNSUPPORTED, "%s: %s is %.100s, which Norma does not support",
                   from->config_path, key, value ? value : "missing");
}

/* NM_UNSUPPORTED for options that change the function that the model computes. */
static nm_status check_variant(reader *from)
{
    static const struct {
        const char *key, *value;
    } texts[] = {{"type", "transformer"}, {"transformer-decoder-autoreg", "self-attention"}};
    static const char *const flags[] = {"transformer-no-projection",
                                        "transformer-no-bias",
                                        "transformer-no-affine",
                                        "transformer-train-position-embeddings",
                                        "transformer-disable-position-embeddings",
                                        "transformer-alibi-trainable",
                                        "transformer-alibi-shift",
                                        "transformer-pool",
                                        "right-left",
                                        "ulr"};
    static const char *const lists[] = {"transformer-tied-layers", "input-types"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(text_of(from, texts[i].key), texts[i].value))
            return unsupported(from, texts[i].key);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (nm_json_flag(from->config, flags[i], false))
            return unsupported(from, flags[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (json_array_size(json_object_get(from->config, lists[i])))
            return unsupported(from, lists[i]);
    if (nm_json_id(from->config, "factors-dim-emb", 0))
        return unsupported(from, "factors-dim-emb");
    if (*text_of(from, "transformer-attention-mask") &&
        strcmp(text_of(from, "transformer-attention-mask"), "default"))
        return unsupported(from, "transformer-attention-mask");
    if (strchr(text_of(from, "transformer-postprocess-emb"), 'n'))
        return unsupported(from, "transformer-postprocess-emb");
    return NM_OK;
}

/* Whether the steps of an option, without dropout ("d"), are `steps`: "a" adds the residual, "n"
 * normalizes. */
static bool has_steps(const reader *from, const char *key, const char *steps)
{
    char found[8];
    size_t n = 0;
    for (const char *at = text_of(from, key); *at && n + 1 < sizeof found; at++)
        if (*at != 'd')
            found[n++] = *at;
    found[n] = 0;
    return !strcmp(found, steps);
}

static nm_status set_norm_position(reader *from)
{
    static const char *const keys[] = {"transformer-preprocess", "transformer-postprocess",
                                       "transformer-postprocess-top"};
    static const char *const post[] = {"", "an", ""}, *const pre[] = {"n", "a", "n"};
    from->pre_norm = has_steps(from, keys[0], "n");
    for (int i = 0; i < 3; i++)
        if (!has_steps(from, keys[i], from->pre_norm ? pre[i] : post[i]))
            return unsupported(from, keys[i]);
    NM_TRY(nm_import_set(&from->in, "model.norm_position", "%s", from->pre_norm ? "pre" : "post"));
    NM_TRY(nm_import_set(&from->in, "model.norm", "layer"));
    return nm_import_set(&from->in, "norm.layer.epsilon", "1e-6");
}

static nm_status set_activation(reader *from)
{
    const char *name = text_of(from, "transformer-ffn-activation");
    bool swish = !strcmp(name, "swish");
    if (!swish && strcmp(name, "relu"))
        return unsupported(from, "transformer-ffn-activation"); /* gelu is Marian's x sigmoid(1.702 x) */
    return nm_import_set(&from->in, "model.activation", "%s", swish ? "silu" : "relu");
}

/* Reads the size of the feed-forward layers, which must be equal in encoder and decoder. */
static nm_status set_feed_forward(reader *from, int64_t *ff)
{
    static const char depth[] = "transformer-ffn-depth", decoder_depth[] = "transformer-decoder-ffn-depth",
                      decoder_width[] = "transformer-decoder-dim-ffn";
    NM_TRY(nm_json_count(from->config, "transformer-dim-ffn", 1 << 20, from->config_path, ff, from->err));
    int64_t other = nm_json_id(from->config, decoder_depth, 0),
            width = nm_json_id(from->config, decoder_width, 0);
    if (nm_json_id(from->config, depth, 2) != 2)
        return unsupported(from, depth);
    if (other != 0 && other != 2)
        return unsupported(from, decoder_depth);
    return width != 0 && width != *ff ? unsupported(from, decoder_width) : NM_OK;
}

static nm_status set_options(reader *from)
{
    static const struct {
        const char *key, *option;
        int64_t max;
    } counts[] = {{"dim-emb", "model.width", 65536},
                  {"transformer-heads", "model.heads", 1024},
                  {"enc-depth", "model.encoder_layers", 1000},
                  {"dec-depth", "model.decoder_layers", 1000}};
    nm_import *in = &from->in;
    int64_t ff;
    NM_TRY(check_variant(from));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t value;
        NM_TRY(
            nm_json_count(from->config, counts[i].key, counts[i].max, from->config_path, &value, from->err));
        NM_TRY(nm_import_set(in, counts[i].option, "%lld", (long long)value));
    }
    NM_TRY(set_feed_forward(from, &ff));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)ff));
    NM_TRY(set_norm_position(from));
    NM_TRY(set_activation(from));
    NM_TRY(nm_import_set(in, "model.positions", "tensor2tensor"));
    bool tied = nm_json_flag(from->config, "tied-embeddings", false),
         all = nm_json_flag(from->config, "tied-embeddings-all", false);
    return nm_import_set(in, "model.share_embeddings", "%s", all ? "all" : tied ? "decoder" : "none");
}

static bool is_sentencepiece(const char *path)
{
    return nm_ends_with(path, ".spm");
}

/* Reads the pieces of a SentencePiece model as an object that maps symbols to indices. */
static nm_status read_pieces(reader *from, int side, const char *path, json_t **symbols)
{
    nm_translation_parts *parts = from->in.loaded.task.parts;
    NM_TRY(nm_model_spm_read(&parts->spm[side], path, from->err));
    const nm_counter *pieces = &parts->spm[side].spm->texts;
    *symbols = json_object();
    for (size_t i = 0; i < pieces->n; i++)
        if (json_object_set_new(*symbols, pieces->items[i].text, json_integer((json_int_t)i)))
            return nm_fail(from->err, NM_FORMAT, "%s: piece %zu is not UTF-8", path, i);
    return NM_OK;
}

static nm_status read_vocab(reader *from, int side, const char *path)
{
    const json_t *sizes = json_object_get(from->config, "dim-vocabs"); /* validated by check_sizes */
    nm_foreign_vocab *vocab = &from->vocabs[side];
    json_auto_t *symbols = NULL;
    int64_t n = json_integer_value(json_array_get(sizes, (size_t)side));
    nm_status status = is_sentencepiece(path) ? read_pieces(from, side, path, &symbols)
                                              : nm_yaml_read(&symbols, path, from->err);
    NM_THEN(status, nm_foreign_vocab_read(vocab, symbols, n, path, from->err));
    NM_TRY(status);
    vocab->eos = nm_foreign_vocab_find(vocab, "</s>");
    vocab->unk = nm_foreign_vocab_find(vocab, "<unk>");
    if (vocab->eos < 0 || vocab->unk < 0)
        return nm_fail(from->err, NM_FORMAT, "%s: the vocabulary has no </s> or no <unk>", path);
    return nm_import_vocab(&from->in, vocab, side, path);
}

/* vocabs: paths "SOURCE,TARGET". */
static nm_status read_vocabs(reader *from, const char *vocabs)
{
    NM_AUTO_FREE char *copy = nm_path_list_next(&vocabs, NULL, NULL),
                      *target = nm_path_list_next(&vocabs, NULL, NULL);
    nm_status status = NM_OK;
    if (!target)
        status =
            nm_fail(from->err, NM_USAGE,
                    "%s: the vocabularies of Marian are separate files: --vocabs SOURCE,TARGET", from->path);
    NM_THEN(status, read_vocab(from, 0, copy));
    NM_THEN(status, read_vocab(from, 1, target));
    if (status == NM_OK && is_sentencepiece(copy) != is_sentencepiece(target))
        status = nm_fail(from->err, NM_UNSUPPORTED,
                         "%s: one side has a SentencePiece model and the other none", from->path);
    NM_TRY(status);
    NM_TRY(nm_import_set(&from->in, "model.output_bias", "true")); /* <s> is never output */
    nm_import_settings(&from->in);
    return NM_OK;
}

static bool array_shape(const void *file, const char *name, int *rank, int64_t *shape)
{
    const nm_npz_array *array = nm_npz_find(file, name);
    if (!array || array->kind != 'f' || (array->item_bytes != 4 && array->item_bytes != 8))
        return false;
    *rank = array->rank;
    memcpy(shape, array->shape, (size_t)array->rank * sizeof *shape);
    return true;
}

static double *read_array(const void *file, const char *name, int *rank, int64_t *shape)
{
    if (!array_shape(file, name, rank, shape))
        return NULL;
    const nm_npz_array *array = nm_npz_find(file, name);
    double *values = nm_allocate((array->count + 1) * sizeof *values);
    for (size_t i = 0; i < array->count; i++) {
        float single;
        if (array->item_bytes == 8) {
            memcpy(&values[i], (const char *)array->data + i * sizeof(double), sizeof(double));
        } else {
            memcpy(&single, (const char *)array->data + i * sizeof single, sizeof single);
            values[i] = (double)single;
        }
    }
    return values;
}

static const char *array_name(const void *file, size_t index)
{
    const nm_npz *npz = file;
    return index < npz->n ? npz->arrays[index].name : NULL;
}

static bool is_config(const char *name)
{
    return !strcmp(name, config_name);
}

static void map_linear(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, int32_t part, int32_t parts,
                       const char *prefix, const char *name)
{
    nm_tensor_map_add_part(map, weight, part, parts, "%s_W%s", prefix, name)->transposed = true;
    nm_tensor_map_add_part(map, bias, part, parts, "%s_b%s", prefix, name);
}

static void map_norm(const reader *from, nm_tensor_map *map, const nm_norm *norm, const char *prefix,
                     bool top)
{
    static const char *const params[] = {"weight", "bias"}, *const names[] = {"scale", "bias"};
    for (int i = 0; i < 2; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s.%s", norm->site.name, params[i]);
        nm_tensor *tensor = &nm_params_find(&from->in.loaded.model->params, name)->tensor;
        nm_tensor_map_add(map, tensor, "%s_ln_%s%s", prefix, names[i], from->pre_norm && !top ? "_pre" : "");
    }
}

static void map_attention(const reader *from, nm_tensor_map *map, const nm_sublayer_attention *attention,
                          const char *prefix)
{
    static const char *const projections[] = {"q", "k", "v"};
    bool cross = attention->kv_weight != NULL;
    char norm[96];
    for (int i = 0; i < 3; i++)
        if (cross && i)
            map_linear(map, attention->kv_weight, attention->kv_bias, i - 1, 2, prefix, projections[i]);
        else
            map_linear(map, attention->in_weight, attention->in_bias, cross ? 0 : i, cross ? 1 : 3, prefix,
                       projections[i]);
    map_linear(map, attention->out_weight, attention->out_bias, 0, 1, prefix, "o");
    snprintf(norm, sizeof norm, "%s_Wo", prefix);
    map_norm(from, map, attention->norm, norm, false);
}

static void map_stack(const reader *from, nm_tensor_map *map, const nm_stack *stack, const char *scope)
{
    char prefix[64];
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        snprintf(prefix, sizeof prefix, "%s_l%d_self", scope, i + 1);
        map_attention(from, map, &layer->self, prefix);
        if (layer->cross.norm) {
            snprintf(prefix, sizeof prefix, "%s_l%d_context", scope, i + 1);
            map_attention(from, map, &layer->cross, prefix);
        }
        snprintf(prefix, sizeof prefix, "%s_l%d_ffn", scope, i + 1);
        map_linear(map, layer->ffn.in_weight, layer->ffn.in_bias, 0, 1, prefix, "1");
        map_linear(map, layer->ffn.out_weight, layer->ffn.out_bias, 0, 1, prefix, "2");
        snprintf(prefix, sizeof prefix, "%s_l%d_ffn_ffn", scope, i + 1);
        map_norm(from, map, layer->ffn.norm, prefix, false);
    }
    if (stack->final_norm) {
        snprintf(prefix, sizeof prefix, "%s_top", scope);
        map_norm(from, map, stack->final_norm, prefix, true);
    }
}

/* Both sides share the matrix "Wemb" if it exists. The output projection is stored as it is or transposed. */
static void map_embeddings(const reader *from, nm_tensor_map *map)
{
    static const char shared[] = "Wemb", *const own[] = {"encoder_Wemb", "decoder_Wemb"};
    const nm_seq2seq *s = nm_seq2seq_of(from->in.loaded.model);
    nm_tensor *const tables[] = {s->source_table, s->target_table};
    bool one = nm_npz_find(&from->file, shared) != NULL;
    for (int side = 0; side < 2; side++)
        if (!side || tables[1] != tables[0])
            nm_tensor_map_add(map, tables[side], "%s", one ? shared : own[side])->vocab =
                side ? NM_OF_TARGET_VOCAB : NM_OF_SOURCE_VOCAB;
    if (s->output_weight != s->target_table) {
        bool turned = nm_npz_find(&from->file, "decoder_ff_logit_out_Wt") == NULL;
        nm_map_entry *entry =
            nm_tensor_map_add(map, s->output_weight, "decoder_ff_logit_out_W%s", turned ? "" : "t");
        entry->vocab = NM_OF_TARGET_VOCAB;
        entry->transposed = turned;
    }
    nm_map_entry *bias = nm_tensor_map_add(map, s->output_bias, "decoder_ff_logit_out_b");
    bias->vocab = NM_OF_TARGET_VOCAB;
    bias->optional = nm_json_flag(from->config, "output-omit-bias", false);
}

/* NM_MISMATCH unless there is an array with rows x columns elements. The memory that the options require is
 * then proportional to the size of the file. */
static nm_status check_array(const reader *from, const char *name, int64_t rows, int64_t columns)
{
    const nm_npz_array *array = nm_npz_find(&from->file, name);
    if (array && array->count == (size_t)rows * (size_t)columns)
        return NM_OK;
    return nm_fail(from->err, NM_MISMATCH, "%s: has no array '%s' of [%lld x %lld]", from->path, name,
                   (long long)rows, (long long)columns);
}

/* The embeddings and the last layers must exist with the sizes of the options. */
static nm_status check_sizes(const reader *from)
{
    static const char *const scopes[] = {"encoder", "decoder"}, *const depths[] = {"enc-depth", "dec-depth"},
                             *const names[] = {"self_Wo", "ffn_W1"};
    const json_t *sizes = json_object_get(from->config, "dim-vocabs");
    int64_t width = nm_json_id(from->config, "dim-emb", 0),
            ff = nm_json_id(from->config, "transformer-dim-ffn", 0);
    bool shared = nm_npz_find(&from->file, "Wemb") != NULL;
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        int64_t n = json_integer_value(json_array_get(sizes, i));
        if (n < 1 || n > NM_VOCAB_MAX_SIZE)
            return nm_fail(from->err, NM_FORMAT, "%s: 'dim-vocabs' does not have two sizes",
                           from->config_path);
        snprintf(name, sizeof name, "%s_Wemb", scopes[i]);
        NM_TRY(check_array(from, shared ? "Wemb" : name, n, width));
    }
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_l%lld_%s", scopes[i / 2],
                 (long long)nm_json_id(from->config, depths[i / 2], 0), names[i % 2]);
        NM_TRY(check_array(from, name, width, i % 2 ? ff : width));
    }
    return NM_OK;
}

static nm_status load(reader *from, const char *output)
{
    nm_import *in = &from->in;
    const nm_tensor_source source = {.path = from->path,
                                     .file = &from->file,
                                     .shape = array_shape,
                                     .read = read_array,
                                     .name = array_name,
                                     .ignored = is_config};
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    NM_TRY(nm_import_declare(in));
    const nm_seq2seq *s = nm_seq2seq_of(in->loaded.model);
    map_embeddings(from, &map);
    map_stack(from, &map, &s->encoder, "encoder");
    map_stack(from, &map, &s->decoder, "decoder");
    nm_status status = nm_import_load(in, &map, &source);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

static nm_status read_model(reader *from, const nm_convert_settings *settings, const char *output)
{
    NM_TRY(nm_npz_read(&from->file, from->path, from->err));
    NM_TRY(read_config(from));
    NM_TRY(nm_import_begin(&from->in, &nm_task_translation, from->err));
    NM_TRY(set_options(from));
    NM_TRY(check_sizes(from));
    NM_TRY(read_vocabs(from, settings->vocabs));
    return load(from, output);
}

static nm_status read_marian(const char *path, const nm_convert_settings *settings, const char *output,
                             nm_error *err)
{
    reader from = {.path = path, .config_path = nm_format("%s: %s", path, config_name), .err = err};
    nm_status status = read_model(&from, settings, output);
    nm_import_release(&from.in);
    nm_foreign_vocab_release(&from.vocabs[0]);
    nm_foreign_vocab_release(&from.vocabs[1]);
    nm_npz_release(&from.file);
    json_decref(from.config);
    free(from.config_path);
    return status;
}

const nm_foreign_format nm_format_marian = {
    .name = "marian",
    .title = "Marian npz file",
    .read = read_marian,
    .uses_vocabs = true,
};
