/* Writing of Hugging Face folders: the classes of huggingface_llama.c. */
#include <stdlib.h>
#include <string.h>

#include "convert/huggingface.h"
#include "base/json.h"
#include "convert/json_file.h"
#include "convert/norm_map.h"
#include "task/lm_task.h"

/* Epsilon in the mean square for norms with a negligible epsilon outside the root, so that a row of zeros
 * stays zero. */
static const double LEAST_EPSILON = 1e-12;

static nm_status check_structure(const nm_lm_config *c, nm_error *err)
{
    const nm_llama_class *class = nm_llama_class_of(c);
    const struct {
        bool supported;
        const char *problem;
    } parts[] = {
        {c->rope == NM_ROPE_HALF, "model.rope = interleaved: the classes rotate the two halves of a head"},
        {!c->qk_norm_after_rope,
         "model.qk_norm_after_rope = true: the classes normalize before the rotation"},
        {c->positions == NM_LM_NO_POSITIONS,
         "model.positions: the classes have rotary position embeddings only"},
        {c->gated, "model.gated = false: the classes have gated units"},
        {c->residual == NM_RESIDUAL_PLAIN, "model.residual: the classes have plain residual connections"},
        {!nm_stack_has_embedding_norm(&c->stack),
         "model.embedding_norm: the classes have no norm of embeddings"},
        {c->v_norm == NM_HEAD_NORM_NONE, "model.v_norm: the classes have no norm of values"},
        {class,
         "model.norm_position, model.qk_norm and model.window: the classes have pre with none (Llama, with "
         "a window Mistral) or head (Qwen3), inside with full (OLMo 2), and sandwich with head (Gemma 3)"},
        {!c->bias || (class && (class->biases || class->attention_biases)),
         "model.bias = true: Mistral, the class with a window in all layers, has no biases"},
        {!class || class->gemma || !c->window || !c->global_every,
         "model.global_every: only the class Gemma 3 has layers with and without a window"},
        {!class || class->gemma || c->local_rope_base == 0 || c->local_rope_base == c->rope_base,
         "model.local_rope_base: only the class Gemma 3 has other angles in layers with a window"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].supported)
            return nm_fail(err, NM_UNSUPPORTED, "%s", parts[i].problem);
    return NM_OK;
}

/* Removes the biases of feed-forward layers, which Norma has if attention has some and the class has not. */
static nm_status drop_ffn_biases(nm_tensor_map *map, const nm_model *model, bool trains, nm_error *err)
{
    size_t kept = 0;
    nm_status status = NM_OK;
    for (size_t i = 0; i < map->n; i++) {
        const nm_map_entry *entry = &map->entries[i];
        if (!strstr(entry->name, ".mlp.") || strcmp(strrchr(entry->name, '.'), ".bias")) {
            map->entries[kept++] = *entry;
            continue;
        }
        if (status == NM_OK && !nm_huggingface_is_zero(model, entry->param, trains))
            status = nm_fail(err, NM_UNSUPPORTED,
                             "%s is not 0: the class has biases of attention only (train with "
                             "model.freeze = *.ffn.*.bias)",
                             entry->name);
        free(entry->name);
    }
    map->n = kept;
    return status;
}

/* Where the gains of norms are added, NULL: nowhere; eps: of all norms so far, negative at first. */
typedef struct norm_writer {
    nm_backend *backend;
    nm_tensor_list *list;
    double eps, offset; /* offset: of the tensor to the gain */
} norm_writer;

