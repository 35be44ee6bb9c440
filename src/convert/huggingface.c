/* Hugging Face folders (config.json, generation_config.json, model.safetensors, tokenizer.json), for the classes of
 * `transformers` that compute the same function:
 *     M2M100ForConditionalGeneration    translation, pre-norm, LayerNorm, fairseq's positions
 *     MarianMTModel                     translation, post-norm, LayerNorm
 *     GPT2LMHeadModel                   language models, pre-norm, LayerNorm
 * tokenizer.json splits at spaces and looks subwords up: it reads what `norma subword` writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/convert.h"
#include "convert/import.h"
#include "convert/json_file.h"
#include "convert/norm_map.h"
#include "convert/tensor_map.h"
#include "convert/torch_layers.h"
#include "model/lm.h"
#include "model/seq2seq.h"
#include "nn/positions.h"
#include "task/lm_task.h"
#include "task/translation.h"

/* The classes M2M100 and Marian have nn.LayerNorm with its default. */
static const double LAYER_NORM_EPSILON = 1e-5;

/* ---- tensors ---- */

/* With shared embeddings the file has one matrix, and the class ties the others to it. */
static void map_seq2seq(nm_tensor_map *map, nm_model *model)
{
    const nm_seq2seq *s = nm_seq2seq_of(model);
    if (s->source_table == s->target_table) {
        nm_tensor_map_add(map, s->source_table, "model.shared.weight")->vocab = NM_OF_SOURCE_VOCAB;
    } else {
        nm_tensor_map_add(map, s->source_table, "model.encoder.embed_tokens.weight")->vocab =
            NM_OF_SOURCE_VOCAB;
        nm_tensor_map_add(map, s->target_table, "model.decoder.embed_tokens.weight")->vocab =
            NM_OF_TARGET_VOCAB;
    }
    if (s->output_weight != s->source_table)
        nm_tensor_map_add(map, s->output_weight, "lm_head.weight")->vocab = NM_OF_TARGET_VOCAB;
    nm_torch_layers_add(map, model, &s->encoder, "model.encoder");
    nm_torch_layers_add(map, model, &s->decoder, "model.decoder");
}

/* GPT-2's linear layers are transposed. */
static void map_transposed(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, const char *name)
{
    nm_tensor_map_add(map, weight, "%s.weight", name)->transposed = true;
    nm_tensor_map_add(map, bias, "%s.bias", name);
}

static void map_gpt2(nm_tensor_map *map, nm_model *model, const char *prefix)
{
    const nm_lm *lm = nm_lm_of(model);
    char name[64];
    nm_map_entry *table = nm_tensor_map_add(map, lm->table, "%swte.weight", prefix);
    table->vocab = NM_OF_TARGET_VOCAB;
    table->factor = sqrt((double)nm_lm_config_of(model)->width); /* the class does not scale embeddings */
    for (int32_t i = 0; i < lm->stack.config.layers; i++) {
        const nm_layer *layer = &lm->stack.layers[i];
#define NAMED(part) (snprintf(name, sizeof name, "%sh.%d.%s", prefix, i, part), name)
        nm_torch_norm_add(map, model, layer->self.norm, NAMED("ln_1"));
        map_transposed(map, layer->self.in_weight, layer->self.in_bias, NAMED("attn.c_attn"));
        map_transposed(map, layer->self.out_weight, layer->self.out_bias, NAMED("attn.c_proj"));
        nm_torch_norm_add(map, model, layer->ffn.norm, NAMED("ln_2"));
        map_transposed(map, layer->ffn.in_weight, layer->ffn.in_bias, NAMED("mlp.c_fc"));
        map_transposed(map, layer->ffn.out_weight, layer->ffn.out_bias, NAMED("mlp.c_proj"));
#undef NAMED
    }
    snprintf(name, sizeof name, "%sln_f", prefix);
    nm_torch_norm_add(map, model, lm->stack.final_norm, name);
}

/* ---- what the classes cannot compute ---- */

static nm_status check_norm(const nm_norm *norm, nm_backend *backend, double *eps, nm_error *err)
{
    nm_norm_map map;
    nm_status status = nm_norm_map_make(&map, norm, backend, err);
    if (status == NM_OK && map.kind != NM_NORM_AS_LAYER)
        status = nm_fail(err, NM_UNSUPPORTED, "%s is %s: the class has LayerNorm only", norm->site.name,
                         norm->type->name);
    if (status == NM_OK && norm->type->token_spec(norm).kind != NM_TOKEN_CENTER)
        status = nm_fail(err, NM_UNSUPPORTED,
                         "norm.layer.unbiased = true: the classes of transformers use the biased variance");
    if (status == NM_OK && *eps > 0 && *eps != map.eps)
        status = nm_fail(err, NM_UNSUPPORTED, "%s has epsilon %g: the class has %g", norm->site.name, map.eps,
                         *eps);
    *eps = map.eps;
    nm_norm_map_release(&map);
    return status;
}

