/* Reading of the classes with RMSNorm and rotary position embeddings, see huggingface_llama.c. */
#include <math.h>
#include <string.h>

#include "convert/huggingface_reader.h"
#include "convert/json_file.h"
#include "task/lm_task.h"

typedef struct norm_reader {
    nm_tensor_map *map;
    const nm_model *model;
    double offset; /* of the tensor to the gain */
} norm_reader;

static nm_status map_norm(const nm_norm *norm, const char *tensor, void *context, nm_error *err)
{
    const norm_reader *to = context;
    char gain[160];
    (void)err;
    snprintf(gain, sizeof gain, "%s.scale", norm->site.name);
    nm_tensor_map_add(to->map, &nm_params_find(&to->model->params, gain)->tensor, "%s", tensor)->offset =
        to->offset;
    return NM_OK;
}

/* Which linear layers have biases: the projections of queries, keys and values, that of the output, the
 * feed-forward layers. If some have, all have in Norma, and those of the others are 0. */
typedef struct llama_biases {
    bool input, output, ffn;
} llama_biases;

static llama_biases biases_of(const nm_hf_reader *from, const nm_llama_class *class)
{
    bool attention = nm_json_flag(from->config, "attention_bias", false);
    return (llama_biases){attention || class->input_biases, attention,
                          class->biases && nm_json_flag(from->config, "mlp_bias", false)};
}

/* Biases that the class does not have keep their value, 0. */
static void allow_missing_biases(nm_tensor_map *map, llama_biases biases)
{
    for (size_t i = 0; i < map->n; i++) {
        nm_map_entry *entry = &map->entries[i];
        const char *end = strrchr(entry->name, '.');
        bool expected = strstr(entry->name, ".mlp.")      ? biases.ffn
                        : strstr(entry->name, ".o_proj.") ? biases.output
                                                          : biases.input;
        entry->optional = entry->optional || (end && !strcmp(end, ".bias") && !expected);
    }
}

/* Whether the output projection is the table of the embeddings. */
static bool is_tied(const nm_hf_reader *from, const nm_llama_class *class)
{
    return nm_json_flag(from->config, "tie_word_embeddings", class->gemma);
}

static bool ignored_llama(const char *name)
{
    return !strcmp(name, "lm_head.weight");
}

static nm_status load_llama(nm_hf_reader *from, const nm_llama_class *class, const char *output)
{
    nm_import *in = &from->in;
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_source source = nm_tensor_source_safetensors(from->file);
    if (is_tied(from, class))
        source.ignored = ignored_llama;
    NM_TRY(nm_import_declare(in));
    nm_huggingface_map_llama(&map, in->loaded.model);
    allow_missing_biases(&map, biases_of(from, class));
    const nm_lm *lm = nm_lm_of(in->loaded.model);
    if (lm->output_weight != lm->table)
        nm_tensor_map_add(&map, lm->output_weight, "lm_head.weight")->vocab = NM_OF_TARGET_VOCAB;
    norm_reader norms = {&map, in->loaded.model, class->gemma ? -1 : 0};
    nm_status status = nm_llama_each_norm(in->loaded.model, map_norm, &norms, from->err);
    NM_THEN(status, nm_import_load(in, &map, &source));
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

/* Sets an option to a number of the rotary position embeddings, which must exist. */
static nm_status set_rope_number(nm_hf_reader *from, const json_t *rope, const char *key, const char *option)
{
    double value = nm_json_real(rope, key, NAN);
    return isfinite(value) ? nm_import_set(&from->in, option, "%.17g", value)
                           : nm_fail(from->err, NM_FORMAT, "%s: no number '%s' of the scaled 'rope_type'",
                                     from->config_path, key);
}

static nm_status set_rope_scaling(nm_hf_reader *from, const json_t *rope, const char *type)
{
    if (!type || !strcmp(type, "default"))
        return NM_OK;
    bool llama3 = !strcmp(type, "llama3");
    if (!llama3 && strcmp(type, "linear"))
        return nm_fail(from->err, NM_UNSUPPORTED, "%s: 'rope_type' is '%.50s', which Norma does not support",
                       from->config_path, type);
    NM_TRY(nm_import_set(&from->in, "model.rope_scaling", "%s", type));
    NM_TRY(set_rope_number(from, rope, "factor", "model.rope_factor"));
    if (!llama3)
        return NM_OK;
    NM_TRY(set_rope_number(from, rope, "low_freq_factor", "model.rope_low"));
    NM_TRY(set_rope_number(from, rope, "high_freq_factor", "model.rope_high"));
    return set_rope_number(from, rope, "original_max_position_embeddings", "model.rope_original");
}

/* The angles of Gemma's layers with a window, if they differ from the others. */
static nm_status set_local_rope(nm_hf_reader *from, const json_t *all)
{
    const json_t *rope = json_object_get(all, "sliding_attention");
    if (rope && json_equal(rope, json_object_get(all, "full_attention")))
        return NM_OK;
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (type && strcmp(type, "default"))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: 'rope_type' of 'sliding_attention' is '%.50s', which Norma does not support",
                       from->config_path, type);
    double base = nm_json_real(from->config, "rope_local_base_freq", 10000);
    return nm_import_set(&from->in, "model.local_rope_base", "%.17g", nm_json_real(rope, "rope_theta", base));
}

