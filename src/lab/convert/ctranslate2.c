/* CTranslate2 folders (https://opennmt.net/CTranslate2): model.bin in version 6 of its binary format,
 * config.json, and the vocabularies as JSON. Translation models and language models with softmax attention.
 *
 * CTranslate2 has LayerNorm and RMSNorm with one epsilon for the whole model. The residual stream of a stack
 * can have any scale s, since only norms and linear layers read it: every linear layer that writes to it is
 * multiplied by s.
 *     LayerNorm, RMSNorm with epsilon inside the root    s = 1
 *     ScaleNorm, RMSNorm with epsilon outside the root   s = 2^20: epsilon is negligible
 *     norms that are affine at inference                 s = 2^-40: epsilon dominates, and RMSNorm with gain
 *     g computes
 *                                                        y = g x / sqrt(epsilon)
 * so that norms with running statistics are exact up to rounding. A shift is moved into the biases of the
 * linear layers that read the norm and, in post-norm, of the layer that is added to it. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/file.h"
#include "convert/ctranslate2.h"
#include "convert/json_file.h"
#include "convert/lm_positions.h"
#include "convert/norm_map.h"
#include "convert/tensor_list.h"
#include "model/lm.h"
#include "model/seq2seq.h"
#include "task/lm_task.h"
#include "task/translation.h"

typedef struct attribute { /* a scalar variable, STACK/NAME */
    const char *stack, *name;
    int type;
    double value;
} attribute;

typedef struct exporter {
    nm_backend *backend;
    nm_tensor_list tensors;
    attribute *attributes;
    size_t n_attributes, attribute_capacity;
    double eps;           /* of the whole model; 0: no norm has determined it yet */
    const char *eps_site; /* the norm that has determined it */
    nm_error *err;
} exporter;

/* The transformation that the layers which read the output of a stack must apply to it: y = gain out / scale
 * + shift. */
typedef struct stack_output {
    double scale;
    double *gain, *shift; /* [d] heap, or NULL */
} stack_output;

static void add_attribute(exporter *to, const char *stack, const char *name, int type, double value)
{
    NM_APPEND(to->attributes, to->n_attributes, to->attribute_capacity,
              (attribute){stack, name, type, value});
}

typedef struct linear { /* y = W x + b; weight [rows, cols], bias [rows], heap */
    double *weight, *bias;
    int32_t rows, cols;
} linear;

static linear read_linear(const exporter *from, const nm_tensor *weight, const nm_tensor *bias)
{
    linear l = {nm_param_values(from->backend, weight), nm_param_values(from->backend, bias), weight->rows,
                weight->cols};
    if (!l.bias)
        l.bias = nm_allocate((size_t)l.rows * sizeof *l.bias);
    return l;
}

/* Replaces the input x by factor gain x + shift; gain NULL: 1, shift NULL: 0. */
static void transform_input(linear *l, const double *gain, double factor, const double *shift)
{
    for (int32_t r = 0; r < l->rows; r++) {
        double *row = l->weight + (size_t)r * (size_t)l->cols;
        for (int32_t c = 0; c < l->cols; c++) {
            l->bias[r] += shift ? row[c] * shift[c] : 0;
            row[c] *= gain ? gain[c] * factor : factor;
        }
    }
}

/* Replaces the output y by factor (y + shift). */
static void transform_output(linear *l, const double *shift, double factor)
{
    for (int32_t r = 0; r < l->rows; r++) {
        l->bias[r] = factor * (l->bias[r] + (shift ? shift[r] : 0));
        for (int32_t c = 0; c < l->cols; c++)
            l->weight[(size_t)r * (size_t)l->cols + (size_t)c] *= factor;
    }
}

/* Adds NAME/weight and NAME/bias, and frees the layer. */
static void add_linear(exporter *to, linear *l, const char *name)
{
    nm_tensor_list_add(&to->tensors, l->weight, l->rows, l->cols, "%s/weight", name);
    nm_tensor_list_add(&to->tensors, l->bias, 0, l->rows, "%s/bias", name);
    NM_FREE(l->weight, l->bias);
}