static nm_status check_norms(const nm_model *model, double *eps, nm_error *err)
{
    for (size_t i = 0; i < model->params.n_norms; i++)
        NM_TRY(check_norm(model->params.norms[i], model->backend, eps, err));
    return NM_OK;
}

static bool is_zero(const nm_model *model, const nm_tensor *vector)
{
    double *values = nm_param_values(model->backend, vector);
    bool zero = true;
    for (int32_t i = 0; vector && i < vector->cols; i++)
        zero &= values[i] == 0;
    free(values);
    return zero;
}

static nm_status check_seq2seq(const nm_model *model, bool pre_norm, nm_error *err)
{
    const nm_seq2seq_config *c = nm_seq2seq_config_of(model);
    const nm_seq2seq *s = model->parts;
    double eps = LAYER_NORM_EPSILON;
    NM_TRY(check_norms(model, &eps, err));
    if (c->fixnorm)
        return nm_fail(err, NM_UNSUPPORTED,
                       "model.fixnorm = true: the class has no L2-normalized embeddings");
    if (pre_norm && c->positions != NM_SEQ2SEQ_FAIRSEQ)
        return nm_fail(err, NM_UNSUPPORTED, "model.positions: the class M2M100 has fairseq's positions only");
    if (pre_norm && !is_zero(model, s->output_bias))
        return nm_fail(err, NM_UNSUPPORTED,
                       "model.output_bias = true: the class M2M100 has no bias of the output projection");
    if (model->source_size != model->target_size)
        return nm_fail(
            err, NM_UNSUPPORTED,
            "the vocabularies have %d and %d tokens: the folder has one vocabulary (norma prepare --joint)",
            model->source_size, model->target_size);
    return NM_OK;
}

/* ---- files ---- */

static nm_status write_tensors(const nm_tensor_list *list, const char *folder, nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add_metadata(writer, "format", "pt");
    for (size_t i = 0; i < list->n; i++)
        nm_safetensors_add(writer, list->items[i].name, NM_TENSOR_F32, list->items[i].rank,
                           list->items[i].shape, list->items[i].data);
    char *path = nm_path_join(folder, "model.safetensors");
    nm_status status = nm_safetensors_finish(writer, path, err);
    free(path);
    return status;
}

static json_t *special_token(const nm_vocab *vocab, int32_t id)
{
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content",
                     nm_vocab_symbol(vocab, id), "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0,
                     "special", 1);
}

/* Words are separated by spaces; with ends, </s> is added to a text. */
static json_t *tokenizer_of(const nm_vocab *vocab, bool ends)
{
    json_t *symbols = json_object(), *added = json_array(), *processor = json_null();
    const int32_t special[] = {vocab->bos, vocab->pad, vocab->eos, vocab->unk};
    for (int32_t i = 0; i < nm_vocab_size(vocab); i++)
        json_object_set_new(symbols, nm_vocab_symbol(vocab, i), json_integer(i));
    for (int i = 0; i < 4; i++)
        json_array_append_new(added, special_token(vocab, special[i]));
    const char *eos = nm_vocab_symbol(vocab, vocab->eos);
    if (ends)
        processor = json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], "
                              "s:{s:{s:s, s:[i], s:[s]}}}",
                              "type", "TemplateProcessing", "single", "Sequence", "id", "A", "type_id", 0,
                              "SpecialToken", "id", eos, "type_id", 0, "pair", "Sequence", "id", "A",
                              "type_id", 0, "Sequence", "id", "B", "type_id", 0, "special_tokens", eos, "id",
                              eos, "ids", (int)vocab->eos, "tokens", eos);
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:{s:s}, s:o, s:n, s:{s:s, s:o, s:s}}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer", "type",
                     "WhitespaceSplit", "post_processor", processor, "decoder", "model", "type", "WordLevel",
                     "vocab", symbols, "unk_token", nm_vocab_symbol(vocab, vocab->unk));
}

static nm_status write_tokenizer(const nm_vocab *vocab, bool ends, int64_t longest, const char *folder,
                                 nm_error *err)
{
    NM_TRY(nm_json_write(tokenizer_of(vocab, ends), folder, "tokenizer.json", err));
    return nm_json_write(json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b}", "tokenizer_class",
                                   "PreTrainedTokenizerFast", "bos_token", nm_vocab_symbol(vocab, vocab->bos),
                                   "eos_token", nm_vocab_symbol(vocab, vocab->eos), "pad_token",
                                   nm_vocab_symbol(vocab, vocab->pad), "unk_token",
                                   nm_vocab_symbol(vocab, vocab->unk), "model_max_length",
                                   (json_int_t)longest, "clean_up_tokenization_spaces", 0),
                         folder, "tokenizer_config.json", err);
}

