/* Reading of CTranslate2 folders: translation models with LayerNorm, in any of the types of weights. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/ctranslate2.h"
#include "convert/ctranslate2_file.h"
#include "convert/import.h"
#include "convert/json_file.h"
#include "model/seq2seq.h"
#include "task/translation.h"

typedef struct reader {
    const char *folder;
    char *config_path;
    json_t *config;
    nm_ct2_file file;
    nm_foreign_vocab vocabs[2];
    nm_import in;
    int64_t width;
    nm_error *err;
} reader;

static const char *const scopes[] = {"encoder", "decoder"};

/* ---- options of the model ---- */

/* Sets values[2] to the scalar of encoder and decoder. */
static nm_status read_scalars(reader *from, const char *name, double otherwise, double *values)
{
    for (int i = 0; i < 2; i++) {
        char full[96];
        snprintf(full, sizeof full, "%s/%s", scopes[i], name);
        values[i] = otherwise;
        if (!nm_ct2_file_scalar(&from->file, full, &values[i]) && isnan(otherwise))
            return nm_fail(from->err, NM_MISMATCH, "%s: has no variable '%s'", from->file.path, full);
    }
    return NM_OK;
}

/* A scalar that both stacks have with the same value. */
static nm_status read_shared(reader *from, const char *name, double *value)
{
    double values[2];
    NM_TRY(read_scalars(from, name, NAN, values));
    *value = values[0];
    return values[0] == values[1]
               ? NM_OK
               : nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is %g in the encoder and %g in the decoder",
                         from->file.path, name, values[0], values[1]);
}

/* Variables that would change the function that the model computes. */
static nm_status check_variant(reader *from)
{
    static const char *const flags[] = {"embeddings_merge",      "layernorm_embedding",
                                        "multi_query_attention", "alibi",
                                        "no_final_norm",         "sliding_window"};
    double values[2];
    if (strcmp(from->file.spec, NM_CT2_SEQ2SEQ_SPEC) || from->file.revision != NM_CT2_SEQ2SEQ_REVISION)
        return nm_fail(from->err, NM_UNSUPPORTED, "%s: %.60s in revision %lld; read is %s in revision %d",
                       from->file.path, from->file.spec, (long long)from->file.revision, NM_CT2_SEQ2SEQ_SPEC,
                       NM_CT2_SEQ2SEQ_REVISION);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        NM_TRY(read_scalars(from, flags[i], 0, values));
        if (values[0] != 0 || values[1] != 0)
            return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is set, which Norma does not have",
                           from->file.path, flags[i]);
    }
    if (nm_json_flag(from->config, "add_source_bos", false) ||
        !nm_json_flag(from->config, "add_source_eos", true))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: a source of Norma ends with the end symbol and has no other special tokens",
                       from->config_path);
    return NM_OK;
}

/* The factor of the embeddings is sqrt(width), also as a flag. With another one the residual stream has another scale, as
 * norm_map.h describes, and the norms are no LayerNorm. */
static nm_status check_scale(reader *from)
{
    double scales[2];
    NM_TRY(read_scalars(from, "scale_embeddings", NAN, scales));
    for (int i = 0; i < 2; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s/scale_embeddings", scopes[i]);
        bool flag = nm_ct2_file_find(&from->file, name)->type == NM_CT2_INT8;
        double factor = flag && scales[i] == 1 ? sqrt((double)from->width) : scales[i];
        if ((float)factor != (float)sqrt((double)from->width))
            return nm_fail(
                from->err, NM_UNSUPPORTED,
                "%s: '%s' is %g and not the root of the width: norms other than LayerNorm are not read",
                from->file.path, name, scales[i]);
    }
    return NM_OK;
}

static int32_t count_layers(const nm_ct2_file *file, const char *scope)
{
    char name[96];
    for (int32_t n = 0;; n++) {
        snprintf(name, sizeof name, "%s/layer_%d/ffn/linear_0/weight", scope, n);
        if (!nm_ct2_file_find(file, name))
            return n;
    }
}

static nm_status set_activation(reader *from)
{
    static const char *const names[] = {"relu", "gelu", "gelu-tanh", "silu"};
    double code;
    NM_TRY(read_shared(from, "activation", &code));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (nm_ct2_activations[i] == code)
            return nm_import_set(&from->in, "model.activation", "%s", names[i]);
    return nm_fail(from->err, NM_UNSUPPORTED, "%s: activation %g is none that Norma has", from->file.path,
                   code);
}

static bool are_one(const reader *from, const char *a, const char *b)
{
    const nm_ct2_variable *x = nm_ct2_file_find(&from->file, a), *y = nm_ct2_file_find(&from->file, b);
    return x && y &&
           (x == y || (x->type == y->type && x->count == y->count && x->rank == y->rank &&
                       !memcmp(x->shape, y->shape, sizeof x->shape) && x->type == NM_CT2_FLOAT32 &&
                       !memcmp(x->data, y->data, x->count * sizeof(float))));
}

