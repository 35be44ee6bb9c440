/* The parameters of CTranslate2 models. A tensor is a parameter times a power of two: the linear layers that
 * write to the residual stream are multiplied by its scale, and in post-norm the linear layers that read it
 * are divided by it. */
#include <string.h>

#include "convert/ctranslate2.h"
#include "convert/ctranslate2_reader.h"
#include "model/lm.h"
#include "model/seq2seq.h"

static const char projection[] = "decoder/projection/weight", output_bias[] = "decoder/projection/bias",
                  positions[] = "decoder/position_encodings/encodings";

/* Scale of the values that the linear layers read: in pre-norm the output of a norm, in post-norm the
 * stream. */
static double output_scale(const nm_ct2_reader *from, int stack)
{
    return from->pre_norm ? 1 : from->stacks[stack].scale;
}

bool nm_ct2_is_tied(const nm_ct2_reader *from, const char *table)
{
    const nm_ct2_stack *decoder = &from->stacks[NM_CT2_DECODER];
    const nm_ct2_variable *x = nm_ct2_file_find(&from->file, table),
                          *y = nm_ct2_file_find(&from->file, projection);
    double scale = output_scale(from, NM_CT2_DECODER);
    if (!x || !y || decoder->factor != 1)
        return false;
    if (x == y)
        return scale == 1;
    bool same = x->type == NM_CT2_FLOAT32 && y->type == NM_CT2_FLOAT32 && x->count == y->count &&
                x->rank == y->rank && !memcmp(x->shape, y->shape, sizeof x->shape);
    for (size_t i = 0; same && i < x->count; i++) {
        float in, out;
        memcpy(&in, x->data + i * sizeof in, sizeof in);
        memcpy(&out, y->data + i * sizeof out, sizeof out);
        same = (double)in == (double)out * scale;
    }
    return same;
}

bool nm_ct2_has_output_bias(const nm_ct2_reader *from)
{
    const nm_tensor_source source = nm_ct2_file_source(&from->file);
    const nm_ct2_variable *variable = nm_ct2_file_find(&from->file, output_bias);
    int64_t shape[NM_CT2_MAX_RANK];
    int rank;
    NM_AUTO_FREE double *bias = variable ? source.read(&from->file, output_bias, &rank, shape) : NULL;
    bool any = false;
    for (size_t i = 0; bias && i < variable->count; i++)
        any |= bias[i] != 0;
    return any;
}

/* Whether a variable is not a parameter: it is read as an option, or only alignments use it. */
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
    const char *slash = strchr(name, '/');
    for (size_t i = 0; slash && i < sizeof list / sizeof *list; i++)
        if (!strcmp(slash + 1, list[i]))
            return true;
    return false;
}

static bool ignored_without_bias(const char *name)
{
    return ignored(name) || !strcmp(name, output_bias);
}

/* reads, writes: scales of the input and the output of the layer in the file. */
static void map_linear(nm_tensor_map *map, nm_tensor *weight, nm_tensor *bias, double reads, double writes,
                       const char *name)
{
    nm_tensor_map_add(map, weight, "%s/weight", name)->factor = writes / reads;
    nm_map_entry *entry = nm_tensor_map_add(map, bias, "%s/bias", name);
    entry->optional = true;
    entry->factor = writes;
}

static nm_tensor *norm_param(const nm_ct2_reader *from, const nm_norm *norm, const char *param)
{
    char name[160];
    snprintf(name, sizeof name, "%s.%s", norm->site.name, param);
    return &nm_params_find(&from->in.loaded.model->params, name)->tensor;
}

static void map_norm(const nm_ct2_reader *from, nm_tensor_map *map, const nm_norm *norm, int stack,
                     double writes, const char *scope)
{
    if (from->stacks[stack].norm == NM_CT2_LAYER) {
        nm_tensor_map_add(map, norm_param(from, norm, "weight"), "%s/layer_norm/gamma", scope);
        nm_tensor_map_add(map, norm_param(from, norm, "bias"), "%s/layer_norm/beta", scope);
    } else {
        nm_tensor_map_add(map, norm_param(from, norm, "scale"), "%s/layer_norm/gamma", scope)->factor =
            writes;
    }
}

typedef struct sublayer {
    const nm_norm *norm;
    nm_tensor *in_weight, *in_bias, *out_weight, *out_bias;
} sublayer;