/* By nm_activation: names of transformers. */
static const char *const activation_names[] = {"relu", "gelu", "gelu_new", "silu"};

/* Tokens that a translation may not contain: <pad>, and those outside of the output vocabulary of data.mask_words. */
static json_t *suppressed(const nm_translation_parts *parts)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < nm_vocab_size(parts->target_vocab); i++)
        if (i == parts->target_vocab->pad || (parts->allowed && !parts->allowed[i]))
            json_array_append_new(list, json_integer(i));
    return list;
}

static nm_status write_seq2seq_config(const nm_loaded_model *loaded, bool pre_norm, const char *folder,
                                      nm_error *err)
{
    const nm_seq2seq_config *c = nm_seq2seq_config_of(loaded->model);
    const nm_seq2seq *s = loaded->model->parts;
    const nm_translation_parts *parts = loaded->task.parts;
    const nm_vocab *vocab = parts->target_vocab;
    bool all = c->share_embeddings == NM_SHARE_ALL;
    json_t *config = json_pack(
        "{s:[s], s:s, s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, "
        "s:b, s:b, "
        "s:b, s:i, s:i, s:i, s:i}",
        "architectures", pre_norm ? "M2M100ForConditionalGeneration" : "MarianMTModel", "model_type",
        pre_norm ? "m2m_100" : "marian", "is_encoder_decoder", 1, "dtype", "float32", "vocab_size",
        (int)loaded->model->target_size, "d_model", (json_int_t)c->width, "encoder_layers",
        (json_int_t)c->encoder_layers, "decoder_layers", (json_int_t)c->decoder_layers,
        "encoder_attention_heads", (json_int_t)c->heads, "decoder_attention_heads", (json_int_t)c->heads,
        "encoder_ffn_dim", (json_int_t)c->ff, "decoder_ffn_dim", (json_int_t)c->ff, "max_position_embeddings",
        (json_int_t)c->max_positions, "activation_function", activation_names[s->encoder.config.activation],
        "dropout", c->dropout, "attention_dropout", c->attention_dropout, "activation_dropout",
        c->relu_dropout, "encoder_layerdrop", 0.0, "decoder_layerdrop", 0.0, "scale_embedding", 1,
        "share_encoder_decoder_embeddings", all, "tie_word_embeddings", all, "decoder_start_token_id",
        (int)nm_translation_first_id(vocab), "bos_token_id", (int)vocab->bos, "eos_token_id", (int)vocab->eos,
        "pad_token_id", (int)vocab->pad);
    if (config && !pre_norm)
        json_object_set_new(config, "forced_eos_token_id", json_null());
    NM_TRY(nm_json_write(config, folder, "config.json", err));
    json_t *generation = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:I, s:o}", "num_beams", 1, "decoder_start_token_id",
        (int)nm_translation_first_id(vocab), "bos_token_id", (int)vocab->bos, "eos_token_id", (int)vocab->eos,
        "pad_token_id", (int)vocab->pad, "max_length",
        (json_int_t)(c->max_positions < 256 ? c->max_positions : 256), "suppress_tokens", suppressed(parts));
    return nm_json_write(generation, folder, "generation_config.json", err);
}

/* The table of positions, which the class Marian stores; and the bias of the output projection, [1, V]. */
static void add_marian_tensors(const nm_model *model, nm_tensor_list *list)
{
    const nm_seq2seq *s = model->parts;
    int64_t rows = s->positions.rows, d = s->positions.cols;
    double *table = nm_allocate((size_t)(rows * d) * sizeof *table);
    nm_backend_read(model->backend, table, s->positions.data, (size_t)(rows * d));
    nm_tensor_list_add(list, table, rows, d, "model.encoder.embed_positions.weight");
    nm_tensor_list_add(list, table, rows, d, "model.decoder.embed_positions.weight");
    free(table);
    double *bias = s->output_bias ? nm_param_values(model->backend, s->output_bias)
                                  : nm_allocate((size_t)model->target_size * sizeof *bias);
    nm_tensor_list_add(list, bias, 1, model->target_size, "final_logits_bias");
    free(bias);
}

