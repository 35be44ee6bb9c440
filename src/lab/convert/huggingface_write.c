/* Writing of Hugging Face folders. */
#include <stdlib.h>
#include <string.h>

#include "convert/huggingface.h"
#include "convert/huggingface_tokenizer.h"
#include "base/json.h"
#include "convert/json_file.h"
#include "convert/lm_positions.h"
#include "convert/norm_map.h"
#include "model/decode.h"
#include "model/lm.h"
#include "model/seq2seq.h"
#include "task/lm_task.h"
#include "task/translation.h"

/* The classes M2M100 and Marian use the default epsilon of nn.LayerNorm. */
static const double LAYER_NORM_EPSILON = 1e-5;

static nm_status check_norm(const nm_norm *norm, nm_backend *backend, double *eps, nm_error *err)
{
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
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
    return status;
}

static nm_status check_norms(const nm_model *model, double *eps, nm_error *err)
{
    for (size_t i = 0; i < model->params.n_norms; i++)
        NM_TRY(check_norm(model->params.norms[i], model->backend, eps, err));
    return NM_OK;
}

static nm_status check_seq2seq(const nm_model *model, bool pre_norm, bool trains, nm_error *err)
{
    const nm_seq2seq_config *c = nm_seq2seq_config_of(model);
    const nm_seq2seq *s = model->parts;
    double eps = LAYER_NORM_EPSILON;
    NM_TRY(check_norms(model, &eps, err));
    if (c->fixnorm)
        return nm_fail(err, NM_UNSUPPORTED,
                       "model.fixnorm = true: the class has no L2-normalized embeddings");
    if (c->positions == NM_SEQ2SEQ_NO_POSITIONS)
        return nm_fail(err, NM_UNSUPPORTED, "model.positions = none: the class has position embeddings");
    if (pre_norm && c->positions != NM_SEQ2SEQ_FAIRSEQ)
        return nm_fail(err, NM_UNSUPPORTED, "model.positions: the class M2M100 has fairseq's positions only");
    if (pre_norm && !nm_huggingface_is_zero(model, s->output_bias, trains))
        return nm_fail(err, NM_UNSUPPORTED,
                       "model.output_bias = true: the class M2M100 has no bias of the output projection");
    return NM_OK;
}

static nm_status check_vocabularies(const nm_loaded_model *loaded, nm_error *err)
{
    const nm_model *model = loaded->model;
    const nm_translation_parts *parts = loaded->task.parts;
    if (model->source_size != model->target_size)
        return nm_fail(
            err, NM_UNSUPPORTED,
            "the vocabularies have %d and %d tokens: the folder has one vocabulary (norma prepare --joint)",
            model->source_size, model->target_size);
    if (strcmp(parts->texts[NM_TEXT_SOURCE], parts->texts[NM_TEXT_TARGET]))
        return nm_fail(err, NM_UNSUPPORTED,
                       "the dictionaries of source and target differ: the folder has one "
                       "vocabulary (norma prepare --joint)");
    return NM_OK;
}

static nm_huggingface_tokenizer seq2seq_tokenizer(const nm_loaded_model *loaded,
                                                  const nm_huggingface_vocab *vocab)
{
    const nm_translation_parts *parts = loaded->task.parts;
    return (nm_huggingface_tokenizer){.vocab = vocab,
                                      .settings = parts->texts[NM_TEXT_SETTINGS],
                                      .codes = parts->texts[NM_TEXT_CODES],
                                      .ends = true,
                                      .longest = nm_seq2seq_config_of(loaded->model)->max_positions};
}

/* A token that must not be generated: <pad>, those that data.mask_words excludes, and <unk> without
 * decode.unknown; or NULL. */
static json_t *suppressed(const void *user, size_t id)
{
    const nm_loaded_model *loaded = user;
    const nm_translation_parts *parts = loaded->task.parts;
    const nm_decode_options *decode = nm_options_find(loaded->options, "decode");
    const nm_vocab *vocab = parts->target_vocab;
    const int32_t i = (int32_t)id;
    bool never =
        i == vocab->pad || (parts->allowed && !parts->allowed[i]) || (i == vocab->unk && !decode->unknown);
    return never ? json_integer(i) : NULL;
}

/* The classes of translation models. */
typedef enum seq2seq_class { MARIAN, M2M100, BLENDERBOT } seq2seq_class;
static const char *const seq2seq_names[] = {"MarianMTModel", "M2M100ForConditionalGeneration",
                                            "BlenderbotForConditionalGeneration"};

