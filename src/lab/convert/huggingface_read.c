/* Reading of Hugging Face folders: the files, translation models and GPT-2. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/huggingface_reader.h"
#include "convert/json_file.h"
#include "model/lm.h"
#include "model/seq2seq.h"
#include "task/lm_task.h"

/* Opens FOLDER/NAME and appends it to the parts. */
static nm_status open_part(const nm_hf_reader *from, const char *name, nm_safetensors **part)
{
    if (strchr(name, '/'))
        return nm_fail(from->err, NM_FORMAT, "%s: '%.100s' is not the name of a file in this folder",
                       from->folder, name);
    NM_AUTO_FREE char *path = nm_path_join(from->folder, name);
    return nm_safetensors_open(part, path, from->err);
}

/* Opens the files of a model that was saved in parts. index: object that maps the names of tensors to those
 * of files. */
static nm_status open_parts(nm_hf_reader *from, const json_t *index, const char *path)
{
    json_auto_t *names = json_object();
    json_t *map = json_object_get(index, "weight_map"), *value;
    const char *key;
    json_object_foreach(map, key, value)
        json_object_set_new(names, json_is_string(value) ? json_string_value(value) : "", json_true());
    size_t n = 0, n_names = json_object_size(names);
    NM_AUTO_FREE nm_safetensors **parts = nm_allocate((n_names + 1) * sizeof(nm_safetensors *));
    nm_status status =
        n_names ? NM_OK : nm_fail(from->err, NM_FORMAT, "%s: 'weight_map' names no files", path);
    json_object_foreach(names, key, value)
    {
        if (status == NM_OK && (status = open_part(from, key, &parts[n])) == NM_OK)
            n++;
    }
    if (status == NM_OK)
        status = nm_safetensors_join(&from->file, parts, n, path, from->err);
    else
        while (n)
            nm_safetensors_close(parts[--n]);
    return status;
}

static nm_status read_index(nm_hf_reader *from, const char *path)
{
    json_auto_t *index = NULL;
    NM_TRY(nm_json_read(&index, path, from->err));
    return open_parts(from, index, path);
}

static nm_status open_tensors(nm_hf_reader *from)
{
    enum { WHOLE, INDEX, PICKLE, N_FORMS };
    static const char *const names[N_FORMS] = {"model.safetensors", "model.safetensors.index.json",
                                               "pytorch_model.bin"};
    int form = WHOLE;
    bool found = false;
    for (int i = 0; i < N_FORMS && !found; i++) {
        NM_TRY(nm_file_find_in(from->folder, names[i], &found, from->err));
        form = found ? i : WHOLE; /* without any, the message names the first one */
    }
    NM_AUTO_FREE char *path = nm_path_join(from->folder, names[form]);
    return form == WHOLE   ? nm_safetensors_open(&from->file, path, from->err)
           : form == INDEX ? read_index(from, path)
                           : nm_fail(from->err, NM_UNSUPPORTED,
                                     "%s: pickle files are not supported; save the model as "
                                     "model.safetensors (save_pretrained of transformers)",
                                     path);
}

/* The name of the matrix that all embeddings share, which depends on the version of transformers. */
static const char *shared_table(const nm_hf_reader *from)
{
    static const char *const names[] = {"model.encoder.embed_tokens.weight",
                                        "model.decoder.embed_tokens.weight", "lm_head.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (nm_safetensors_find(from->file, names[i]) &&
            !nm_safetensors_find(from->file, "model.shared.weight"))
            return names[i];
    return "model.shared.weight";
}

/* Reads a number that must be equal in encoder and decoder. */
static nm_status read_shared(nm_hf_reader *from, const char *what, int64_t max, int64_t *value)
{
    char encoder[64], decoder[64];
    int64_t other;
    snprintf(encoder, sizeof encoder, "encoder_%s", what);
    snprintf(decoder, sizeof decoder, "decoder_%s", what);
    NM_TRY(nm_hf_count(from, encoder, max, value));
    NM_TRY(nm_hf_count(from, decoder, max, &other));
    if (*value != other)
        return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' and '%s' differ, which Norma does not support",
                       from->config_path, encoder, decoder);
    return NM_OK;
}