static nm_status write_seq2seq(const nm_loaded_model *loaded, const char *folder, nm_error *err)
{
    nm_model *model = loaded->model;
    const nm_translation_parts *parts = loaded->task.parts;
    bool pre_norm = nm_seq2seq_config_of(model)->norm_position == NM_PRE_NORM;
    nm_tensor_map map = {0};
    nm_tensor_list list = {0};
    NM_TRY(check_seq2seq(model, pre_norm, err));
    if (strcmp(parts->texts[NM_TEXT_SOURCE], parts->texts[NM_TEXT_TARGET]))
        return nm_fail(err, NM_UNSUPPORTED,
                       "the dictionaries of source and target differ: the folder has one "
                       "vocabulary (norma prepare --joint)");
    if (pre_norm && parts->target_vocab->order != NM_VOCAB_FAIRSEQ)
        return nm_fail(
            err, NM_UNSUPPORTED,
            "prepare.special_ids = tears: the positions of the class M2M100 depend on the id of <pad>");
    map_seq2seq(&map, model);
    nm_tensor_map_write(&map, model->backend, &list);
    if (!pre_norm)
        add_marian_tensors(model, &list);
    nm_status status = write_tensors(&list, folder, err);
    nm_tensor_list_release(&list);
    nm_tensor_map_release(&map);
    if (status == NM_OK)
        status = write_seq2seq_config(loaded, pre_norm, folder, err);
    return status == NM_OK ? write_tokenizer(parts->target_vocab, true,
                                             nm_seq2seq_config_of(model)->max_positions, folder, err)
                           : status;
}

static nm_status check_lm(const nm_model *model, double *eps, nm_error *err)
{
    const nm_lm_config *c = nm_lm_config_of(model);
    if (c->attention != NM_LM_SOFTMAX)
        return nm_fail(err, NM_UNSUPPORTED, "model.attention = block-term has no class in transformers");
    if (c->adaptive)
        return nm_fail(err, NM_UNSUPPORTED, "model.adaptive = true: the class GPT-2 has no adaptive softmax");
    if (c->norm_position != NM_PRE_NORM)
        return nm_fail(err, NM_UNSUPPORTED, "model.norm_position = post: the class GPT-2 is pre-norm");
    if (!is_zero(model, nm_lm_of((nm_model *)(uintptr_t)model)->output_bias))
        return nm_fail(err, NM_UNSUPPORTED,
                       "model.output_bias = true: the class GPT-2 has no bias of the output projection");
    return check_norms(model, eps, err);
}

static void add_gpt2_tensors(const nm_model *model, nm_tensor_list *list)
{
    const nm_lm *lm = model->parts;
    const nm_lm_config *c = nm_lm_config_of(model);
    double *output = nm_param_values(model->backend, lm->output_weight), *positions;
    nm_tensor_list_add(list, output, model->target_size, c->width, "lm_head.weight");
    free(output);
    size_t n = (size_t)c->context * (size_t)c->width;
    positions = lm->position_table ? nm_param_values(model->backend, lm->position_table)
                                   : nm_allocate(n * sizeof *positions);
    if (lm->positions.data)
        nm_backend_read(model->backend, positions, lm->positions.data, n);
    nm_tensor_list_add(list, positions, c->context, c->width, "transformer.wpe.weight");
    free(positions);
}

static nm_status write_gpt2(const nm_loaded_model *loaded, const char *folder, nm_error *err)
{
    nm_model *model = loaded->model;
    const nm_lm_parts *parts = loaded->task.parts;
    const nm_vocab *vocab = parts->vocab;
    nm_tensor_map map = {0};
    nm_tensor_list list = {0};
    double eps = 0;
    NM_TRY(check_lm(model, &eps, err));
    const nm_lm_config *c = nm_lm_config_of(model);
    map_gpt2(&map, model, "transformer.");
    nm_tensor_map_write(&map, model->backend, &list);
    add_gpt2_tensors(model, &list);
    nm_status status = write_tensors(&list, folder, err);
    nm_tensor_list_release(&list);
    nm_tensor_map_release(&map);
    NM_TRY(status);
    NM_TRY(nm_json_write(
        json_pack("{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:b, s:i, s:i}",
                  "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "dtype", "float32", "vocab_size",
                  (int)model->target_size, "n_embd", (json_int_t)c->width, "n_layer", (json_int_t)c->layers,
                  "n_head", (json_int_t)c->heads, "n_inner", (json_int_t)c->ff, "n_positions",
                  (json_int_t)c->context, "activation_function", activation_names[c->activation],
                  "layer_norm_epsilon", eps, "resid_pdrop", c->dropout, "embd_pdrop", c->embedding_dropout,
                  "attn_pdrop", c->attention_dropout, "tie_word_embeddings", 0, "bos_token_id",
                  (int)vocab->eos, "eos_token_id", (int)vocab->eos),
        folder, "config.json", err));
    NM_TRY(nm_json_write(json_pack("{s:i, s:i, s:i, s:I}", "bos_token_id", (int)vocab->eos, "eos_token_id",
                                   (int)vocab->eos, "pad_token_id", (int)vocab->pad, "max_length",
                                   (json_int_t)c->context),
                         folder, "generation_config.json", err));
    return write_tokenizer(vocab, false, c->context, folder, err);
}