static nm_status choose_seq2seq(const nm_loaded_model *loaded, const nm_huggingface_vocab *written,
                                bool trains, seq2seq_class *class, nm_error *err)
{
    const nm_model *model = loaded->model;
    const nm_translation_parts *parts = loaded->task.parts;
    bool pre_norm = nm_seq2seq_config_of(model)->norm_position == NM_PRE_NORM;
    NM_TRY(nm_stack_require_plain(model->config, "the class for this model in transformers", err));
    NM_TRY(check_vocabularies(loaded, err));
    bool fits = check_seq2seq(model, pre_norm, trains, pre_norm ? NM_IGNORED : err) == NM_OK &&
                (!pre_norm || parts->target_vocab->order == NM_VOCAB_FAIRSEQ);
    if (!fits && !pre_norm)
        return NM_UNSUPPORTED;
    *class = !pre_norm ? MARIAN : fits ? M2M100 : BLENDERBOT;
    if (*class == BLENDERBOT)
        NM_TRY(nm_huggingface_wide_check(model, err));
    const char *activation;
    NM_TRY(nm_huggingface_activation(nm_seq2seq_config_of(model)->activation, &activation, err));
    const nm_huggingface_tokenizer tokenizer = seq2seq_tokenizer(loaded, written);
    return nm_huggingface_check_tokenizer(&tokenizer, err);
}

static nm_status write_seq2seq_config(const nm_loaded_model *loaded, seq2seq_class class,
                                      const char *activation, const char *folder, nm_error *err)
{
    static const char *const types[] = {"marian", "m2m_100", "blenderbot"};
    const nm_seq2seq_config *c = nm_seq2seq_config_of(loaded->model);
    const nm_translation_parts *parts = loaded->task.parts;
    const nm_vocab *vocab = parts->target_vocab;
    /* Blenderbot: a wider model, whose tables are stored as they are. */
    const bool all = c->share_embeddings == NM_SHARE_ALL, wide = class == BLENDERBOT;
    const nm_seq2seq *s = loaded->model->parts;
    const json_int_t width = wide ? nm_huggingface_wide_width(&s->encoder.config) : c->width;
    json_t *config = json_pack(
        "{s:[s], s:s, s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, "
        "s:b, s:b, "
        "s:b, s:i, s:i, s:i, s:i, s:o*, s:o*}",
        "architectures", seq2seq_names[class], "model_type", types[class], "is_encoder_decoder", 1, "dtype",
        "float32", "vocab_size", (int)loaded->model->target_size, "d_model", width, "encoder_layers",
        (json_int_t)c->encoder_layers, "decoder_layers", (json_int_t)c->decoder_layers,
        "encoder_attention_heads", (json_int_t)c->heads, "decoder_attention_heads", (json_int_t)c->heads,
        "encoder_ffn_dim", (json_int_t)c->ff, "decoder_ffn_dim", (json_int_t)c->ff, "max_position_embeddings",
        (json_int_t)c->max_positions, "activation_function", activation, "dropout", c->dropout,
        "attention_dropout", c->attention_dropout, "activation_dropout", c->relu_dropout, "encoder_layerdrop",
        0.0, "decoder_layerdrop", 0.0, "scale_embedding", !wide, "share_encoder_decoder_embeddings", all,
        "tie_word_embeddings", all && !wide, "decoder_start_token_id", (int)nm_translation_first_id(vocab),
        "bos_token_id", (int)vocab->bos, "eos_token_id", (int)vocab->eos, "pad_token_id", (int)vocab->pad,
        "forced_eos_token_id", class == M2M100 ? NULL : json_null(), "encoder_no_repeat_ngram_size",
        wide ? json_integer(0) : NULL);
    NM_TRY(nm_json_write(config, folder, "config.json", err));
    json_t *generation =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:o}", "num_beams", 1, "decoder_start_token_id",
                  (int)nm_translation_first_id(vocab), "bos_token_id", (int)vocab->bos, "eos_token_id",
                  (int)vocab->eos, "pad_token_id", (int)vocab->pad, "max_length",
                  (json_int_t)(c->max_positions < 256 ? c->max_positions : 256), "suppress_tokens",
                  nm_json_list((size_t)nm_vocab_size(vocab), suppressed, loaded));
    return nm_json_write(generation, folder, "generation_config.json", err);
}