static void map_sublayer(const nm_ct2_reader *from, nm_tensor_map *map, const sublayer *s, int stack,
                         const char *scope, int out)
{
    double scale = from->stacks[stack].scale;
    char name[96];
    snprintf(name, sizeof name, "%s/linear_0", scope);
    map_linear(map, s->in_weight, s->in_bias, output_scale(from, stack), 1, name);
    snprintf(name, sizeof name, "%s/linear_%d", scope, out);
    map_linear(map, s->out_weight, s->out_bias, 1, scale, name);
    map_norm(from, map, s->norm, stack, output_scale(from, stack), scope);
}

static sublayer attention_of(const nm_sublayer_attention *a)
{
    return (sublayer){a->norm, a->in_weight, a->in_bias, a->out_weight, a->out_bias};
}

static void map_stack(const nm_ct2_reader *from, nm_tensor_map *map, const nm_stack *stack, int index)
{
    const char *scope = from->stacks[index].scope;
    char at[64], name[96];
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        const sublayer self = attention_of(&layer->self), cross = attention_of(&layer->cross),
                       ffn = {layer->ffn.norm, layer->ffn.in_weight, layer->ffn.in_bias,
                              layer->ffn.out_weight, layer->ffn.out_bias};
        snprintf(at, sizeof at, "%s/layer_%d/self_attention", scope, i);
        map_sublayer(from, map, &self, index, at, 1);
        if (cross.norm) {
            snprintf(at, sizeof at, "%s/layer_%d/attention", scope, i);
            map_sublayer(from, map, &cross, index, at, 2);
            snprintf(name, sizeof name, "%s/linear_1", at);
            map_linear(map, layer->cross.kv_weight, layer->cross.kv_bias, output_scale(from, NM_CT2_ENCODER),
                       1, name);
        }
        snprintf(at, sizeof at, "%s/layer_%d/ffn", scope, i);
        map_sublayer(from, map, &ffn, index, at, 1);
    }
    if (stack->final_norm)
        map_norm(from, map, stack->final_norm, index, 1, scope);
}

typedef struct tables {
    nm_tensor *source, *target, *weight, *bias; /* source NULL: a language model */
} tables;

/* Maps every table, also those that share a matrix with another one. */
static void map_tables(const nm_ct2_reader *from, nm_tensor_map *map, const tables *t)
{
    const nm_ct2_stack *stacks = from->stacks;
    double scale = output_scale(from, NM_CT2_DECODER);
    if (t->source)
        nm_tensor_map_add(map, t->source, "%s", stacks[NM_CT2_ENCODER].table)->vocab = NM_OF_SOURCE_VOCAB;
    nm_map_entry *table = nm_tensor_map_add(map, t->target, "%s", stacks[NM_CT2_DECODER].table);
    table->vocab = NM_OF_TARGET_VOCAB;
    table->factor = stacks[NM_CT2_DECODER].factor;
    nm_map_entry *output = nm_tensor_map_add(map, t->weight, "%s", projection);
    output->vocab = NM_OF_TARGET_VOCAB;
    output->factor = 1 / scale;
    if (t->bias) {
        nm_map_entry *bias = nm_tensor_map_add(map, t->bias, "%s", output_bias);
        bias->vocab = NM_OF_TARGET_VOCAB;
        bias->optional = true;
    }
}

static void map_model(const nm_ct2_reader *from, nm_tensor_map *map, nm_tensor_source *source)
{
    if (!from->lm) {
        const nm_seq2seq *s = nm_seq2seq_of(from->in.loaded.model);
        map_tables(from, map, &(tables){s->source_table, s->target_table, s->output_weight, s->output_bias});
        map_stack(from, map, &s->encoder, NM_CT2_ENCODER);
        map_stack(from, map, &s->decoder, NM_CT2_DECODER);
        source->ignored = s->output_bias ? ignored : ignored_without_bias;
        return;
    }
    const nm_lm *lm = nm_lm_of(from->in.loaded.model);
    map_tables(from, map, &(tables){NULL, lm->table, lm->output_weight, lm->output_bias});
    map_stack(from, map, &lm->stack, NM_CT2_DECODER);
    source->ignored = lm->output_bias ? ignored : ignored_without_bias;
    if (lm->position_table)
        nm_tensor_map_add(map, lm->position_table, "%s", positions)->factor =
            from->stacks[NM_CT2_DECODER].scale;
}

nm_status nm_ct2_read_parameters(nm_ct2_reader *from)
{
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_source source = nm_ct2_file_source(&from->file);
    NM_TRY(nm_import_declare(&from->in));
    map_model(from, &map, &source);
    return nm_import_load(&from->in, &map, &source);
}