static nm_status write_norm(const nm_norm *norm, const char *name, void *context, nm_error *err)
{
    norm_writer *to = context;
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
    nm_status status = nm_norm_map_make(&map, norm, to->backend, err);
    double eps = map.eps > 0 ? map.eps : LEAST_EPSILON;
    if (status == NM_OK && map.kind != NM_NORM_AS_RMS)
        status = nm_fail(err, NM_UNSUPPORTED,
                         "%s is %s: the classes with rotary position embeddings have RMSNorm only",
                         norm->site.name, norm->type->name);
    if (status == NM_OK && to->eps >= 0 && eps != to->eps)
        status =
            nm_fail(err, NM_UNSUPPORTED, "%s has epsilon %g, other norms have %g: the class has one epsilon",
                    norm->site.name, eps, to->eps);
    to->eps = eps;
    for (int32_t i = 0; status == NM_OK && i < norm->site.width; i++)
        map.gain[i] += to->offset;
    if (status == NM_OK && to->list)
        nm_tensor_list_add(to->list, map.gain, 0, norm->site.width, "%s", name);
    return status;
}

static const char *const scaling_names[] = {
    [NM_ROPE_UNSCALED] = "default", [NM_ROPE_LINEAR] = "linear", [NM_ROPE_LLAMA3] = "llama3"};
_Static_assert(NM_ROPE_SCALINGS_COUNT == 3, "every scaling has a name");

/* The parameters of rotary position embeddings, with the scaling of the angles. */
static json_t *rope_of(const nm_lm_config *c)
{
    json_t *rope =
        json_pack("{s:s, s:f}", "rope_type", scaling_names[c->rope_scaling], "rope_theta", c->rope_base);
    if (c->rope_scaling != NM_ROPE_UNSCALED)
        nm_json_add(rope, "{s:f}", "factor", c->rope_factor);
    if (c->rope_scaling == NM_ROPE_LLAMA3)
        nm_json_add(rope, "{s:f, s:f, s:I}", "low_freq_factor", c->rope_low, "high_freq_factor", c->rope_high,
                    "original_max_position_embeddings", (json_int_t)c->rope_original);
    return rope;
}

static json_t *layer_type(const void *config, size_t i)
{
    const nm_lm_config *c = config;
    bool full = !c->window || (c->global_every && (int64_t)(i + 1) % c->global_every == 0);
    return json_string(full ? "full_attention" : "sliding_attention");
}

/* The parts of config.json that only Gemma has. The angles are those of the two kinds of layers, of which
 * transformers 4 has rope_theta and rope_local_base_freq. */
static void describe_gemma(json_t *config, const nm_lm_config *c, int32_t head_width)
{
    json_t *global = json_object_get(config, "rope_parameters"),
           *local = c->local_rope_base > 0
                        ? json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", c->local_rope_base)
                        : json_copy(global);
    nm_json_add(config, "{s:f}", "rope_local_base_freq",
                c->local_rope_base > 0 ? c->local_rope_base : c->rope_base);
    nm_json_add(config, "{s:{s:O, s:o}, s:o, s:i, s:O}", "rope_parameters", "full_attention", global,
                "sliding_attention", local, "layer_types", nm_json_list((size_t)c->layers, layer_type, c),
                "query_pre_attn_scalar", (int)head_width, "hidden_activation",
                json_object_get(config, "hidden_act"));
}

static json_t *config_of(const nm_model *model, const nm_huggingface_vocab *vocab, const char *activation,
                         double eps)
{
    const nm_lm_config *c = nm_lm_config_of(model);
    const nm_llama_class *class = nm_llama_class_of(c);
    const nm_lm *lm = model->parts;
    const nm_head_widths w = nm_stack_head_widths(&lm->stack.config, false);
    json_t *config = json_pack(
        "{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:s, s:f, s:f, "
        "s:o, s:b, s:f, s:b, s:o, s:o, s:o, s:o*, s:o*}",
        "architectures", class->name, "model_type", class->model_type, "dtype", "float32", "vocab_size",
        (int)vocab->size, "hidden_size", (json_int_t)c->width, "intermediate_size", (json_int_t)c->ff,
        "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads", (int)w.heads,
        "num_key_value_heads", (int)w.groups, "head_dim", (int)w.key, "max_position_embeddings",
        (json_int_t)c->context, "hidden_act", activation, "rms_norm_eps", eps, "rope_theta", c->rope_base,
        "rope_parameters", rope_of(c), "attention_bias", c->bias, "attention_dropout", c->attention_dropout,
        "tie_word_embeddings", nm_huggingface_is_tied(model), "bos_token_id",
        nm_huggingface_id(vocab, nm_lm_first_input(c, vocab->vocab)), "eos_token_id",
        nm_huggingface_id(vocab, vocab->vocab->eos), "pad_token_id",
        nm_huggingface_id(vocab, vocab->vocab->pad), "mlp_bias", class->biases ? json_boolean(c->bias) : NULL,
        /* transformers needs it even if layer_types names no layer with a window */
        "sliding_window",
        class->window ? json_integer((json_int_t)(c->window ? c->window : c->context)) : NULL);
    if (config && class->gemma)
        describe_gemma(config, c, w.value);
    else if (config && c->rope_scaling != NM_ROPE_UNSCALED) /* the key of transformers 4 */
        nm_json_add(config, "{s:O}", "rope_scaling", json_object_get(config, "rope_parameters"));
    return config;
}