/* Adds the position tables, which the class Marian stores, and the bias of the output projection, [1, V]. */
static void add_marian_tensors(const nm_model *model, nm_tensor_list *list)
{
    const nm_seq2seq *s = model->parts;
    int64_t rows = s->positions.rows, d = s->positions.cols;
    NM_AUTO_FREE double *table = nm_mat_values(model->backend, s->positions);
    nm_tensor_list_add(list, table, rows, d, "model.encoder.embed_positions.weight");
    nm_tensor_list_add(list, table, rows, d, "model.decoder.embed_positions.weight");
    NM_AUTO_FREE double *bias = s->output_bias ? nm_param_values(model->backend, s->output_bias)
                                               : nm_allocate((size_t)model->target_size * sizeof *bias);
    nm_tensor_list_add(list, bias, 1, model->target_size, "final_logits_bias");
}

static nm_status write_seq2seq(const nm_loaded_model *loaded, const nm_huggingface_vocab *written,
                               const char *folder, nm_error *err)
{
    nm_model *model = loaded->model;
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_list list = {0};
    seq2seq_class class;
    const char *activation;
    NM_TRY(choose_seq2seq(loaded, written, false, &class, err));
    NM_TRY(nm_huggingface_activation(nm_seq2seq_config_of(model)->activation, &activation, err));
    const nm_huggingface_tokenizer tokenizer = seq2seq_tokenizer(loaded, written);
    nm_status status = NM_OK;
    if (class == BLENDERBOT) {
        status = nm_huggingface_wide_blenderbot(model, &list, err);
    } else {
        nm_huggingface_map_seq2seq(&map, model);
        nm_tensor_map_write(&map, model->backend, NULL, &list);
    }
    if (class == MARIAN)
        add_marian_tensors(model, &list);
    NM_THEN(status, nm_huggingface_write_tensors(&list, folder, err));
    nm_tensor_list_release(&list);
    NM_THEN(status, write_seq2seq_config(loaded, class, activation, folder, err));
    return status == NM_OK ? nm_huggingface_write_tokenizer(&tokenizer, folder, err) : status;
}

static const char gpt2_name[] = "GPT2LMHeadModel";

/* What all classes of language models require. */
static nm_status check_lm(const nm_model *model, nm_error *err)
{
    const nm_lm_config *c = nm_lm_config_of(model);
    if (c->attention != NM_LM_SOFTMAX)
        return nm_fail(err, NM_UNSUPPORTED, "model.attention = block-term has no class in transformers");
    if (c->adaptive)
        return nm_fail(err, NM_UNSUPPORTED, "model.adaptive = true: the classes have no adaptive softmax");
    return NM_OK;
}

/* *fits: whether the class has the norms of the model, and no output bias is needed; otherwise a wider model
 * of the class computes the same function. */
static nm_status choose_gpt2(const nm_model *model, bool trains, double *eps, bool *fits, nm_error *err)
{
    const nm_lm_config *c = nm_lm_config_of(model);
    const char *activation;
    NM_TRY(nm_stack_require_plain(&c->stack, "the class GPT-2", err));
    if (c->window)
        return nm_fail(err, NM_UNSUPPORTED, "the class GPT-2 has no model.window");
    if (c->norm_position != NM_PRE_NORM)
        return nm_fail(err, NM_UNSUPPORTED, "model.norm_position = post: the class GPT-2 is pre-norm");
    NM_TRY(nm_huggingface_activation(c->activation, &activation, err));
    *eps = 0;
    *fits = nm_huggingface_is_zero(model, nm_lm_of(model)->output_bias, trains) &&
            check_norms(model, eps, NM_IGNORED) == NM_OK;
    return *fits ? NM_OK : nm_huggingface_wide_check(model, err);
}

/* *class: its name; what the class requires is checked. */
static nm_status choose_lm(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab, bool trains,
                           const char **class, nm_error *err)
{
    double eps;
    bool fits;
    const nm_huggingface_tokenizer tokenizer = nm_huggingface_lm_tokenizer(loaded, vocab);
    NM_TRY(check_lm(loaded->model, err));
    NM_TRY(nm_huggingface_check_tokenizer(&tokenizer, err));
    if (nm_lm_config_of(loaded->model)->rope != NM_ROPE_NONE)
        return nm_huggingface_choose_llama(loaded->model, trains, class, err);
    *class = gpt2_name;
    return choose_gpt2(loaded->model, trains, &eps, &fits, err);
}

static void add_positions(const nm_model *model, nm_tensor_list *list)
{
    const nm_lm_config *c = nm_lm_config_of(model);
    NM_AUTO_FREE double *positions = nm_lm_position_values(model);
    nm_tensor_list_add(list, positions, c->context, c->width, "transformer.wpe.weight");
}