static const double RMS_SCALE = 0x1p20, AFFINE_SCALE = 0x1p-40;
static const double DEFAULT_EPSILON = 1e-5;

/* A norm with an epsilon determines that of the model. */
static nm_status set_epsilon(exporter *to, const nm_norm_map *map, const char *site)
{
    if (!(map->eps > 0))
        return map->kind == NM_NORM_AS_LAYER
                   ? nm_fail(to->err, NM_UNSUPPORTED, "%s: LayerNorm without epsilon has no counterpart",
                             site)
                   : NM_OK;
    if (to->eps > 0 && (float)to->eps != (float)map->eps)
        return nm_fail(to->err, NM_UNSUPPORTED,
                       "%s has epsilon %g and %s %g: CTranslate2 has one epsilon for all norms", site,
                       map->eps, to->eps_site, to->eps);
    to->eps = map->eps;
    to->eps_site = site;
    return NM_OK;
}

/* The scale of the residual stream that a norm needs; all norms of a stack must need the same. */
static double scale_of(const nm_norm_map *map)
{
    if (map->kind == NM_NORM_AS_AFFINE)
        return AFFINE_SCALE;
    return map->kind == NM_NORM_AS_RMS && !(map->eps > 0) ? RMS_SCALE : 1;
}

typedef nm_status norm_visitor(exporter *to, const nm_norm *norm, void *data);

/* Calls visit for the norm of every sublayer. */
static nm_status visit_norms(exporter *to, const nm_stack *stack, norm_visitor *visit, void *data)
{
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        NM_TRY(visit(to, layer->self.norm, data));
        if (layer->cross.norm)
            NM_TRY(visit(to, layer->cross.norm, data));
        NM_TRY(visit(to, layer->ffn.norm, data));
    }
    return NM_OK;
}

typedef struct stream { /* residual stream of a stack */
    double scale;
    const nm_norm *first; /* the norm that determined the scale; NULL: none yet */
    nm_norm_map_kind kind;
} stream;

static nm_status check_norm(exporter *to, const nm_norm *norm, void *data)
{
    stream *residual = data;
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
    nm_status status = nm_norm_map_make(&map, norm, to->backend, to->err);
    NM_THEN(status, set_epsilon(to, &map, norm->site.name));
    if (status == NM_OK && !residual->first)
        *residual = (stream){scale_of(&map), norm, map.kind};
    else if (status == NM_OK && (residual->kind != map.kind || residual->scale != scale_of(&map)))
        status = nm_fail(to->err, NM_UNSUPPORTED,
                         "%s is %s and %s is %s: CTranslate2 has one epsilon for all norms, which cannot be "
                         "exact for both in one stack",
                         residual->first->site.name, residual->first->type->name, norm->site.name,
                         norm->type->name);
    return status;
}

/* An affine final norm is folded into the layers that read it, so it does not restrict the stream. */
static nm_status find_stream(exporter *to, const nm_stack *stack, stream *residual)
{
    *residual = (stream){.scale = 1};
    NM_TRY(visit_norms(to, stack, check_norm, residual));
    if (!stack->final_norm)
        return NM_OK;
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
    nm_status status = nm_norm_map_make(&map, stack->final_norm, to->backend, to->err);
    return status == NM_OK && map.kind != NM_NORM_AS_AFFINE ? check_norm(to, stack->final_norm, residual)
                                                            : status;
}

/* Adds NAME/gamma and NAME/beta of a norm that reads a stream of this scale and whose output has the scale
 * `out`. *shift: [d], heap, the shift that the layers which read the norm must add; NULL: none. */
static nm_status add_norm(exporter *to, const nm_norm *norm, double scale, double out, double **shift,
                          const char *name)
{
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
    nm_status status = nm_norm_map_make(&map, norm, to->backend, to->err);
    int32_t d = norm->site.width;
    *shift = NULL;
    if (status == NM_OK) {
        double factor = map.kind == NM_NORM_AS_AFFINE ? sqrt((double)(float)to->eps) / scale * out : out;
        for (int32_t i = 0; i < d; i++)
            map.gain[i] *= factor;
        nm_tensor_list_add(&to->tensors, map.gain, 0, d, "%s/gamma", name);
        if (map.kind == NM_NORM_AS_LAYER)
            nm_tensor_list_add(&to->tensors, map.shift, 0, d, "%s/beta", name);
        if (map.kind == NM_NORM_AS_AFFINE) {
            *shift = map.shift;
            map.shift = NULL;
        }
    }
    return status;
}

