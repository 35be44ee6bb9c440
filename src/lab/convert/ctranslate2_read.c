/* Reading of CTranslate2 folders: translation models and language models with LayerNorm or RMSNorm, with any
 * type of weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/ctranslate2.h"
#include "convert/ctranslate2_reader.h"
#include "convert/json_file.h"
#include "task/lm_task.h"

/* Sets values[stack] to the scalar NAME of each stack, or to `otherwise` if it is missing; NaN:
 * NM_MISMATCH. */
static nm_status read_scalars(nm_ct2_reader *from, const char *name, double otherwise, double *values)
{
    for (int i = nm_ct2_first_stack(from); i < NM_CT2_STACKS; i++) {
        char full[96];
        snprintf(full, sizeof full, "%s/%s", from->stacks[i].scope, name);
        values[i] = otherwise;
        if (!nm_ct2_file_scalar(&from->file, full, &values[i]) && isnan(otherwise))
            return nm_fail(from->err, NM_MISMATCH, "%s: has no variable '%s'", from->file.path, full);
    }
    return NM_OK;
}

/* Reads a scalar that must have the same value in all stacks. */
static nm_status read_shared(nm_ct2_reader *from, const char *name, double *value)
{
    double values[NM_CT2_STACKS];
    NM_TRY(read_scalars(from, name, NAN, values));
    *value = values[NM_CT2_DECODER];
    return from->lm || values[0] == values[1]
               ? NM_OK
               : nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is %g in the encoder and %g in the decoder",
                         from->file.path, name, values[0], values[1]);
}

static nm_status find_task(nm_ct2_reader *from)
{
    const nm_ct2_file *file = &from->file;
    from->lm = !strcmp(file->spec, NM_CT2_LM_SPEC) && file->revision == NM_CT2_LM_REVISION;
    if (from->lm || (!strcmp(file->spec, NM_CT2_SEQ2SEQ_SPEC) && file->revision == NM_CT2_SEQ2SEQ_REVISION))
        return NM_OK;
    return nm_fail(from->err, NM_UNSUPPORTED,
                   "%s: %.60s in revision %lld; supported: %s in revision %d and %s in revision %d",
                   file->path, file->spec, (long long)file->revision, NM_CT2_SEQ2SEQ_SPEC,
                   NM_CT2_SEQ2SEQ_REVISION, NM_CT2_LM_SPEC, NM_CT2_LM_REVISION);
}

/* NM_UNSUPPORTED for settings that change the function that the model computes. */
static nm_status check_variant(nm_ct2_reader *from)
{
    static const char *const flags[] = {"embeddings_merge",      "layernorm_embedding",
                                        "multi_query_attention", "alibi",
                                        "no_final_norm",         "sliding_window"};
    double values[NM_CT2_STACKS];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        NM_TRY(read_scalars(from, flags[i], 0, values));
        for (int k = nm_ct2_first_stack(from); k < NM_CT2_STACKS; k++)
            if (values[k] != 0)
                return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is set, which Norma does not support",
                               from->file.path, flags[i]);
    }
    if (!from->lm && (nm_json_flag(from->config, "add_source_bos", false) ||
                      !nm_json_flag(from->config, "add_source_eos", true)))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: a source of Norma ends with the EOS token and has no other special tokens",
                       from->config_path);
    return NM_OK;
}

/* factor: of the embeddings, times the scale of the residual stream. That of the embeddings is sqrt(width),
 * and in a language model 1 or any positive number. */
static nm_status set_stream(nm_ct2_reader *from, nm_ct2_stack *stack, double factor)
{
    static const double outside = 0x1p20, affine = 0x1p-40; /* ctranslate2.c */
    const bool unscaled = from->lm && (factor == 1 || factor == outside || factor == affine);
    const double root = unscaled ? 1 : sqrt((double)from->width);
    char beta[96];
    snprintf(beta, sizeof beta, "%s/layer_0/self_attention/layer_norm/beta", stack->scope);
    stack->scale = stack->factor = 1;
    stack->norm = nm_ct2_file_find(&from->file, beta) ? NM_CT2_LAYER : NM_CT2_RMS;
    if (stack->norm == NM_CT2_RMS && (float)factor == (float)(root * affine))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: the RMSNorms of the %s are affine maps, of norms that Norma had folded",
                       from->file.path, stack->scope);
    if (stack->norm == NM_CT2_RMS && (float)factor == (float)(root * outside)) {
        stack->scale = outside;
        stack->norm = NM_CT2_RMS_OUTSIDE;
    } else if ((float)factor != (float)root) {
        if (!from->lm || !(factor > 0))
            return nm_fail(from->err, NM_UNSUPPORTED,
                           "%s: '%s/scale_embeddings' is %g, not the root of the width", from->file.path,
                           stack->scope, factor);
        stack->factor = root / factor;
    }
    return from->lm ? nm_import_set(&from->in, "model.embedding_scale", "%s", unscaled ? "none" : "sqrt")
                    : NM_OK;
}

