/* Classes of decoder-only language models with RMSNorm, rotary position embeddings and gated units, which
 * differ in the position of the norms and in those of queries and keys:
 *     LlamaForCausalLM     pre
 *     Qwen2ForCausalLM     pre; biases of queries, keys and values only; it is read, and written as
 *                          LlamaForCausalLM
 *     Qwen3ForCausalLM     pre, queries and keys of each head
 *     Olmo2ForCausalLM     inside, queries and keys of all heads together
 *     MistralForCausalLM   pre, sliding window
 *     Gemma3ForCausalLM    sandwich, queries and keys of each head, sliding window in all layers but every
 *                          N-th */
#include <math.h>
#include <string.h>

#include "convert/huggingface.h"

static const nm_llama_class classes[] = {
    {"llama", "LlamaForCausalLM", NM_PRE_NORM, NM_HEAD_NORM_NONE, 1e-6, .biases = true},
    {"qwen2", "Qwen2ForCausalLM", NM_PRE_NORM, NM_HEAD_NORM_NONE, 1e-6, .input_biases = true},
    {"qwen3", "Qwen3ForCausalLM", NM_PRE_NORM, NM_HEAD_NORM_HEAD, 1e-6, .attention_biases = true},
    {"olmo2", "Olmo2ForCausalLM", NM_INSIDE_NORM, NM_HEAD_NORM_FULL, 1e-5, .attention_biases = true},
    {"mistral", "MistralForCausalLM", NM_PRE_NORM, NM_HEAD_NORM_NONE, 1e-6, .window = true},
    {"gemma3_text", "Gemma3ForCausalLM", NM_SANDWICH_NORM, NM_HEAD_NORM_HEAD, 1e-6, .attention_biases = true,
     .window = true, .gemma = true},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

const nm_llama_class *nm_llama_class_named(const char *model_type)
{
    for (size_t i = 0; i < N_CLASSES; i++)
        if (!strcmp(classes[i].model_type, model_type))
            return &classes[i];
    return NULL;
}

const nm_llama_class *nm_llama_class_of(const nm_lm_config *c)
{
    for (size_t i = 0; i < N_CLASSES; i++)
        if (classes[i].position == c->norm_position && classes[i].qk_norm == c->qk_norm &&
            (classes[i].gemma || classes[i].window == (c->window > 0)))
            return &classes[i];
    return NULL;
}

/* A linear layer: `rows` rows of a weight and its bias, from row `first` on. Returns the row after them. */
static int32_t map_rows(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, int32_t first, int32_t rows,
                        const char *name)
{
    nm_map_entry *entry = nm_tensor_map_add(map, weight, "%s.weight", name);
    entry->first = first;
    entry->rows = rows;
    if (bias) {
        entry = nm_tensor_map_add(map, bias, "%s.bias", name);
        entry->first = first;
        entry->rows = -rows;
    }
    return first + rows;
}

double nm_huggingface_table_factor(const nm_model *model)
{
    const nm_lm_config *c = nm_lm_config_of(model);
    const nm_llama_class *class = c->rope == NM_ROPE_NONE ? NULL : nm_llama_class_of(c);
    return nm_lm_embedding_factor(c) / (class && class->gemma ? sqrt((double)c->width) : 1);
}

bool nm_huggingface_is_tied(const nm_model *model)
{
    const nm_lm *lm = nm_lm_of(model);
    return lm->output_weight == lm->table && nm_huggingface_table_factor(model) == 1;
}

void nm_huggingface_map_llama(nm_tensor_map *map, nm_model *model)
{
    const nm_lm *lm = nm_lm_of(model);
    const nm_stack_config *c = &lm->stack.config;
    const nm_head_widths w = nm_stack_head_widths(c, false);
    char name[64];
    nm_map_entry *table = nm_tensor_map_add(map, lm->table, "model.embed_tokens.weight");
    table->vocab = NM_OF_TARGET_VOCAB;
    table->factor = nm_huggingface_table_factor(model);
    for (int32_t i = 0; i < c->layers; i++) {
        const nm_sublayer_attention *self = &lm->stack.layers[i].self;
        const nm_sublayer_ffn *ffn = &lm->stack.layers[i].ffn;
#define NAMED(part) (snprintf(name, sizeof name, "model.layers.%d.%s", i, part), name)
        int32_t at =
            map_rows(map, self->in_weight, self->in_bias, 0, w.heads * w.key, NAMED("self_attn.q_proj"));
        at = map_rows(map, self->in_weight, self->in_bias, at, w.groups * w.key, NAMED("self_attn.k_proj"));
        map_rows(map, self->in_weight, self->in_bias, at, w.groups * w.value, NAMED("self_attn.v_proj"));
        map_rows(map, self->out_weight, self->out_bias, 0, c->width, NAMED("self_attn.o_proj"));
        at = map_rows(map, ffn->in_weight, ffn->in_bias, 0, c->ff, NAMED("mlp.gate_proj"));
        map_rows(map, ffn->in_weight, ffn->in_bias, at, c->ff, NAMED("mlp.up_proj"));
        map_rows(map, ffn->out_weight, ffn->out_bias, 0, c->width, NAMED("mlp.down_proj"));
#undef NAMED
    }
}

nm_status nm_llama_each_norm(const nm_model *model, nm_llama_norm *visit, void *context, nm_error *err)
{
    const nm_lm *lm = model->parts;
    bool inside = lm->stack.config.position == NM_INSIDE_NORM,
         sandwich = lm->stack.config.position == NM_SANDWICH_NORM;
    for (int32_t i = 0; i < lm->stack.config.layers; i++) {
        const nm_layer *layer = &lm->stack.layers[i];
        const struct {
            const nm_norm *norm;
            const char *name;
        } norms[] = {{layer->self.norm, inside ? "post_attention_layernorm" : "input_layernorm"},
                     {layer->self.output_norm, "post_attention_layernorm"},
                     {layer->self.query_norm, "self_attn.q_norm"},
                     {layer->self.key_norm, "self_attn.k_norm"},
                     {layer->ffn.norm, inside     ? "post_feedforward_layernorm"
                                       : sandwich ? "pre_feedforward_layernorm"
                                                  : "post_attention_layernorm"},
                     {layer->ffn.output_norm, "post_feedforward_layernorm"}};
        for (size_t n = 0; n < sizeof norms / sizeof *norms; n++) {
            char name[80];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", i, norms[n].name);
            if (norms[n].norm)
                NM_TRY(visit(norms[n].norm, name, context, err));
        }
    }
    return visit(lm->stack.final_norm, "model.norm.weight", context, err);
}