/* Sets the options of M2M100 and Marian models. */
static nm_status set_seq2seq_options(nm_hf_reader *from, bool pre_norm)
{
    const nm_hf_rate rates[] = {{"dropout", "model.dropout", 0.1},
                                {"dropout", "model.embedding_dropout", 0.1},
                                {"attention_dropout", "model.attention_dropout", pre_norm ? 0.1 : 0},
                                {"activation_dropout", "model.relu_dropout", 0},
                                {NULL, NULL, 0}};
    static const nm_hf_flag flags[] = {{"normalize_embedding", false},       {"add_bias_logits", false},
                                       {"static_position_embeddings", true}, {"scale_embedding", true},
                                       {"is_encoder_decoder", true},         {NULL, false}};
    int64_t width, ff, heads, encoder, decoder, positions;
    NM_TRY(nm_hf_check_flags(from, flags));
    if (nm_json_flag(from->config, "normalize_before", pre_norm) != pre_norm ||
        nm_json_flag(from->config, "add_final_layer_norm", pre_norm) != pre_norm)
        return nm_fail(
            from->err, NM_UNSUPPORTED,
            "%s: 'normalize_before' or 'add_final_layer_norm' does not have the value of the model class",
            from->config_path);
    NM_TRY(nm_hf_count(from, "d_model", NM_HF_MAX_WIDTH, &width));
    NM_TRY(read_shared(from, "ffn_dim", NM_HF_MAX_INNER, &ff));
    NM_TRY(read_shared(from, "attention_heads", NM_HF_MAX_HEADS, &heads));
    NM_TRY(nm_hf_count(from, "encoder_layers", NM_HF_MAX_LAYERS, &encoder));
    NM_TRY(nm_hf_count(from, "decoder_layers", NM_HF_MAX_LAYERS, &decoder));
    NM_TRY(nm_hf_count(from, "max_position_embeddings", 1 << 20, &positions));
    NM_TRY(nm_hf_check_layers(from, "model.encoder.layers", encoder, "fc1.weight"));
    NM_TRY(nm_hf_check_layers(from, "model.decoder.layers", decoder, "fc1.weight"));
    NM_TRY(nm_hf_set_activation(from, "activation_function"));
    nm_import *in = &from->in;
    NM_TRY(nm_hf_set_rates(from, rates));
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

/* Marian models may have a stored position table, which must be one that Norma supports. */
static nm_status set_positions(nm_hf_reader *from, bool pre_norm)
{
    static const char table_name[] = "model.encoder.embed_positions.weight";
    const nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    if (pre_norm || !nm_safetensors_find(from->file, table_name))
        return nm_import_set(&from->in, "model.positions", "%s", pre_norm ? "fairseq" : "marian");
    return nm_import_positions(&from->in, &(nm_position_tensor){&source, table_name, 1, 1e-4});
}

/* The first position of M2M100 is that after pad_token_id; Norma's table, like fairseq's, has pad_token_id =
 * 1. */
static nm_status check_first_position(const nm_hf_reader *from)
{
    return from->vocab.pad < 0 || from->vocab.pad == 1
               ? NM_OK
               : nm_fail(from->err, NM_UNSUPPORTED,
                         "%s: 'pad_token_id' is %d: positions begin at pad_token_id + 1, and Norma supports "
                         "2 only",
                         from->config_path, from->vocab.pad);
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
static bool has_output_bias(const nm_hf_reader *from)
{
    const nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    int64_t shape[NM_TENSOR_MAX_RANK];
    int rank;
    NM_AUTO_FREE double *bias = source.read(from->file, "final_logits_bias", &rank, shape);
    bool any = false;
    for (int64_t i = 0; bias && rank > 0 && i < shape[rank - 1]; i++)
        any |= bias[i] != 0;
    return any;
}

static void name_shared_table(const nm_hf_reader *from, nm_tensor_map *map)
{
    free(map->entries[0].name);
    map->entries[0].name = nm_duplicate(shared_table(from));
}

static nm_status load_seq2seq(nm_hf_reader *from, const char *output)
{
    nm_import *in = &from->in;
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    source.ignored = ignored_seq2seq;
    NM_TRY(nm_import_declare(in));
    nm_huggingface_map_seq2seq(&map, in->loaded.model);
    const nm_seq2seq *s = nm_seq2seq_of(in->loaded.model);
    if (s->source_table == s->target_table)
        name_shared_table(from, &map);
    if (s->output_bias) {
        nm_map_entry *bias = nm_tensor_map_add(&map, s->output_bias, "final_logits_bias");
        bias->vocab = NM_OF_TARGET_VOCAB;
        bias->optional = true;
    }
    nm_status status = nm_import_load(in, &map, &source);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

/* NM_UNSUPPORTED if source and target have separate vocabularies. */
static nm_status check_one_vocabulary(const nm_hf_reader *from)
{
    bool separate;
    NM_TRY(nm_file_find_in(from->folder, "target_vocab.json", &separate, from->err));
    return separate ? nm_fail(from->err, NM_UNSUPPORTED,
                              "%s: separate vocabularies (target_vocab.json) are not supported", from->folder)
                    : NM_OK;
}

static nm_status read_seq2seq(nm_hf_reader *from, bool pre_norm, const char *output)
{
    nm_import *in = &from->in;
    int64_t size;
    NM_TRY(nm_import_begin(in, &nm_task_translation, from->err));
    NM_TRY(nm_hf_count(from, "vocab_size", NM_VOCAB_MAX_SIZE, &size));
    if (!pre_norm && nm_json_id(from->config, "decoder_vocab_size", size) != size)
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: separate vocabularies ('decoder_vocab_size') are not supported",
                       from->config_path);
    bool tied = nm_json_flag(from->config, "tie_word_embeddings", true),
         one_table = nm_json_flag(from->config, "share_encoder_decoder_embeddings", true);
    if (!one_table)
        NM_TRY(check_one_vocabulary(from));
    NM_TRY(
        nm_hf_check_table(from, one_table ? shared_table(from) : "model.encoder.embed_tokens.weight", size));
    NM_TRY(set_seq2seq_options(from, pre_norm));
    NM_TRY(set_positions(from, pre_norm));
    NM_TRY(nm_huggingface_read_tokenizer(from->folder, size, &from->vocab, &from->in.codes, from->err));
    nm_foreign_vocab *vocab = &from->vocab;
    vocab->bos = nm_hf_token(from, "bos_token_id", -1);
    vocab->pad = nm_hf_token(from, "pad_token_id", -1);
    vocab->eos = nm_hf_token(from, "eos_token_id", -1);
    vocab->first = nm_hf_token(from, "decoder_start_token_id", -1);
    vocab->unk = nm_foreign_vocab_find(vocab, "<unk>");
    NM_TRY(pre_norm ? check_first_position(from) : NM_OK);
    if (vocab->eos < 0 || vocab->pad < 0 || vocab->first < 0 || vocab->unk < 0)
        return nm_fail(from->err, NM_FORMAT,
                       "%s: 'eos_token_id', 'pad_token_id' or 'decoder_start_token_id' is missing, or the "
                       "vocabulary has no <unk>",
                       from->config_path);
    if (vocab->first != vocab->eos && vocab->first != vocab->pad && vocab->first != vocab->bos)
        return nm_fail(
            from->err, NM_UNSUPPORTED,
            "%s: 'decoder_start_token_id' is not </s>, <pad> or <s>: Norma has no token that is both the "
            "first input of the decoder and a word",
            from->config_path);
    for (int target = 0; target < 2; target++)
        NM_TRY(nm_import_vocab(in, vocab, target, from->folder));
    NM_TRY(nm_import_set(in, "model.share_embeddings", "%s",
                         tied && one_table ? "all"
                         : tied            ? "decoder"
                                           : "none"));
    NM_TRY(nm_import_set(in, "model.output_bias", "%s",
                         has_output_bias(from) || nm_import_excludes(in) ? "true" : "false"));
    NM_TRY(nm_import_texts(in, from->folder));
    return load_seq2seq(from, output);
}

/* Whether a tensor is not a parameter: attention masks, which are constant, and the output projection, mapped
 * elsewhere. */
static bool ignored_gpt2(const char *name)
{
    static const char mask[] = ".attn.bias";
    size_t n = strlen(name), m = sizeof mask - 1;
    return (n > m && !strcmp(name + n - m, mask)) || strstr(name, ".attn.masked_bias") ||
           !strcmp(name, "lm_head.weight");
}

static bool is_gpt2_tied(const nm_hf_reader *from)
{
    return !nm_safetensors_find(from->file, "lm_head.weight") ||
           nm_json_flag(from->config, "tie_word_embeddings", true);
}

static nm_status load_gpt2(nm_hf_reader *from, const char *output)
{
    nm_import *in = &from->in;
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    source.ignored = ignored_gpt2;
    NM_TRY(nm_import_declare(in));
    const nm_lm *lm = nm_lm_of(in->loaded.model);
    const char *prefix = nm_safetensors_find(from->file, "transformer.wte.weight") ? "transformer." : "";
    nm_huggingface_map_gpt2(&map, in->loaded.model, prefix);
    nm_tensor_map_add(&map, lm->position_table, "%swpe.weight", prefix);
    if (lm->output_weight != lm->table)
        nm_tensor_map_add(&map, lm->output_weight, "lm_head.weight")->vocab = NM_OF_TARGET_VOCAB;
    nm_status status = nm_import_load(in, &map, &source);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

static nm_status read_gpt2(nm_hf_reader *from, const char *output)
{
    static const nm_hf_rate rates[] = {{"resid_pdrop", "model.dropout", 0.1},
                                       {"attn_pdrop", "model.attention_dropout", 0.1},
                                       {"embd_pdrop", "model.embedding_dropout", 0.1},
                                       {NULL, "model.relu_dropout", 0},
                                       {NULL, "model.hidden_dropout", 0},
                                       {NULL, NULL, 0}};
    static const nm_hf_flag flags[] = {{"add_cross_attention", false},
                                       {"scale_attn_by_inverse_layer_idx", false},
                                       {"scale_attn_weights", true},
                                       {NULL, false}};
    nm_import *in = &from->in;
    int64_t size, width, layers, heads, context, inner;
    NM_TRY(nm_import_begin(in, &nm_task_lm, from->err));
    NM_TRY(nm_hf_check_flags(from, flags));
    NM_TRY(nm_hf_count(from, "vocab_size", NM_VOCAB_MAX_SIZE, &size));
    NM_TRY(nm_hf_count(from, "n_embd", NM_HF_MAX_WIDTH, &width));
    NM_TRY(nm_hf_count(from, "n_layer", NM_HF_MAX_LAYERS, &layers));
    NM_TRY(nm_hf_count(from, "n_head", NM_HF_MAX_HEADS, &heads));
    NM_TRY(nm_hf_count(from, "n_positions", NM_LM_MAX_CONTEXT, &context));
    inner = nm_json_id(from->config, "n_inner", 4 * width);
    bool prefixed = nm_safetensors_find(from->file, "transformer.wte.weight") != NULL;
    NM_TRY(nm_hf_check_table(from, prefixed ? "transformer.wte.weight" : "wte.weight", size));
    NM_TRY(nm_hf_check_layers(from, prefixed ? "transformer.h" : "h", layers, "mlp.c_fc.weight"));
    NM_TRY(nm_hf_set_activation(from, "activation_function"));
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
    NM_TRY(nm_import_set(in, "model.embedding_scale", "none"));
    NM_TRY(nm_hf_set_rates(from, rates));
    NM_TRY(nm_import_set(in, "model.share_embeddings", "%s", is_gpt2_tied(from) ? "true" : "false"));
    NM_TRY(nm_hf_read_lm_texts(from, size));
    return load_gpt2(from, output);
}

static nm_status read_folder(nm_hf_reader *from, const char *output)
{
    NM_TRY(nm_json_read(&from->config, from->config_path, from->err));
    NM_TRY(open_tensors(from));
    const char *type = json_string_value(json_object_get(from->config, "model_type"));
    const json_t *quantization = json_object_get(from->config, "quantization_config");
    if (quantization && !json_is_null(quantization))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: 'quantization_config' is set, which Norma does not support; save the model in "
                       "float (dequantize() of transformers) and remove the key",
                       from->config_path);
    if (type)
        nm_hf_add_defaults(from->config, type);
    if (type && !strcmp(type, "marian"))
        return read_seq2seq(from, false, output);
    if (type && !strcmp(type, "m2m_100"))
        return read_seq2seq(from, true, output);
    if (type && !strcmp(type, "gpt2"))
        return read_gpt2(from, output);
    if (type && nm_llama_class_named(type))
        return nm_hf_read_llama(from, nm_llama_class_named(type), output);
    return nm_fail(from->err, NM_UNSUPPORTED,
                   "%s: unsupported model_type '%.50s'; supported: marian, m2m_100, gpt2, llama, qwen2, "
                   "qwen3, olmo2, mistral, gemma3_text",
                   from->config_path, type ? type : "");
}

nm_status nm_huggingface_read(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err)
{
    (void)settings;
    nm_hf_reader from = {.folder = path, .config_path = nm_path_join(path, "config.json"), .err = err};
    nm_status status = read_folder(&from, output);
    nm_import_release(&from.in);
    nm_foreign_vocab_release(&from.vocab);
    nm_safetensors_close(from.file);
    json_decref(from.config);
    free(from.config_path);
    return status;
}