static nm_status set_streams(nm_ct2_reader *from)
{
    double scales[NM_CT2_STACKS];
    NM_TRY(read_scalars(from, "scale_embeddings", from->lm ? 1 : NAN, scales));
    for (int i = nm_ct2_first_stack(from); i < NM_CT2_STACKS; i++) {
        nm_ct2_stack *stack = &from->stacks[i];
        char name[96];
        snprintf(name, sizeof name, "%s/scale_embeddings", stack->scope);
        const nm_ct2_variable *variable = nm_ct2_file_find(&from->file, name);
        bool flag = variable && variable->type == NM_CT2_INT8;
        double off = flag && scales[i] == 0 ? 1 : scales[i];
        NM_TRY(set_stream(from, stack, flag && scales[i] == 1 ? sqrt((double)from->width) : off));
    }
    return NM_OK;
}

static const char *norm_name(nm_ct2_norm norm)
{
    return norm == NM_CT2_LAYER ? "layer" : "rms";
}

static nm_status set_norms(nm_ct2_reader *from)
{
    nm_import *in = &from->in;
    double eps = nm_json_real(from->config, "layer_norm_epsilon", 1e-5);
    nm_ct2_norm decoder = from->stacks[NM_CT2_DECODER].norm,
                encoder = from->lm ? decoder : from->stacks[NM_CT2_ENCODER].norm;
    bool layer = encoder == NM_CT2_LAYER || decoder == NM_CT2_LAYER,
         inside = encoder == NM_CT2_RMS || decoder == NM_CT2_RMS;
    if (inside && (encoder == NM_CT2_RMS_OUTSIDE || decoder == NM_CT2_RMS_OUTSIDE))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: the RMSNorms of encoder and decoder have different epsilons", from->file.path);
    NM_TRY(nm_import_set(in, "model.norm", "%s", norm_name(decoder)));
    if (encoder != decoder)
        NM_TRY(nm_import_set(in, "model.encoder_norm", "%s", norm_name(encoder)));
    if (layer)
        NM_TRY(nm_import_set(in, "norm.layer.epsilon", "%.9g", eps));
    if (!inside)
        return NM_OK;
    NM_TRY(nm_import_set(in, "norm.rms.epsilon_inside", "true"));
    return nm_import_set(in, "norm.rms.epsilon", "%.9g", eps);
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

static nm_status set_activation(nm_ct2_reader *from)
{
    static const int codes[] = {NM_ACTIVATIONS(NM_ACTIVATION_CT2)};
    static const char *const names[] = {NM_ACTIVATIONS(NM_CHOICE_NAME)};
    double code;
    NM_TRY(read_shared(from, "activation", &code));
    for (int i = 0; i < NM_ACTIVATIONS_COUNT; i++)
        if (codes[i] == code && code >= 0)
            return nm_import_set(&from->in, "model.activation", "%s", names[i]);
    return nm_fail(from->err, NM_UNSUPPORTED, "%s: activation %g is not supported", from->file.path, code);
}

/* The matrix NAME of the first stack, or NULL. */
static const nm_ct2_variable *matrix_of(const nm_ct2_reader *from, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s/%s", from->stacks[nm_ct2_first_stack(from)].scope, name);
    const nm_ct2_variable *variable = nm_ct2_file_find(&from->file, full);
    return variable && variable->rank == 2 ? variable : NULL;
}

static nm_status find_width(nm_ct2_reader *from, int64_t *inner_width, int64_t *positions)
{
    const nm_ct2_stack *stack = &from->stacks[nm_ct2_first_stack(from)];
    const nm_ct2_variable *table = nm_ct2_file_find(&from->file, stack->table),
                          *inner = matrix_of(from, "layer_0/ffn/linear_0/weight"),
                          *places = matrix_of(from, "position_encodings/encodings"),
                          *attention = matrix_of(from, "layer_0/self_attention/linear_0/weight");
    if (!table || !inner || !places || table->rank != 2 || table->shape[1] < 1 || table->shape[1] > 65536 ||
        places->shape[0] > 1 << 20)
        return nm_fail(from->err, NM_MISMATCH,
                       "%s: not a Transformer: no matrix '%s', '%s/layer_0/ffn/linear_0/weight' or "
                       "'%s/position_encodings/encodings'",
                       from->file.path, stack->table, stack->scope, stack->scope);
    from->width = table->shape[1];
    if (!attention || attention->shape[0] != 3 * from->width || attention->shape[1] != from->width ||
        inner->shape[1] != from->width || places->shape[1] != from->width)
        return nm_fail(from->err, NM_MISMATCH,
                       "%s: the matrices of %s/layer_0 or the positions do not fit embeddings of width %lld",
                       from->file.path, stack->scope, (long long)from->width);
    *inner_width = inner->shape[0];
    *positions = places->shape[0];
    return NM_OK;
}

static nm_status set_positions(nm_ct2_reader *from, int64_t rows)
{
    const nm_tensor_source file = nm_ct2_file_source(&from->file);
    const nm_ct2_stack *stack = &from->stacks[nm_ct2_first_stack(from)];
    int type = matrix_of(from, "position_encodings/encodings")->type;
    char name[96];
    snprintf(name, sizeof name, "%s/position_encodings/encodings", stack->scope);
    const nm_position_tensor positions = {&file, name, stack->scale,
                                          type == NM_CT2_FLOAT16 || type == NM_CT2_BFLOAT16 ? 4e-3 : 1e-4};
    nm_import *in = &from->in;
    if (from->lm) {
        NM_TRY(nm_import_set(in, "model.context", "%lld", (long long)rows));
        return nm_import_lm_positions(in, &positions);
    }
    NM_TRY(nm_import_set(in, "model.max_positions", "%lld", (long long)rows));
    NM_TRY(nm_import_set(in, "data.max_length", "%lld", (long long)(rows < 256 ? rows : 256)));
    return nm_import_positions(in, &positions);
}

/* Determines which tables share one matrix. */
static nm_status set_sharing(nm_ct2_reader *from)
{
    const nm_ct2_stack *stacks = from->stacks;
    bool tied = nm_ct2_is_tied(from, stacks[NM_CT2_DECODER].table);
    if (from->lm)
        return nm_import_set(&from->in, "model.share_embeddings", "%s", tied ? "true" : "false");
    bool all = tied && nm_ct2_is_tied(from, stacks[NM_CT2_ENCODER].table);
    return nm_import_set(&from->in, "model.share_embeddings", "%s", all ? "all" : tied ? "decoder" : "none");
}

static nm_status set_options(nm_ct2_reader *from)
{
    nm_import *in = &from->in;
    double heads, pre_norm;
    int64_t inner = 0, positions = 0;
    NM_TRY(find_width(from, &inner, &positions));
    NM_TRY(set_streams(from));
    NM_TRY(read_shared(from, "num_heads", &heads));
    NM_TRY(read_shared(from, "pre_norm", &pre_norm));
    from->pre_norm = pre_norm != 0;
    NM_TRY(set_activation(from));
    NM_TRY(nm_import_set(in, "model.width", "%lld", (long long)from->width));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)inner));
    NM_TRY(nm_import_set(in, "model.heads", "%.0f", heads));
    for (int i = nm_ct2_first_stack(from); i < NM_CT2_STACKS; i++) {
        const char *scope = from->stacks[i].scope;
        char option[64];
        snprintf(option, sizeof option, "model.%s%slayers", from->lm ? "" : scope, from->lm ? "" : "_");
        NM_TRY(nm_import_set(in, option, "%d", (int)count_layers(&from->file, scope)));
    }
    NM_TRY(nm_import_set(in, "model.norm_position", "%s", from->pre_norm ? "pre" : "post"));
    NM_TRY(set_norms(from));
    NM_TRY(set_positions(from, positions));
    return set_sharing(from);
}