/* A sublayer as two linear layers that read and write the stream, and a norm. */
typedef struct sublayer {
    const nm_norm *norm;
    const nm_tensor *in_weight, *in_bias, *out_weight, *out_bias;
    char scope[64], in[16], out[16]; /* "encoder/layer_0/ffn", "linear_0", "linear_1" */
} sublayer;

/* *carried: the shift that is missing in the stream and added by biases (post-norm), heap or NULL; replaced
 * by that after the sublayer. */
static nm_status add_sublayer(exporter *to, const sublayer *s, bool pre_norm, double scale, double **carried)
{
    char name[96];
    double *shift;
    snprintf(name, sizeof name, "%s/layer_norm", s->scope);
    NM_TRY(add_norm(to, s->norm, scale, pre_norm ? 1 : scale, &shift, name));
    linear in = read_linear(to, s->in_weight, s->in_bias);
    linear out = read_linear(to, s->out_weight, s->out_bias);
    transform_input(&in, NULL, pre_norm ? 1 : 1 / scale, pre_norm ? shift : *carried);
    transform_output(&out, pre_norm ? NULL : *carried, scale);
    snprintf(name, sizeof name, "%s/%s", s->scope, s->in);
    add_linear(to, &in, name);
    snprintf(name, sizeof name, "%s/%s", s->scope, s->out);
    add_linear(to, &out, name);
    free(pre_norm ? shift : *carried);
    *carried = pre_norm ? NULL : shift;
    return NM_OK;
}

static nm_status add_cross(exporter *to, const nm_sublayer_attention *cross, int32_t layer, bool pre_norm,
                           double scale, double **carried, const stack_output *memory)
{
    sublayer s = {.norm = cross->norm,
                  .in_weight = cross->in_weight,
                  .in_bias = cross->in_bias,
                  .out_weight = cross->out_weight,
                  .out_bias = cross->out_bias,
                  .in = "linear_0",
                  .out = "linear_2"};
    char name[96];
    snprintf(s.scope, sizeof s.scope, "decoder/layer_%d/attention", layer);
    NM_TRY(add_sublayer(to, &s, pre_norm, scale, carried));
    linear kv = read_linear(to, cross->kv_weight, cross->kv_bias);
    transform_input(&kv, memory->gain, 1 / memory->scale, memory->shift);
    snprintf(name, sizeof name, "%s/linear_1", s.scope);
    add_linear(to, &kv, name);
    return NM_OK;
}

static nm_status add_layers(exporter *to, const nm_stack *stack, const char *scope, double scale,
                            double **carried, const stack_output *memory)
{
    bool pre_norm = stack->config.position == NM_PRE_NORM;
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        sublayer self = {.norm = layer->self.norm,
                         .in_weight = layer->self.in_weight,
                         .in_bias = layer->self.in_bias,
                         .out_weight = layer->self.out_weight,
                         .out_bias = layer->self.out_bias,
                         .in = "linear_0",
                         .out = "linear_1"};
        sublayer ffn = {.norm = layer->ffn.norm,
                        .in_weight = layer->ffn.in_weight,
                        .in_bias = layer->ffn.in_bias,
                        .out_weight = layer->ffn.out_weight,
                        .out_bias = layer->ffn.out_bias,
                        .in = "linear_0",
                        .out = "linear_1"};
        snprintf(self.scope, sizeof self.scope, "%s/layer_%d/self_attention", scope, i);
        snprintf(ffn.scope, sizeof ffn.scope, "%s/layer_%d/ffn", scope, i);
        NM_TRY(add_sublayer(to, &self, pre_norm, scale, carried));
        if (layer->cross.norm)
            NM_TRY(add_cross(to, &layer->cross, i, pre_norm, scale, carried, memory));
        NM_TRY(add_sublayer(to, &ffn, pre_norm, scale, carried));
    }
    return NM_OK;
}