static nm_status write_gpt2(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                            const char *folder, nm_error *err)
{
    nm_model *model = loaded->model;
    const nm_map_ids ids = nm_huggingface_ids(vocab);
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_list list = {0};
    double eps = 0;
    bool fits = false;
    NM_TRY(choose_gpt2(model, false, &eps, &fits, err));
    const nm_lm_config *c = nm_lm_config_of(model);
    const char *activation;
    NM_TRY(nm_huggingface_activation(c->activation, &activation, err));
    bool tied = fits && nm_huggingface_is_tied(model);
    int64_t width = fits ? c->width : nm_huggingface_wide_width(&nm_lm_of(model)->stack.config);
    if (fits)
        nm_huggingface_map_gpt2(&map, model, "transformer.");
    if (fits && !tied)
        nm_tensor_map_add(&map, nm_lm_of(model)->output_weight, "lm_head.weight")->vocab = NM_OF_TARGET_VOCAB;
    nm_tensor_map_write(&map, model->backend, &ids, &list);
    if (fits)
        add_positions(model, &list);
    nm_status status = fits ? NM_OK : nm_huggingface_wide_gpt2(model, &ids, &list, &eps, err);
    NM_THEN(status, nm_huggingface_write_tensors(&list, folder, err));
    nm_tensor_list_release(&list);
    NM_TRY(status);
    json_t *config = json_pack(
        "{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:b, s:o, s:o}",
        "architectures", gpt2_name, "model_type", "gpt2", "dtype", "float32", "vocab_size", (int)vocab->size,
        "n_embd", (json_int_t)width, "n_layer", (json_int_t)c->layers, "n_head", (json_int_t)c->heads,
        "n_inner", (json_int_t)c->ff, "n_positions", (json_int_t)c->context, "activation_function",
        activation, "layer_norm_epsilon", eps, "resid_pdrop", c->dropout, "embd_pdrop", c->embedding_dropout,
        "attn_pdrop", c->attention_dropout, "tie_word_embeddings", tied, "bos_token_id",
        nm_huggingface_id(vocab, nm_lm_first_input(c, vocab->vocab)), "eos_token_id",
        nm_huggingface_id(vocab, vocab->vocab->eos));
    NM_TRY(nm_json_write(config, folder, "config.json", err));
    return nm_huggingface_write_lm_texts(loaded, vocab, folder, err);
}

static nm_status write_lm(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                          const char *folder, nm_error *err)
{
    const char *class;
    NM_TRY(choose_lm(loaded, vocab, false, &class, err));
    return class == gpt2_name ? write_gpt2(loaded, vocab, folder, err)
                              : nm_huggingface_write_llama(loaded, vocab, folder, err);
}

/* The vocabulary of a language model, or of the target; NULL: the task has none. */
static const nm_vocab *vocab_of(const nm_loaded_model *loaded)
{
    if (loaded->model->type == &nm_model_seq2seq)
        return ((const nm_translation_parts *)loaded->task.parts)->target_vocab;
    if (loaded->model->type == &nm_model_lm)
        return ((const nm_lm_parts *)loaded->task.parts)->vocab;
    return NULL;
}

/* The vocabulary of the folder; release it with free(vocab->ids). */
static nm_status open_vocab(const nm_loaded_model *loaded, nm_huggingface_vocab *written, nm_error *err)
{
    const nm_vocab *vocab = vocab_of(loaded);
    if (!vocab)
        return nm_fail(err, NM_UNSUPPORTED, "a model of the task %s has no class in transformers",
                       loaded->task.type->name);
    *written = nm_huggingface_vocab_of(vocab);
    return NM_OK;
}

nm_status nm_huggingface_class(const nm_loaded_model *loaded, const char **class, nm_error *err)
{
    nm_huggingface_vocab written;
    seq2seq_class number = MARIAN;
    NM_TRY(open_vocab(loaded, &written, err));
    bool lm = loaded->model->type == &nm_model_lm;
    nm_status status = lm ? choose_lm(loaded, &written, true, class, err)
                          : choose_seq2seq(loaded, &written, true, &number, err);
    if (!lm) /* Blenderbot of transformers 4 has one embedding matrix, whatever config.json says. */
        *class = number == BLENDERBOT && nm_seq2seq_config_of(loaded->model)->share_embeddings != NM_SHARE_ALL
                     ? "BlenderbotForConditionalGeneration of transformers 5"
                     : seq2seq_names[number];
    free(written.ids);
    return status;
}

nm_status nm_huggingface_write(const nm_loaded_model *loaded, const char *folder, nm_error *err)
{
    nm_huggingface_vocab written;
    NM_TRY(open_vocab(loaded, &written, err));
    nm_status status = loaded->model->type == &nm_model_lm ? write_lm(loaded, &written, folder, err)
                                                           : write_seq2seq(loaded, &written, folder, err);
    free(written.ids);
    return status;
}