static nm_status write_huggingface(const nm_loaded_model *loaded, const char *folder, nm_error *err)
{
    if (loaded->model->type == &nm_model_seq2seq)
        return write_seq2seq(loaded, folder, err);
    if (loaded->model->type == &nm_model_lm)
        return write_gpt2(loaded, folder, err);
    return nm_fail(err, NM_UNSUPPORTED, "a model of the task %s has no class in transformers",
                   loaded->task.type->name);
}

/* ---- reading ---- */

typedef struct reader {
    const char *folder;
    char *config_path;
    json_t *config;
    nm_safetensors *file;
    nm_foreign_vocab vocab;
    nm_import in;
    nm_error *err;
} reader;

static nm_status open_tensors(reader *from)
{
    char *path = nm_path_join(from->folder, "model.safetensors"),
         *pickle = nm_path_join(from->folder, "pytorch_model.bin");
    nm_status status =
        !nm_file_exists(path) && nm_file_exists(pickle)
            ? nm_fail(from->err, NM_UNSUPPORTED,
                      "%s: a pickle is not read; transformers writes model.safetensors (save_pretrained)",
                      pickle)
            : nm_safetensors_open(&from->file, path, from->err);
    free(path);
    free(pickle);
    return status;
}

/* vocab.json, or the WordLevel model that this file writes. */
static nm_status open_vocab(reader *from, int64_t size)
{
    char *path = nm_path_join(from->folder, "vocab.json");
    json_t *file = NULL;
    bool tokenizer = !nm_file_exists(path);
    if (tokenizer) {
        free(path);
        path = nm_path_join(from->folder, "tokenizer.json");
    }
    nm_status status = nm_json_read(&file, path, from->err);
    const json_t *symbols = file, *model = json_object_get(file, "model");
    if (status == NM_OK && tokenizer) {
        const char *type = json_string_value(json_object_get(model, "type"));
        symbols = json_object_get(model, "vocab");
        if (!type || strcmp(type, "WordLevel") || !json_is_object(symbols))
            status = nm_fail(from->err, NM_UNSUPPORTED,
                             "%s: only models of the type WordLevel are read; otherwise vocab.json is needed",
                             path);
    }
    if (status == NM_OK)
        status = nm_foreign_vocab_read(&from->vocab, symbols, size, path, from->err);
    json_decref(file);
    free(path);
    return status;
}

static int32_t token_of(const reader *from, const char *key, int32_t otherwise)
{
    int64_t id = nm_json_id(from->config, key, otherwise);
    return id >= 0 && id < INT32_MAX ? (int32_t)id : -1;
}

static int32_t index_of(const nm_foreign_vocab *vocab, const char *symbol)
{
    for (int32_t i = 0; i < vocab->n; i++)
        if (vocab->symbols[i] && !strcmp(vocab->symbols[i], symbol))
            return i;
    return -1;
}

static nm_status set_activation(reader *from)
{
    static const struct {
        const char *name, *activation;
    } known[] = {{"relu", "relu"},          {"gelu", "gelu"},
                 {"gelu_new", "gelu-tanh"}, {"gelu_pytorch_tanh", "gelu-tanh"},
                 {"swish", "silu"},         {"silu", "silu"}};
    const char *name = json_string_value(json_object_get(from->config, "activation_function"));
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return nm_import_set(&from->in, "model.activation", "%s", known[i].activation);
    return nm_fail(from->err, NM_UNSUPPORTED, "%s: activation_function '%.50s' is none that Norma has",
                   from->config_path, name ? name : "");
}

/* Flags of a configuration that change the function that the class computes. */
typedef struct flag {
    const char *key;
    bool expected;
} flag;

static nm_status check_flags(reader *from, const flag *flags)
{
    for (; flags->key; flags++)
        if (nm_json_flag(from->config, flags->key, flags->expected) != flags->expected)
            return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is %s, which Norma does not have",
                           from->config_path, flags->key, flags->expected ? "false" : "true");
    return NM_OK;
}

static nm_status read_count(reader *from, const char *key, int64_t max, int64_t *value)
{
    return nm_json_count(from->config, key, max, from->config_path, value, from->err);
}

/* A number that encoder and decoder must share. */
static nm_status read_shared(reader *from, const char *what, int64_t max, int64_t *value)
{
    char encoder[64], decoder[64];
    int64_t other;
    snprintf(encoder, sizeof encoder, "encoder_%s", what);
    snprintf(decoder, sizeof decoder, "decoder_%s", what);
    NM_TRY(read_count(from, encoder, max, value));
    NM_TRY(read_count(from, decoder, max, &other));
    if (*value != other)
        return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' and '%s' differ, which Norma does not have",
                       from->config_path, encoder, decoder);
    return NM_OK;
}