static nm_status add_final_norm(exporter *to, const nm_stack *stack, const char *scope, double scale,
                                stack_output *output)
{
    nm_norm_map map;
    char name[64];
    *output = (stack_output){.scale = scale};
    if (!stack->final_norm)
        return NM_OK;
    nm_status status = nm_norm_map_make(&map, stack->final_norm, to->backend, to->err);
    if (status == NM_OK && map.kind == NM_NORM_AS_AFFINE) {
        output->gain = map.gain;
        output->shift = map.shift;
        return NM_OK;
    }
    nm_norm_map_release(&map);
    output->scale = 1;
    snprintf(name, sizeof name, "%s/layer_norm", scope);
    return status == NM_OK ? add_norm(to, stack->final_norm, scale, 1, &output->shift, name) : status;
}

static nm_status add_stack(exporter *to, const nm_stack *stack, const char *scope, double scale,
                           const stack_output *memory, stack_output *output)
{
    static const int codes[] = {NM_ACTIVATIONS(NM_ACTIVATION_CT2)};
    static const char *const words[] = {NM_ACTIVATIONS(NM_CHOICE_NAME)};
    double *carried = NULL;
    int code = codes[stack->config.activation];
    if (code < 0)
        return nm_fail(to->err, NM_UNSUPPORTED, "CTranslate2 has no activation %s (model.activation)",
                       words[stack->config.activation]);
    add_attribute(to, scope, "num_heads", NM_CT2_INT16, stack->config.heads);
    add_attribute(to, scope, "pre_norm", NM_CT2_INT8, stack->config.position == NM_PRE_NORM);
    add_attribute(to, scope, "activation", NM_CT2_INT8, code);
    nm_status status = add_layers(to, stack, scope, scale, &carried, memory);
    NM_THEN(status, add_final_norm(to, stack, scope, scale, output));
    if (status == NM_OK && stack->config.position != NM_PRE_NORM)
        output->shift = carried;
    else
        free(carried);
    return status;
}

static void add_positions(exporter *to, const char *scope, const double *table, int64_t rows, int64_t d,
                          double scale)
{
    size_t n = (size_t)rows * (size_t)d;
    NM_AUTO_FREE double *scaled = nm_allocate((n + 1) * sizeof *scaled);
    for (size_t i = 0; i < n; i++)
        scaled[i] = table[i] * scale;
    nm_tensor_list_add(&to->tensors, scaled, rows, d, "%s/position_encodings/encodings", scope);
}

/* FixNorm: normalizes the rows to L2 norm 1, as nm_l2_normalize does. */
static void normalize_rows(double *values, int32_t rows, int32_t cols)
{
    for (int32_t r = 0; r < rows; r++) {
        double *row = values + (size_t)r * (size_t)cols, sum = 0;
        for (int32_t c = 0; c < cols; c++)
            sum += row[c] * row[c];
        double length = fmax(sqrt(sum), 1e-12);
        for (int32_t c = 0; c < cols; c++)
            row[c] /= length;
    }
}

typedef struct output_projection {
    const nm_tensor *weight, *bias;
    bool fixnorm;
    const uint8_t *allowed; /* [V], host: whether a token may be generated; NULL: all */
    const char *table;      /* name of the tensor with the same matrix, or NULL */
} output_projection;

static void add_projection(exporter *to, const output_projection *from, const stack_output *hidden)
{
    bool plain = hidden->scale == 1 && !hidden->gain && from->table;
    linear l = read_linear(to, from->weight, from->bias);
    if (from->fixnorm)
        normalize_rows(l.weight, l.rows, l.cols);
    transform_input(&l, hidden->gain, 1 / hidden->scale, hidden->shift);
    for (int32_t r = 0; from->allowed && r < l.rows; r++)
        if (!from->allowed[r])
            l.bias[r] = NM_EXCLUDED_LOGIT;
    if (plain)
        nm_tensor_list_alias(&to->tensors, "decoder/projection/weight", from->table);
    else
        nm_tensor_list_add(&to->tensors, l.weight, l.rows, l.cols, "decoder/projection/weight");
    nm_tensor_list_add(&to->tensors, l.bias, 0, l.rows, "decoder/projection/bias");
    NM_FREE(l.weight, l.bias);
}