static nm_status set_sizes(reader *from)
{
    static const char source[] = "encoder/embeddings_0/weight", target[] = "decoder/embeddings/weight",
                      projection[] = "decoder/projection/weight",
                      positions[] = "encoder/position_encodings/encodings";
    nm_import *in = &from->in;
    const nm_ct2_variable *table = nm_ct2_file_find(&from->file, source),
                          *inner = nm_ct2_file_find(&from->file, "encoder/layer_0/ffn/linear_0/weight"),
                          *places = nm_ct2_file_find(&from->file, positions),
                          *attention =
                              nm_ct2_file_find(&from->file, "encoder/layer_0/self_attention/linear_0/weight");
    double heads, pre_norm;
    if (!table || !inner || !places || table->rank != 2 || inner->rank != 2 || places->rank != 2 ||
        table->shape[1] < 1 || table->shape[1] > 65536 || places->shape[0] > 1 << 20)
        return nm_fail(from->err, NM_MISMATCH,
                       "%s: not a Transformer: no matrix '%s', 'encoder/layer_0/ffn/linear_0/weight' or '%s'",
                       from->file.path, source, positions);
    from->width = table->shape[1];
    /* The memory of the model is then proportional to the file. */
    if (!attention || attention->rank != 2 || attention->shape[0] != 3 * from->width ||
        attention->shape[1] != from->width || inner->shape[1] != from->width ||
        places->shape[1] != from->width)
        return nm_fail(
            from->err, NM_MISMATCH,
            "%s: the matrices of encoder/layer_0 or the positions do not fit embeddings of width %lld",
            from->file.path, (long long)from->width);
    NM_TRY(check_scale(from));
    NM_TRY(read_shared(from, "num_heads", &heads));
    NM_TRY(read_shared(from, "pre_norm", &pre_norm));
    NM_TRY(set_activation(from));
    NM_TRY(nm_import_set(in, "model.width", "%lld", (long long)from->width));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)inner->shape[0]));
    NM_TRY(nm_import_set(in, "model.heads", "%.0f", heads));
    NM_TRY(nm_import_set(in, "model.encoder_layers", "%d", (int)count_layers(&from->file, "encoder")));
    NM_TRY(nm_import_set(in, "model.decoder_layers", "%d", (int)count_layers(&from->file, "decoder")));
    NM_TRY(nm_import_set(in, "model.norm_position", "%s", pre_norm != 0 ? "pre" : "post"));
    NM_TRY(nm_import_set(in, "model.norm", "layer"));
    NM_TRY(nm_import_set(in, "norm.layer.epsilon", "%.9g",
                         nm_json_real(from->config, "layer_norm_epsilon", 1e-5)));
    NM_TRY(nm_import_set(in, "model.max_positions", "%lld", (long long)places->shape[0]));
    NM_TRY(nm_import_set(in, "data.max_length", "%lld",
                         (long long)(places->shape[0] < 256 ? places->shape[0] : 256)));
    const nm_tensor_source file = nm_ct2_file_source(&from->file);
    bool rounded = places->type == NM_CT2_FLOAT16 || places->type == NM_CT2_BFLOAT16;
    NM_TRY(nm_import_positions(in, &file, positions, rounded ? 4e-3 : 1e-4));
    bool tied = are_one(from, target, projection), all = tied && are_one(from, source, target);
    return nm_import_set(in, "model.share_embeddings", "%s", all ? "all" : tied ? "decoder" : "none");
}

/* ---- vocabularies ---- */

/* The array of symbols in FOLDER/NAME as an object of symbols and indexes. */
static nm_status read_list(const reader *from, const char *path, json_t **symbols)
{
    char *text = NULL;
    size_t bytes = 0, i;
    json_error_t problem;
    json_t *list = NULL, *symbol;
    nm_status status = nm_file_read(path, &text, &bytes, from->err);
    if (status == NM_OK && !(list = json_loadb(text, bytes, 0, &problem)))
        status = nm_fail(from->err, NM_FORMAT, "%s:%d: %s", path, problem.line, problem.text);
    if (status == NM_OK && !json_is_array(list))
        status = nm_fail(from->err, NM_FORMAT, "%s: not a list of tokens", path);
    *symbols = json_object();
    json_array_foreach(list, i, symbol)
    {
        const char *name = json_string_value(symbol);
        if (status == NM_OK && (!name || json_object_get(*symbols, name)))
            status = nm_fail(from->err, NM_FORMAT, "%s: token %zu is no text or occurs twice", path, i);
        else if (status == NM_OK)
            json_object_set_new(*symbols, name, json_integer((json_int_t)i));
    }
    json_decref(list);
    free(text);
    return status;
}