enum { MAX_WIDTH = 65536, MAX_INNER = 1 << 20, MAX_LAYERS = 1000, MAX_HEADS = 1024 };

/* Sets the sizes that both kinds of model have. */
static nm_status set_seq2seq_options(reader *from, bool pre_norm)
{
    static const flag flags[] = {{"normalize_embedding", false},       {"add_bias_logits", false},
                                 {"static_position_embeddings", true}, {"scale_embedding", true},
                                 {"is_encoder_decoder", true},         {NULL, false}};
    int64_t width, ff, heads, encoder, decoder, positions;
    NM_TRY(check_flags(from, flags));
    if (nm_json_flag(from->config, "normalize_before", pre_norm) != pre_norm ||
        nm_json_flag(from->config, "add_final_layer_norm", pre_norm) != pre_norm)
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: 'normalize_before' or 'add_final_layer_norm' is not that of the class",
                       from->config_path);
    NM_TRY(read_count(from, "d_model", MAX_WIDTH, &width));
    NM_TRY(read_shared(from, "ffn_dim", MAX_INNER, &ff));
    NM_TRY(read_shared(from, "attention_heads", MAX_HEADS, &heads));
    NM_TRY(read_count(from, "encoder_layers", MAX_LAYERS, &encoder));
    NM_TRY(read_count(from, "decoder_layers", MAX_LAYERS, &decoder));
    NM_TRY(read_count(from, "max_position_embeddings", 1 << 20, &positions));
    NM_TRY(set_activation(from));
    nm_import *in = &from->in;
    NM_TRY(nm_import_set(in, "model.norm_position", "%s", pre_norm ? "pre" : "post"));
    NM_TRY(nm_import_set(in, "model.norm", "layer"));
    NM_TRY(nm_import_set(in, "norm.layer.epsilon", "1e-5"));
    NM_TRY(nm_import_set(in, "model.width", "%lld", (long long)width));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)ff));
    NM_TRY(nm_import_set(in, "model.heads", "%lld", (long long)heads));
    NM_TRY(nm_import_set(in, "model.encoder_layers", "%lld", (long long)encoder));
    NM_TRY(nm_import_set(in, "model.decoder_layers", "%lld", (long long)decoder));
    NM_TRY(nm_import_set(in, "model.max_positions", "%lld", (long long)positions));
    return nm_import_set(in, "data.max_length", "%lld", (long long)(positions < 256 ? positions : 256));
}

/* Marian models may have a stored table of positions, which must be one that Norma has. */
static nm_status set_positions(reader *from, bool pre_norm)
{
    static const char *const names[] = {"marian", "fairseq", "tears"};
    static const nm_position_kind kinds[] = {NM_POSITIONS_MARIAN, NM_POSITIONS_FAIRSEQ, NM_POSITIONS_TEARS};
    const nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    int64_t shape[8] = {0};
    int rank = 0;
    double *table =
        pre_norm ? NULL : source.read(from->file, "model.encoder.embed_positions.weight", &rank, shape);
    if (!table)
        return nm_import_set(&from->in, "model.positions", "%s", pre_norm ? "fairseq" : "marian");
    bool found = false;
    for (int k = 0; k < 3 && !found && rank == 2 && shape[0] > 0 && shape[1] > 0 && shape[1] <= MAX_WIDTH;
         k++) {
        size_t n = (size_t)shape[0] * (size_t)shape[1];
        nm_mat known;
        double *values = nm_allocate(n * sizeof *values);
        nm_status status = nm_positions_alloc(from->in.backend, kinds[k], (int32_t)shape[0],
                                              (int32_t)shape[1], &known, from->err);
        if (status == NM_OK) {
            nm_backend_read(from->in.backend, values, known.data, n);
            nm_positions_dealloc(from->in.backend, &known);
            found = true;
            for (size_t i = 0; i < n; i++)
                found &= fabs(values[i] - table[i]) < 1e-4;
            if (found)
                status = nm_import_set(&from->in, "model.positions", "%s", names[k]);
        }
        free(values);
        if (status != NM_OK) {
            free(table);
            return status;
        }
    }
    free(table);
    return found ? NM_OK
                 : nm_fail(from->err, NM_UNSUPPORTED,
                           "%s: model.encoder.embed_positions.weight is no table of positions that Norma has",
                           from->folder);
}