static const char *add_table(exporter *to, const nm_tensor *table, bool fixnorm, const char *name)
{
    NM_AUTO_FREE double *values = nm_param_values(to->backend, table);
    if (fixnorm)
        normalize_rows(values, table->rows, table->cols);
    return nm_tensor_list_add(&to->tensors, values, table->rows, table->cols, "%s", name);
}

static void release_output(stack_output *output)
{
    NM_FREE(output->gain, output->shift);
}

static nm_status add_seq2seq(exporter *to, nm_model *model, const uint8_t *allowed)
{
    const nm_seq2seq *s = nm_seq2seq_of(model);
    const nm_seq2seq_config *c = nm_seq2seq_config_of(model);
    stream encoder, decoder;
    stack_output memory = {0}, hidden = {0};
    NM_TRY(nm_stack_require_plain(&c->stack, "CTranslate2's Transformer", to->err));
    if (c->positions == NM_SEQ2SEQ_NO_POSITIONS)
        return nm_fail(to->err, NM_UNSUPPORTED, "model.positions = none has no counterpart in CTranslate2");
    NM_TRY(find_stream(to, &s->encoder, &encoder));
    NM_TRY(find_stream(to, &s->decoder, &decoder));
    if (!(to->eps > 0))
        to->eps = DEFAULT_EPSILON;
    const char *source = add_table(to, s->source_table, c->fixnorm, "encoder/embeddings_0/weight"),
               *target = source;
    if (s->target_table == s->source_table)
        nm_tensor_list_alias(&to->tensors, "decoder/embeddings/weight", source);
    else
        target = add_table(to, s->target_table, c->fixnorm, "decoder/embeddings/weight");
    NM_AUTO_FREE double *positions = nm_mat_values(to->backend, s->positions);
    add_positions(to, "encoder", positions, s->positions.rows, s->positions.cols, encoder.scale);
    add_positions(to, "decoder", positions, s->positions.rows, s->positions.cols, decoder.scale);
    add_attribute(to, "encoder", "embeddings_merge", NM_CT2_INT8, 0);
    const double root = sqrt((double)c->width);
    add_attribute(to, "encoder", "scale_embeddings", NM_CT2_FLOAT32, root * encoder.scale);
    add_attribute(to, "decoder", "scale_embeddings", NM_CT2_FLOAT32, root * decoder.scale);
    nm_status status = add_stack(to, &s->encoder, "encoder", encoder.scale, NULL, &memory);
    NM_THEN(status, add_stack(to, &s->decoder, "decoder", decoder.scale, &memory, &hidden));
    if (status == NM_OK)
        add_projection(to,
                       &(output_projection){s->output_weight, s->output_bias, c->fixnorm, allowed,
                                            s->output_weight == s->target_table ? target : NULL},
                       &hidden);
    release_output(&memory);
    release_output(&hidden);
    return status;
}

static nm_status add_lm(exporter *to, nm_model *model, const uint8_t *allowed)
{
    const nm_lm *lm = nm_lm_of(model);
    const nm_lm_config *c = nm_lm_config_of(model);
    if (c->attention != NM_LM_SOFTMAX)
        return nm_fail(to->err, NM_UNSUPPORTED,
                       "model.attention = block-term has no counterpart in CTranslate2");
    if (c->adaptive)
        return nm_fail(to->err, NM_UNSUPPORTED, "model.adaptive = true has no counterpart in CTranslate2");
    if (c->window)
        return nm_fail(to->err, NM_UNSUPPORTED, "CTranslate2's Transformer has no model.window");
    stream residual;
    stack_output hidden = {0};
    NM_TRY(nm_stack_require_plain(&c->stack, "CTranslate2's Transformer", to->err));
    NM_TRY(find_stream(to, &lm->stack, &residual));
    if (!(to->eps > 0))
        to->eps = DEFAULT_EPSILON;
    const char *table = add_table(to, lm->table, false, "decoder/embeddings/weight");
    NM_AUTO_FREE double *positions = nm_lm_position_values(model);
    add_positions(to, "decoder", positions, c->context, c->width, residual.scale);
    add_attribute(to, "decoder", "scale_embeddings", NM_CT2_FLOAT32,
                  nm_lm_embedding_factor(c) * residual.scale);
    nm_status status = add_stack(to, &lm->stack, "decoder", residual.scale, NULL, &hidden);
    if (status == NM_OK)
        add_projection(to,
                       &(output_projection){lm->output_weight, lm->output_bias, false, allowed,
                                            lm->output_weight == lm->table ? table : NULL},
                       &hidden);
    release_output(&hidden);
    return status;
}