/* Reads an array of symbols as an object that maps symbols to indices. */
static nm_status read_list(const nm_ct2_reader *from, const char *path, json_t **symbols)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes = 0, i;
    json_error_t problem;
    json_t *list = NULL, *symbol;
    nm_status status = nm_file_read_text(path, &text, &bytes, from->err);
    if (status == NM_OK && !(list = json_loadb(text, bytes, 0, &problem)))
        status = nm_fail(from->err, NM_FORMAT, "%s:%d: %s", path, problem.line, problem.text);
    if (status == NM_OK && !json_is_array(list))
        status = nm_fail(from->err, NM_FORMAT, "%s: not a list of tokens", path);
    *symbols = json_object();
    json_array_foreach(list, i, symbol)
    {
        const char *name = json_string_value(symbol);
        if (status == NM_OK && (!name || json_object_get(*symbols, name)))
            status = nm_fail(from->err, NM_FORMAT, "%s: token %zu is not a text or occurs twice", path, i);
        else if (status == NM_OK)
            json_object_set_new(*symbols, name, json_integer((json_int_t)i));
    }
    json_decref(list);
    return status;
}

/* The index of the special token that config.json names under this key, or of `otherwise`; -1: none. */
static int32_t special(const nm_ct2_reader *from, const nm_foreign_vocab *vocab, const char *key,
                       const char *otherwise)
{
    const char *name = json_string_value(json_object_get(from->config, key));
    return nm_foreign_vocab_find(vocab, name ? name : otherwise);
}

