/* Names of the tensors of M2M100, Marian and GPT-2. */
#include "convert/huggingface.h"
#include "convert/torch_layers.h"
#include "model/lm.h"
#include "model/seq2seq.h"

void nm_huggingface_map_seq2seq(nm_tensor_map *map, nm_model *model)
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
    if (s->output_weight != s->source_table) {
        nm_map_entry *output = nm_tensor_map_add(map, s->output_weight, "lm_head.weight");
        output->vocab = NM_OF_TARGET_VOCAB;
        output->optional = s->output_weight == s->target_table;
    }
    nm_torch_layers_add(map, model, &s->encoder, "model.encoder");
    nm_torch_layers_add(map, model, &s->decoder, "model.decoder");
}

/* The weights of GPT-2's linear layers are stored as [inputs, outputs]. */
static void map_transposed(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, const char *name)
{
    nm_tensor_map_add(map, weight, "%s.weight", name)->transposed = true;
    nm_tensor_map_add(map, bias, "%s.bias", name);
}

void nm_huggingface_map_gpt2(nm_tensor_map *map, nm_model *model, const char *prefix)
{
    const nm_lm *lm = nm_lm_of(model);
    char name[64];
    nm_map_entry *table = nm_tensor_map_add(map, lm->table, "%swte.weight", prefix);
    table->vocab = NM_OF_TARGET_VOCAB;
    table->factor = nm_huggingface_table_factor(model);
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