static void put_number(FILE *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(number >> 8 * i & 0xFF), out);
}

/* Writes the length including the NUL (2 bytes) and the bytes including the NUL. */
static void put_text(FILE *out, const char *text)
{
    size_t bytes = strlen(text) + 1;
    put_number(out, bytes, 2);
    fwrite(text, 1, bytes, out);
}

static void put_floats(FILE *out, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        put_number(out, bits, 4);
    }
}

static void put_attribute(FILE *out, const attribute *a)
{
    static const int bytes[] = {4, 1, 2};
    char name[64];
    snprintf(name, sizeof name, "%s/%s", a->stack, a->name);
    put_text(out, name);
    put_number(out, 0, 1); /* rank */
    put_number(out, (uint64_t)a->type, 1);
    put_number(out, (uint64_t)bytes[a->type], 4);
    float value = (float)a->value;
    if (a->type == NM_CT2_FLOAT32)
        put_floats(out, &value, 1);
    else
        put_number(out, (uint64_t)(int64_t)a->value, bytes[a->type]);
}

static void put_tensor(FILE *out, const nm_named_tensor *tensor)
{
    size_t n = 1;
    put_text(out, tensor->name);
    put_number(out, (uint64_t)tensor->rank, 1);
    for (int i = 0; i < tensor->rank; i++) {
        put_number(out, (uint64_t)tensor->shape[i], 4);
        n *= (size_t)tensor->shape[i];
    }
    put_number(out, NM_CT2_FLOAT32, 1);
    put_number(out, n * sizeof(float), 4);
    put_floats(out, tensor->data, n);
}

static void put_model(FILE *out, const exporter *from, const char *spec, int revision)
{
    size_t n = from->n_attributes, aliases = 0;
    for (size_t i = 0; i < from->tensors.n; i++)
        *(from->tensors.items[i].data ? &n : &aliases) += 1;
    put_number(out, NM_CT2_BINARY_VERSION, 4);
    put_text(out, spec);
    put_number(out, (uint64_t)revision, 4);
    put_number(out, n, 4);
    for (size_t i = 0; i < from->n_attributes; i++)
        put_attribute(out, &from->attributes[i]);
    for (size_t i = 0; i < from->tensors.n; i++)
        if (from->tensors.items[i].data)
            put_tensor(out, &from->tensors.items[i]);
    put_number(out, aliases, 4);
    for (size_t i = 0; i < from->tensors.n; i++)
        if (!from->tensors.items[i].data) {
            put_text(out, from->tensors.items[i].name);
            put_text(out, from->tensors.items[i].alias);
        }
}

static nm_status write_model(const exporter *from, const char *folder, bool lm)
{
    nm_file_writer writer;
    for (size_t i = 0; i < from->tensors.n; i++)
        if (from->tensors.items[i].data &&
            (double)from->tensors.items[i].shape[0] *
                    (double)(from->tensors.items[i].rank > 1 ? from->tensors.items[i].shape[1] : 1) >
                (double)(UINT32_MAX / sizeof(float)))
            return nm_fail(from->err, NM_UNSUPPORTED, "%s has more than the 4 GiB that a variable may have",
                           from->tensors.items[i].name);
    NM_AUTO_FREE char *path = nm_path_join(folder, "model.bin");
    nm_status status = nm_file_writer_open(&writer, path, from->err);
    if (status == NM_OK) {
        put_model(writer.stream, from, lm ? NM_CT2_LM_SPEC : NM_CT2_SEQ2SEQ_SPEC,
                  lm ? NM_CT2_LM_REVISION : NM_CT2_SEQ2SEQ_REVISION);
        status = nm_file_writer_commit(&writer, from->err);
    }
    return status;
}