/* The path of the vocabulary of a stack; heap. */
static char *vocab_path(const nm_ct2_reader *from, int stack)
{
    static const char *const own[] = {"source_vocabulary.json", "target_vocabulary.json"};
    if (from->lm)
        return nm_path_join(from->folder, "vocabulary.json");
    char *path = nm_path_join(from->folder, "shared_vocabulary.json");
    if (nm_file_may_exist(path))
        return path;
    free(path);
    return nm_path_join(from->folder, own[stack]);
}

/* Finds the special tokens of a vocabulary. */
static nm_status find_specials(nm_ct2_reader *from, int stack, const char *path)
{
    nm_foreign_vocab *vocab = &from->vocabs[stack];
    double zero[NM_CT2_STACKS];
    NM_TRY(read_scalars(from, "start_from_zero_embedding", 0, zero));
    const char *start = from->lm ? "bos_token" : "decoder_start_token";
    vocab->eos = special(from, vocab, "eos_token", "</s>");
    vocab->unk = special(from, vocab, "unk_token", "<unk>");
    vocab->unk = vocab->unk == vocab->eos ? -1 : vocab->unk; /* GPT-2: one special token */
    vocab->bos = from->lm ? nm_foreign_vocab_find(vocab, "<s>") : special(from, vocab, "bos_token", "<s>");
    vocab->pad = nm_foreign_vocab_find(vocab, "<pad>");
    vocab->pad = vocab->pad < 0 ? nm_foreign_vocab_find(vocab, "<blank>") : vocab->pad;
    vocab->first = zero[NM_CT2_DECODER] != 0 ? -1 : special(from, vocab, start, "<s>");
    bool needs_first = stack == NM_CT2_DECODER && zero[NM_CT2_DECODER] == 0;
    if (vocab->eos < 0 || (vocab->unk < 0 && !from->lm) || (needs_first && vocab->first < 0))
        return nm_fail(from->err, NM_FORMAT, "%s: has no EOS token, unknown token or first token of %s", path,
                       from->config_path);
    if (from->lm && vocab->first != vocab->eos)
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: 'bos_token' is not the EOS token, with which texts of Norma begin",
                       from->config_path);
    return NM_OK;
}

static nm_status read_vocab(nm_ct2_reader *from, int stack)
{
    const nm_ct2_variable *table = nm_ct2_file_find(&from->file, from->stacks[stack].table);
    nm_foreign_vocab *vocab = &from->vocabs[stack];
    json_auto_t *symbols = NULL;
    if (!table || table->rank != 2 || table->shape[0] > NM_VOCAB_MAX_SIZE)
        return nm_fail(from->err, NM_MISMATCH, "%s: has no matrix '%s' of a vocabulary", from->file.path,
                       from->stacks[stack].table);
    NM_AUTO_FREE char *path = vocab_path(from, stack);
    NM_TRY(read_list(from, path, &symbols));
    NM_TRY(nm_foreign_vocab_read(vocab, symbols, table->shape[0], path, from->err));
    NM_TRY(find_specials(from, stack, path));
    return nm_import_vocab(&from->in, vocab, stack == NM_CT2_DECODER, path);
}

static nm_status read_folder(nm_ct2_reader *from, const char *output)
{
    NM_AUTO_FREE char *path = nm_path_join(from->folder, "model.bin");
    NM_TRY(nm_ct2_file_read(&from->file, path, from->err));
    NM_TRY(nm_json_read(&from->config, from->config_path, from->err));
    NM_TRY(find_task(from));
    NM_TRY(nm_import_begin(&from->in, from->lm ? &nm_task_lm : &nm_task_translation, from->err));
    NM_TRY(check_variant(from));
    NM_TRY(set_options(from));
    for (int i = nm_ct2_first_stack(from); i < NM_CT2_STACKS; i++)
        NM_TRY(read_vocab(from, i));
    NM_TRY(nm_import_set(&from->in, "model.output_bias", "%s",
                         nm_ct2_has_output_bias(from) || nm_import_excludes(&from->in) ? "true" : "false"));
    NM_TRY(nm_import_texts(&from->in, from->folder));
    NM_TRY(nm_ct2_read_parameters(from));
    return nm_import_finish(&from->in, output);
}

nm_status nm_ctranslate2_read(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err)
{
    (void)settings;
    nm_ct2_reader from = {.folder = path,
                          .config_path = nm_path_join(path, "config.json"),
                          .stacks = {{.scope = "encoder", .table = "encoder/embeddings_0/weight"},
                                     {.scope = "decoder", .table = "decoder/embeddings/weight"}},
                          .err = err};
    nm_status status = read_folder(&from, output);
    nm_import_release(&from.in);
    nm_foreign_vocab_release(&from.vocabs[0]);
    nm_foreign_vocab_release(&from.vocabs[1]);
    nm_ct2_file_release(&from.file);
    json_decref(from.config);
    free(from.config_path);
    return status;
}