/* The index of the special token that config.json names; -1: none. */
static int32_t special(const reader *from, const nm_foreign_vocab *vocab, const char *key,
                       const char *otherwise)
{
    const char *name = json_string_value(json_object_get(from->config, key));
    return nm_foreign_vocab_find(vocab, name ? name : otherwise);
}

static nm_status read_vocab(reader *from, int side)
{
    static const char *const own[] = {"source_vocabulary.json", "target_vocabulary.json"},
                             *const tables[] = {"encoder/embeddings_0/weight", "decoder/embeddings/weight"};
    const nm_ct2_variable *table = nm_ct2_file_find(&from->file, tables[side]);
    nm_foreign_vocab *vocab = &from->vocabs[side];
    json_t *symbols = NULL;
    double zero[2];
    if (!table || table->rank != 2 || table->shape[0] > NM_VOCAB_MAX_SIZE)
        return nm_fail(from->err, NM_MISMATCH, "%s: has no matrix '%s' of a vocabulary", from->file.path,
                       tables[side]);
    char *path = nm_path_join(from->folder, "shared_vocabulary.json");
    if (!nm_file_exists(path)) {
        free(path);
        path = nm_path_join(from->folder, own[side]);
    }
    nm_status status = read_list(from, path, &symbols);
    if (status == NM_OK)
        status = nm_foreign_vocab_read(vocab, symbols, table->shape[0], path, from->err);
    json_decref(symbols);
    if (status == NM_OK)
        status = read_scalars(from, "start_from_zero_embedding", 0, zero);
    if (status == NM_OK) {
        vocab->eos = special(from, vocab, "eos_token", "</s>");
        vocab->unk = special(from, vocab, "unk_token", "<unk>");
        vocab->bos = special(from, vocab, "bos_token", "<s>");
        vocab->pad = nm_foreign_vocab_find(vocab, "<pad>");
        vocab->pad = vocab->pad < 0 ? nm_foreign_vocab_find(vocab, "<blank>") : vocab->pad;
        vocab->first = zero[1] != 0 ? -1 : special(from, vocab, "decoder_start_token", "<s>");
        if (vocab->eos < 0 || vocab->unk < 0 || (side && zero[1] == 0 && vocab->first < 0))
            status =
                nm_fail(from->err, NM_FORMAT, "%s: has no end symbol, unknown token or first token of %s",
                        path, from->config_path);
    }
    if (status == NM_OK) /* the source has the order of the target */
        status = nm_import_vocab(&from->in, vocab, side, path);
    free(path);
    return status;
}

/* ---- tensors ---- */

/* Variables that are read as options, or that only alignments use. */
static bool ignored(const char *name)
{
    static const char *const list[] = {"num_heads",
                                       "pre_norm",
                                       "activation",
                                       "scale_embeddings",
                                       "embeddings_merge",
                                       "layernorm_embedding",
                                       "start_from_zero_embedding",
                                       "multi_query_attention",
                                       "alibi",
                                       "alibi_use_positive_positions",
                                       "scale_alibi",
                                       "no_final_norm",
                                       "sliding_window",
                                       "alignment_layer",
                                       "alignment_heads",
                                       "position_encodings/encodings"};
    static const char scale[] = "/weight_scale";
    size_t n = strlen(name);
    if (n > strlen(scale) && !strcmp(name + n - strlen(scale), scale))
        return true;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            if (!strncmp(name, scopes[s], strlen(scopes[s])) && name[strlen(scopes[s])] == '/' &&
                !strcmp(name + strlen(scopes[s]) + 1, list[i]))
                return true;
    return false;
}

static void map_linear(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, const char *scope,
                       const char *name)
{
    nm_tensor_map_add(map, weight, "%s/%s/weight", scope, name);
    nm_tensor_map_add(map, bias, "%s/%s/bias", scope, name)->optional = true;
}

static void map_norm(const reader *from, nm_tensor_map *map, const nm_norm *norm, const char *scope)
{
    static const char *const params[] = {"weight", "bias"}, *const names[] = {"gamma", "beta"};
    for (int i = 0; i < 2; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s.%s", norm->site.name, params[i]);
        nm_tensor_map_add(map, &nm_params_find(&from->in.model->params, name)->tensor, "%s/layer_norm/%s",
                          scope, names[i]);
    }
}