static json_t *symbol_at(const void *vocab, size_t i)
{
    return json_string(nm_vocab_symbol(vocab, (int32_t)i));
}

static nm_status write_vocab(const nm_vocab *vocab, const char *folder, const char *name, nm_error *err)
{
    return nm_json_write(nm_json_list((size_t)nm_vocab_size(vocab), symbol_at, vocab), folder, name, err);
}

static json_t *config_of(const nm_vocab *vocab, int32_t bos, double eps)
{
    return json_pack("{s:s, s:s, s:s, s:f, s:b}", "unk_token", nm_vocab_symbol(vocab, vocab->unk),
                     "bos_token", nm_vocab_symbol(vocab, bos), "eos_token",
                     nm_vocab_symbol(vocab, vocab->eos), "layer_norm_epsilon", eps, "multi_query_attention",
                     0);
}

static nm_status write_translation(const exporter *from, const nm_translation_parts *parts,
                                   const char *folder)
{
    const nm_vocab *source = parts->source_vocab, *target = parts->target_vocab;
    NM_TRY(write_model(from, folder, false));
    if (!strcmp(parts->texts[NM_TEXT_SOURCE], parts->texts[NM_TEXT_TARGET])) {
        NM_TRY(write_vocab(source, folder, "shared_vocabulary.json", from->err));
    } else {
        NM_TRY(write_vocab(source, folder, "source_vocabulary.json", from->err));
        NM_TRY(write_vocab(target, folder, "target_vocabulary.json", from->err));
    }
    json_t *config = config_of(target, target->bos, from->eps);
    nm_json_add(config, "{s:s, s:b, s:b}", "decoder_start_token",
                nm_vocab_symbol(target, nm_translation_first_id(target)), "add_source_bos", 0,
                "add_source_eos", 1);
    return nm_json_write(config, folder, "config.json", from->err);
}

/* The first input of a text is that of training. */
static nm_status write_lm(const exporter *from, const nm_loaded_model *loaded, const char *folder)
{
    const nm_vocab *vocab = ((const nm_lm_parts *)loaded->task.parts)->vocab;
    NM_TRY(write_model(from, folder, true));
    NM_TRY(write_vocab(vocab, folder, "vocabulary.json", from->err));
    int32_t first = nm_lm_first_input(nm_lm_config_of(loaded->model), vocab);
    json_t *config = config_of(vocab, first, from->eps);
    return nm_json_write(config, folder, "config.json", from->err);
}

static nm_status write_ctranslate2(const nm_loaded_model *loaded, const char *folder, nm_error *err)
{
    nm_model *model = loaded->model;
    exporter to = {.backend = model->backend, .err = err};
    nm_status status;
    if (model->type == &nm_model_seq2seq) {
        const nm_translation_parts *parts = loaded->task.parts;
        status = add_seq2seq(&to, model, parts->allowed);
        NM_THEN(status, write_translation(&to, parts, folder));
    } else if (model->type == &nm_model_lm) {
        add_attribute(&to, "decoder", "start_from_zero_embedding", NM_CT2_INT8, 0);
        status = add_lm(&to, model, ((const nm_lm_parts *)loaded->task.parts)->allowed);
        NM_THEN(status, write_lm(&to, loaded, folder));
    } else {
        status = nm_fail(err, NM_UNSUPPORTED, "a model of the task %s has no counterpart in CTranslate2",
                         loaded->task.type->name);
    }
    nm_tensor_list_release(&to.tensors);
    free(to.attributes);
    return status;
}

const nm_foreign_format nm_format_ctranslate2 = {
    .name = "ctranslate2",
    .title = "CTranslate2 folder",
    .write = write_ctranslate2,
    .read = nm_ctranslate2_read,
};