/* The angles of rotary position embeddings, whose place depends on the version of transformers. */
static nm_status set_rope(nm_hf_reader *from, const nm_llama_class *class)
{
    const json_t *all = json_object_get(from->config, "rope_parameters"),
                 *rope = json_object_get(from->config, "rope_scaling");
    if (class->gemma && json_object_size(rope) && json_object_size(all))
        return nm_fail(from->err, NM_UNSUPPORTED,
                       "%s: has both 'rope_parameters' and 'rope_scaling', which Norma does not support",
                       from->config_path);
    if (!json_object_size(rope)) /* as in transformers, rope_scaling replaces rope_parameters */
        rope = class->gemma ? json_object_get(all, "full_attention") : all;
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(rope, "type"));
    NM_TRY(nm_import_set(&from->in, "model.rope", "half"));
    NM_TRY(set_rope_scaling(from, rope, type));
    double base = nm_json_real(from->config, "rope_theta", class->gemma ? 1e6 : 10000);
    NM_TRY(nm_import_set(&from->in, "model.rope_base", "%.17g", nm_json_real(rope, "rope_theta", base)));
    return class->gemma ? set_local_rope(from, all) : NM_OK;
}

/* Whether layer i attends to all tokens, of a class in which each `every`-th does (0: none), unless the
 * configuration lists the layers. */
static nm_status find_global_layer(const nm_hf_reader *from, int64_t every, int64_t i, bool *global)
{
    const json_t *types = json_object_get(from->config, "layer_types");
    *global = every && (i + 1) % every == 0;
    if (!json_is_array(types))
        return NM_OK;
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    *global = type && !strcmp(type, "full_attention");
    return *global || (type && !strcmp(type, "sliding_attention"))
               ? NM_OK
               : nm_fail(from->err, NM_UNSUPPORTED,
                         "%s: 'layer_types' has '%.50s', which Norma does not support", from->config_path,
                         type ? type : "");
}

/* The window and the layers that have it: none, all, or all but every N-th. */
static nm_status set_window(nm_hf_reader *from, const nm_llama_class *class, int64_t layers)
{
    const json_t *window = json_object_get(from->config, "sliding_window");
    int64_t every = class->gemma ? nm_json_id(from->config, "sliding_window_pattern", 6) : 0, first = 0,
            n = 0;
    bool has_window = class->window && !json_is_null(window), global;
    for (int64_t i = 0; i < layers; i++) {
        NM_TRY(find_global_layer(from, has_window ? every : 1, i, &global));
        if (!global && !class->window)
            return nm_fail(
                from->err, NM_UNSUPPORTED,
                "%s: 'layer_types' has 'sliding_attention', which Norma does not support in this class",
                from->config_path);
        n += global;
        first = global && !first ? i + 1 : first;
        if (first && global != ((i + 1) % first == 0))
            return nm_fail(
                from->err, NM_UNSUPPORTED,
                "%s: 'layer_types': layers with a sliding window must be all, or all but every N-th",
                from->config_path);
    }
    if (n == layers)
        return NM_OK;
    int64_t size = !window ? 4096 : json_is_integer(window) ? json_integer_value(window) : -1;
    if (size < 1)
        return nm_fail(from->err, NM_FORMAT, "%s: 'sliding_window' is not a positive number",
                       from->config_path);
    NM_TRY(nm_import_set(&from->in, "model.global_every", "%lld", (long long)first));
    return nm_import_set(&from->in, "model.window", "%lld",
                         (long long)(size < NM_LM_MAX_CONTEXT ? size : NM_LM_MAX_CONTEXT));
}

/* The functions of Gemma that Norma does not have. */
static nm_status check_gemma(const nm_hf_reader *from, int64_t head_width)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (int i = 0; i < 2; i++) {
        const json_t *cap = json_object_get(from->config, caps[i]);
        if (cap && !json_is_null(cap))
            return nm_fail(from->err, NM_UNSUPPORTED, "%s: '%s' is set, which Norma does not support",
                           from->config_path, caps[i]);
    }
    double scalar = nm_json_real(from->config, "query_pre_attn_scalar", 256);
    return scalar == (double)head_width
               ? NM_OK
               : nm_fail(
                     from->err, NM_UNSUPPORTED,
                     "%s: 'query_pre_attn_scalar' %g is not 'head_dim' %lld, which Norma does not support",
                     from->config_path, scalar, (long long)head_width);
}