static void map_stack(const reader *from, nm_tensor_map *map, const nm_stack *stack, const char *scope)
{
    char at[64];
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        snprintf(at, sizeof at, "%s/layer_%d/self_attention", scope, i);
        map_linear(map, layer->self.in_weight, layer->self.in_bias, at, "linear_0");
        map_linear(map, layer->self.out_weight, layer->self.out_bias, at, "linear_1");
        map_norm(from, map, layer->self.norm, at);
        if (layer->cross.norm) {
            snprintf(at, sizeof at, "%s/layer_%d/attention", scope, i);
            map_linear(map, layer->cross.in_weight, layer->cross.in_bias, at, "linear_0");
            map_linear(map, layer->cross.kv_weight, layer->cross.kv_bias, at, "linear_1");
            map_linear(map, layer->cross.out_weight, layer->cross.out_bias, at, "linear_2");
            map_norm(from, map, layer->cross.norm, at);
        }
        snprintf(at, sizeof at, "%s/layer_%d/ffn", scope, i);
        map_linear(map, layer->ffn.in_weight, layer->ffn.in_bias, at, "linear_0");
        map_linear(map, layer->ffn.out_weight, layer->ffn.out_bias, at, "linear_1");
        map_norm(from, map, layer->ffn.norm, at);
    }
    if (stack->final_norm)
        map_norm(from, map, stack->final_norm, scope);
}

/* Shared matrices are read once, and named in all their places. */
static void map_embeddings(const reader *from, nm_tensor_map *map)
{
    const nm_seq2seq *s = nm_seq2seq_of(from->in.model);
    nm_tensor_map_add(map, s->source_table, "encoder/embeddings_0/weight")->vocab = NM_OF_SOURCE_VOCAB;
    nm_tensor_map_add(map, s->target_table, "decoder/embeddings/weight")->vocab = NM_OF_TARGET_VOCAB;
    nm_tensor_map_add(map, s->output_weight, "decoder/projection/weight")->vocab = NM_OF_TARGET_VOCAB;
    if (s->output_bias) {
        nm_map_entry *bias = nm_tensor_map_add(map, s->output_bias, "decoder/projection/bias");
        bias->vocab = NM_OF_TARGET_VOCAB;
        bias->optional = true;
    }
}

static bool has_output_bias(const reader *from)
{
    const nm_tensor_source source = nm_ct2_file_source(&from->file);
    const nm_ct2_variable *variable = nm_ct2_file_find(&from->file, "decoder/projection/bias");
    int64_t shape[NM_CT2_MAX_RANK];
    int rank;
    double *bias = variable ? source.read(&from->file, "decoder/projection/bias", &rank, shape) : NULL;
    bool any = false;
    for (size_t i = 0; bias && i < variable->count; i++)
        any |= bias[i] != 0;
    free(bias);
    return any;
}

static bool ignored_without_bias(const char *name)
{
    return ignored(name) || !strcmp(name, "decoder/projection/bias");
}

static nm_status load(reader *from, const char *output)
{
    nm_import *in = &from->in;
    nm_tensor_map map = {0};
    nm_tensor_source source = nm_ct2_file_source(&from->file);
    NM_TRY(nm_import_declare(in));
    const nm_seq2seq *s = nm_seq2seq_of(in->model);
    source.ignored = s->output_bias ? ignored : ignored_without_bias;
    map_embeddings(from, &map);
    map_stack(from, &map, &s->encoder, "encoder");
    map_stack(from, &map, &s->decoder, "decoder");
    nm_status status = nm_import_load(in, &map, &source);
    nm_tensor_map_release(&map);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

static nm_status read_folder(reader *from, const char *output)
{
    char *path = nm_path_join(from->folder, "model.bin");
    nm_status status = nm_ct2_file_read(&from->file, path, from->err);
    free(path);
    NM_TRY(status);
    NM_TRY(nm_json_read(&from->config, from->config_path, from->err));
    NM_TRY(nm_import_begin(&from->in, &nm_task_translation, from->err));
    NM_TRY(check_variant(from));
    NM_TRY(set_sizes(from));
    for (int side = 0; side < 2; side++)
        NM_TRY(read_vocab(from, side));
    NM_TRY(nm_import_set(&from->in, "model.output_bias", "%s",
                         has_output_bias(from) || nm_import_excludes(&from->in) ? "true" : "false"));
    NM_TRY(nm_import_texts(&from->in, from->folder));
    return load(from, output);
}

nm_status nm_ctranslate2_read(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err)
{
    (void)settings;
    reader from = {.folder = path, .config_path = nm_path_join(path, "config.json"), .err = err};
    nm_status status = read_folder(&from, output);
    nm_import_release(&from.in);
    nm_foreign_vocab_release(&from.vocabs[0]);
    nm_foreign_vocab_release(&from.vocabs[1]);
    nm_ct2_file_release(&from.file);
    json_decref(from.config);
    free(from.config_path);
    return status;
}