static bool ignored_seq2seq(const char *name)
{
    static const char *const list[] = {"model.encoder.embed_positions.weight",
                                       "model.decoder.embed_positions.weight",
                                       "model.encoder.embed_positions.weights",
                                       "model.decoder.embed_positions.weights",
                                       "model.shared.weight",
                                       "model.encoder.embed_tokens.weight",
                                       "model.decoder.embed_tokens.weight",
                                       "lm_head.weight",
                                       "final_logits_bias"};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

/* Whether the bias of the output projection exists and is not zero. */
static bool has_output_bias(const reader *from)
{
    const nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    int64_t shape[8];
    int rank;
    double *bias = source.read(from->file, "final_logits_bias", &rank, shape);
    bool any = false;
    for (int64_t i = 0; bias && rank > 0 && i < shape[rank - 1]; i++)
        any |= bias[i] != 0;
    free(bias);
    return any;
}

/* The matrix that all embeddings share, under the name that this version of transformers has written. */
static void name_shared_table(const reader *from, nm_tensor_map *map)
{
    static const char *const names[] = {"model.shared.weight", "model.encoder.embed_tokens.weight",
                                        "model.decoder.embed_tokens.weight", "lm_head.weight"};
    for (size_t i = 0; i < 4; i++)
        if (nm_safetensors_find(from->file, names[i])) {
            free(map->entries[0].name);
            map->entries[0].name = nm_duplicate(names[i]);
            return;
        }
}

static nm_status load_seq2seq(reader *from, const char *output)
{
    nm_import *in = &from->in;
    nm_tensor_map map = {0};
    nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    source.ignored = ignored_seq2seq;
    NM_TRY(nm_import_build(in));
    map_seq2seq(&map, in->model);
    const nm_seq2seq *s = nm_seq2seq_of(in->model);
    if (s->source_table == s->target_table)
        name_shared_table(from, &map);
    if (s->output_bias) {
        nm_map_entry *bias = nm_tensor_map_add(&map, s->output_bias, "final_logits_bias");
        bias->vocab = NM_OF_TARGET_VOCAB;
        bias->optional = true;
    }
    nm_status status = nm_tensor_map_read(&map, in->backend, &source, &in->map_ids, from->err);
    nm_tensor_map_release(&map);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

static nm_status read_seq2seq(reader *from, bool pre_norm, const char *output)
{
    nm_import *in = &from->in;
    int64_t size;
    NM_TRY(nm_import_begin(in, &nm_task_translation, from->err));
    NM_TRY(read_count(from, "vocab_size", NM_VOCAB_MAX_SIZE, &size));
    if (!pre_norm && nm_json_id(from->config, "decoder_vocab_size", size) != size)
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: separate vocabularies ('decoder_vocab_size') are not read", from->config_path);
    NM_TRY(set_seq2seq_options(from, pre_norm));
    NM_TRY(set_positions(from, pre_norm));
    NM_TRY(open_vocab(from, size));
    nm_foreign_vocab *vocab = &from->vocab;
    vocab->bos = token_of(from, "bos_token_id", -1);
    vocab->pad = token_of(from, "pad_token_id", -1);
    vocab->eos = token_of(from, "eos_token_id", -1);
    vocab->first = token_of(from, "decoder_start_token_id", -1);
    vocab->unk = index_of(vocab, "<unk>");
    if (vocab->eos < 0 || vocab->pad < 0 || vocab->first < 0 || vocab->unk < 0)
        return nm_fail(from->err, NM_FORMAT,
                       "%s: 'eos_token_id', 'pad_token_id' or 'decoder_start_token_id' is missing, or the "
                       "vocabulary has no <unk>",
                       from->config_path);
    for (int target = 0; target < 2; target++)
        NM_TRY(nm_import_vocab(in, vocab, target, from->folder));
    bool tied = nm_json_flag(from->config, "tie_word_embeddings", true),
         shared = tied && nm_json_flag(from->config, "share_encoder_decoder_embeddings", true);
    NM_TRY(nm_import_set(in, "model.share_embeddings", "%s", shared ? "all" : tied ? "decoder" : "none"));
    NM_TRY(nm_import_set(in, "model.output_bias", "%s",
                         has_output_bias(from) || nm_import_excludes(in) ? "true" : "false"));
    NM_TRY(nm_import_texts(in, from->folder));
    return load_seq2seq(from, output);
}

static bool ignored_gpt2(const char *name)
{
    const char *end = strrchr(name, '.');
    size_t n = strlen(name);
    bool mask = n > 10 && (!strcmp(name + n - 10, ".attn.bias") || strstr(name, ".attn.masked_bias"));
    return mask || (end && !strcmp(name, "lm_head.weight"));
}

static nm_status load_gpt2(reader *from, const char *output)
{
    nm_import *in = &from->in;
    nm_tensor_map map = {0};
    nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    source.ignored = ignored_gpt2;
    NM_TRY(nm_import_build(in));
    const nm_lm *lm = nm_lm_of(in->model);
    const char *prefix = nm_safetensors_find(from->file, "transformer.wte.weight") ? "transformer." : "";
    map_gpt2(&map, in->model, prefix);
    nm_tensor_map_add(&map, lm->position_table, "%swpe.weight", prefix);
    bool untied = nm_safetensors_find(from->file, "lm_head.weight") &&
                  !nm_json_flag(from->config, "tie_word_embeddings", true);
    nm_tensor_map_add(&map, lm->output_weight, "%s%s", untied ? "" : prefix,
                      untied ? "lm_head.weight" : "wte.weight")
        ->vocab = NM_OF_TARGET_VOCAB;
    nm_status status = nm_tensor_map_read(&map, in->backend, &source, &in->map_ids, from->err);
    nm_tensor_map_release(&map);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

static nm_status read_gpt2(reader *from, const char *output)
{
    static const flag flags[] = {{"add_cross_attention", false},
                                 {"scale_attn_by_inverse_layer_idx", false},
                                 {"scale_attn_weights", true},
                                 {NULL, false}};
    nm_import *in = &from->in;
    int64_t size, width, layers, heads, context, inner;
    NM_TRY(nm_import_begin(in, &nm_task_lm, from->err));
    NM_TRY(check_flags(from, flags));
    NM_TRY(read_count(from, "vocab_size", NM_VOCAB_MAX_SIZE, &size));
    NM_TRY(read_count(from, "n_embd", MAX_WIDTH, &width));
    NM_TRY(read_count(from, "n_layer", MAX_LAYERS, &layers));
    NM_TRY(read_count(from, "n_head", MAX_HEADS, &heads));
    NM_TRY(read_count(from, "n_positions", NM_LM_MAX_CONTEXT, &context));
    inner = nm_json_id(from->config, "n_inner", 4 * width);
    NM_TRY(set_activation(from));
    NM_TRY(nm_import_set(in, "model.norm_position", "pre"));
    NM_TRY(nm_import_set(in, "model.norm", "layer"));
    NM_TRY(nm_import_set(in, "norm.layer.epsilon", "%.17g",
                         nm_json_real(from->config, "layer_norm_epsilon", 1e-5)));
    NM_TRY(nm_import_set(in, "model.width", "%lld", (long long)width));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)inner));
    NM_TRY(nm_import_set(in, "model.heads", "%lld", (long long)heads));
    NM_TRY(nm_import_set(in, "model.layers", "%lld", (long long)layers));
    NM_TRY(nm_import_set(in, "model.context", "%lld", (long long)context));
    NM_TRY(nm_import_set(in, "model.positions", "learned"));
    NM_TRY(nm_import_set(in, "model.share_embeddings", "false"));
    NM_TRY(open_vocab(from, size));
    from->vocab.eos = from->vocab.first = token_of(from, "eos_token_id", -1);
    from->vocab.bos = index_of(&from->vocab, "<s>");
    from->vocab.pad = index_of(&from->vocab, "<pad>");
    from->vocab.unk = index_of(&from->vocab, "<unk>");
    if (from->vocab.eos < 0)
        return nm_fail(from->err, NM_FORMAT, "%s: 'eos_token_id' is missing", from->config_path);
    NM_TRY(nm_import_vocab(in, &from->vocab, true, from->folder));
    NM_TRY(nm_import_set(in, "model.output_bias", "%s", nm_import_excludes(in) ? "true" : "false"));
    NM_TRY(nm_import_texts(in, from->folder));
    return load_gpt2(from, output);
}