static nm_status set_llama_options(nm_hf_reader *from, const nm_llama_class *class)
{
    static const nm_hf_flag flags[] = {
        {"use_sliding_window", false}, {"use_bidirectional_attention", false}, {NULL, false}};
    static const nm_hf_rate rates[] = {{"attention_dropout", "model.attention_dropout", 0},
                                       {NULL, "model.dropout", 0},
                                       {NULL, "model.embedding_dropout", 0},
                                       {NULL, "model.relu_dropout", 0},
                                       {NULL, "model.hidden_dropout", 0},
                                       {NULL, NULL, 0}};
    static const char *const qk_norms[] = {NM_HEAD_NORMS(NM_CHOICE_NAME)};
    static const char *const positions[] = {NM_NORM_POSITIONS(NM_CHOICE_NAME)};
    int64_t width, ff, layers, heads, context;
    nm_import *in = &from->in;
    NM_TRY(nm_hf_check_flags(from, flags));
    NM_TRY(nm_hf_set_rates(from, rates));
    NM_TRY(nm_hf_count(from, "hidden_size", NM_HF_MAX_WIDTH, &width));
    NM_TRY(nm_hf_count(from, "intermediate_size", NM_HF_MAX_INNER, &ff));
    NM_TRY(nm_hf_count(from, "num_hidden_layers", NM_HF_MAX_LAYERS, &layers));
    NM_TRY(nm_hf_count(from, "num_attention_heads", NM_HF_MAX_HEADS, &heads));
    NM_TRY(nm_hf_count(from, "max_position_embeddings", 1 << 24, &context));
    int64_t groups = nm_json_id(from->config, "num_key_value_heads", heads),
            head_width = nm_json_id(from->config, "head_dim", width / heads);
    const llama_biases biases = biases_of(from, class);
    NM_TRY(nm_hf_check_layers(from, "model.layers", layers, "mlp.up_proj.weight"));
    NM_TRY(nm_hf_set_activation(from, class->gemma ? "hidden_activation" : "hidden_act"));
    NM_TRY(set_rope(from, class));
    NM_TRY(set_window(from, class, layers));
    NM_TRY(class->gemma ? check_gemma(from, head_width) : NM_OK);
    NM_TRY(nm_import_set(in, "model.norm_position", "%s", positions[class->position]));
    NM_TRY(nm_import_set(in, "model.qk_norm", "%s", qk_norms[class->qk_norm]));
    NM_TRY(nm_import_set(in, "model.norm", "rms"));
    NM_TRY(nm_import_set(in, "norm.rms.epsilon_inside", "true"));
    NM_TRY(nm_import_set(in, "norm.rms.epsilon", "%.17g",
                         nm_json_real(from->config, "rms_norm_eps", class->epsilon)));
    NM_TRY(nm_import_set(in, "norm.rms.decay_to_one", "%s", class->gemma ? "true" : "false"));
    NM_TRY(nm_import_set(in, "model.gated", "true"));
    NM_TRY(nm_import_set(in, "model.bias", "%s",
                         biases.input || biases.output || biases.ffn ? "true" : "false"));
    NM_TRY(nm_import_set(in, "model.positions", "none"));
    NM_TRY(nm_import_set(in, "model.embedding_scale", "%s", class->gemma ? "sqrt" : "none"));
    NM_TRY(nm_import_set(in, "model.share_embeddings", "%s", is_tied(from, class) ? "true" : "false"));
    NM_TRY(nm_import_set(in, "model.width", "%lld", (long long)width));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)ff));
    NM_TRY(nm_import_set(in, "model.layers", "%lld", (long long)layers));
    NM_TRY(nm_import_set(in, "model.heads", "%lld", (long long)heads));
    NM_TRY(nm_import_set(in, "model.key_value_heads", "%lld", (long long)(groups == heads ? 0 : groups)));
    NM_TRY(nm_import_set(in, "model.head_width", "%lld", (long long)head_width));
    return nm_import_set(in, "model.context", "%lld",
                         (long long)(context < NM_LM_MAX_CONTEXT ? context : NM_LM_MAX_CONTEXT));
}

nm_status nm_hf_read_llama(nm_hf_reader *from, const nm_llama_class *class, const char *output)
{
    int64_t size;
    NM_TRY(nm_import_begin(&from->in, &nm_task_lm, from->err));
    NM_TRY(nm_hf_count(from, "vocab_size", NM_VOCAB_MAX_SIZE, &size));
    NM_TRY(nm_hf_check_table(from, "model.embed_tokens.weight", size));
    NM_TRY(set_llama_options(from, class));
    NM_TRY(nm_hf_read_lm_texts(from, size));
    return load_llama(from, class, output);
}