/* Fills the map with the tensors of the class except norms and output projection. On failure it is empty. */
static nm_status map_tensors(nm_tensor_map *map, nm_model *model, bool trains, nm_error *err)
{
    nm_status status = NM_OK;
    nm_huggingface_map_llama(map, model);
    if (nm_llama_class_of(nm_lm_config_of(model))->attention_biases)
        status = drop_ffn_biases(map, model, trains, err);
    if (status != NM_OK)
        nm_tensor_map_release(map);
    return status;
}

nm_status nm_huggingface_choose_llama(nm_model *model, bool trains, const char **class, nm_error *err)
{
    const char *activation;
    NM_TRY(check_structure(nm_lm_config_of(model), err));
    *class = nm_llama_class_of(nm_lm_config_of(model))->name;
    if (!nm_huggingface_is_zero(model, nm_lm_of(model)->output_bias, trains))
        return nm_fail(err, NM_UNSUPPORTED,
                       "model.output_bias = true: the classes with rotary position embeddings have no bias "
                       "of the output projection");
    NM_TRY(nm_huggingface_activation(nm_lm_config_of(model)->activation, &activation, err));
    nm_tensor_map map = {0};
    norm_writer norms = {.backend = model->backend, .eps = -1};
    NM_TRY(map_tensors(&map, model, trains, err));
    nm_tensor_map_release(&map);
    return nm_llama_each_norm(model, write_norm, &norms, err);
}

nm_status nm_huggingface_write_llama(const nm_loaded_model *loaded, const nm_huggingface_vocab *vocab,
                                     const char *folder, nm_error *err)
{
    nm_model *model = loaded->model;
    const nm_lm *lm = model->parts;
    const nm_map_ids ids = nm_huggingface_ids(vocab);
    const char *activation;
    NM_TRY(nm_huggingface_activation(nm_lm_config_of(model)->activation, &activation, err));
    nm_tensor_map map = {0};
    nm_tensor_list list = {0};
    norm_writer norms = {model->backend, &list, -1,
                         nm_llama_class_of(nm_lm_config_of(model))->gemma ? -1 : 0};
    NM_TRY(map_tensors(&map, model, false, err));
    if (!nm_huggingface_is_tied(model))
        nm_tensor_map_add(&map, lm->output_weight, "lm_head.weight")->vocab = NM_OF_TARGET_VOCAB;
    nm_status status = nm_llama_each_norm(model, write_norm, &norms, err);
    if (status == NM_OK) {
        nm_tensor_map_write(&map, model->backend, &ids, &list);
        status = nm_huggingface_write_tensors(&list, folder, err);
    }
    nm_tensor_list_release(&list);
    nm_tensor_map_release(&map);
    NM_TRY(status);
    NM_TRY(nm_json_write(config_of(model, vocab, activation, norms.eps), folder, "config.json", err));
    return nm_huggingface_write_lm_texts(loaded, vocab, folder, err);
}