static nm_status read_folder(reader *from, const char *output)
{
    NM_TRY(nm_json_read(&from->config, from->config_path, from->err));
    NM_TRY(open_tensors(from));
    const char *type = json_string_value(json_object_get(from->config, "model_type"));
    if (type && !strcmp(type, "marian"))
        return read_seq2seq(from, false, output);
    if (type && !strcmp(type, "m2m_100"))
        return read_seq2seq(from, true, output);
    if (type && !strcmp(type, "gpt2"))
        return read_gpt2(from, output);
    return nm_fail(from->err, NM_UNSUPPORTED, "%s: model_type '%.50s'; read are: marian, m2m_100, gpt2",
                   from->config_path, type ? type : "");
}

static nm_status read_huggingface(const char *path, const nm_convert_settings *settings, const char *output,
                                  nm_error *err)
{
    (void)settings;
    reader from = {.folder = path, .config_path = nm_path_join(path, "config.json"), .err = err};
    nm_status status = read_folder(&from, output);
    nm_import_release(&from.in);
    nm_foreign_vocab_release(&from.vocab);
    nm_safetensors_close(from.file);
    json_decref(from.config);
    free(from.config_path);
    return status;
}

const nm_foreign_format nm_format_huggingface = {
    .name = "huggingface",
    .title = "Hugging Face folder",
    .write = write_huggingface,
    .read = read_huggingface,
};
