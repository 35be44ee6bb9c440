/* Pre-norm models with norms that the classes of transformers lack, as models with LayerNorm in a wider
 * residual stream. The function is the same in exact arithmetic. With M [D, d], whose columns have sum 0,
 *
 *     x'     = s M x
 *     M      = orthonormal columns, a Helmert matrix     RMSNorm, ScaleNorm:  |x'| = s |x|
 *     M      = I - 1/d, then rows of zeros               LayerNorm:           |x'| = s |x - mean|
 *
 * the mean of x' is 0, and its LayerNorm without gain and bias, with epsilon e' = s^2 (d/D) e, is
 *
 *     y'     = x' / sqrt(|x'|^2 / D + e') = sqrt(D/d) M z            z: output of the norm without gain g and
 *            shift t
 *
 * Linear layers that read it contain gain and shift, and those that write to the stream contain M:
 *
 *     W (g z + t) + b = W' y' + b'       W' = sqrt(d/D) W diag(g) M^T, b' = W t + b
 *     x + W h + b     -> x' + s M (W h + b)
 *
 * One feature of D is free. The final norm has the gain 0 and the bias 1 there, so that a column of the
 * output projection is its bias. Heads are widened to D / heads features by zeros, and queries multiplied by
 * the ratio of the roots of the widths. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/huggingface.h"
#include "convert/lm_positions.h"
#include "convert/norm_map.h"
#include "model/seq2seq.h"

/* Scale of a stream whose norms have no epsilon, and epsilon of a class that stores it. */
static const double LARGE = 0x1p10, LEAST_EPSILON = 1e-12;

typedef struct wide_stack {
    const nm_stack *stack;
    bool center;  /* LayerNorm */
    double scale; /* s */
} wide_stack;

typedef struct wide_writer {
    nm_backend *backend;
    nm_tensor_list *list;
    const nm_map_ids *ids; /* order of the target vocabulary; NULL: that of Norma */
    int32_t d, D, heads, head, Head;
    double eps;      /* e; negative: no norm has been read yet */
    bool transposed; /* linear layers are stored as [inputs, outputs] */
    nm_error *err;
} wide_writer;

/* A linear layer, [rows, cols] and [rows], heap. */
typedef struct wide_linear {
    double *weight, *bias;
    int32_t rows, cols;
} wide_linear;

int32_t nm_huggingface_wide_width(const nm_stack_config *config)
{
    int32_t heads = config->heads, head = nm_stack_head_widths(config, false).value;
    int32_t least = (config->width + 2 + heads - 1) / heads;
    return heads * (head > least ? head : least);
}

/* M x: [d] to [D]. */
static void widen(const wide_writer *to, bool center, const double *x, double *y)
{
    int32_t d = to->d;
    memset(y, 0, (size_t)to->D * sizeof *y);
    double sum = 0;
    if (center) {
        for (int32_t i = 0; i < d; i++)
            sum += x[i];
        for (int32_t i = 0; i < d; i++)
            y[i] = x[i] - sum / d;
        return;
    }
    for (int32_t i = d; i >= 0; i--) { /* sum over j >= i of x_j / sqrt((j + 1) (j + 2)) */
        if (i < d)
            sum += x[i] / sqrt((i + 1.0) * (i + 2.0));
        y[i] = sum - (i ? i * x[i - 1] / sqrt(i * (i + 1.0)) : 0);
    }
}

static nm_status read_norm(wide_writer *to, const nm_norm *norm, bool *center, nm_norm_map *map)
{
    nm_status status = nm_norm_map_make(map, norm, to->backend, to->err);
    if (status == NM_OK && map->kind == NM_NORM_AS_AFFINE)
        status = nm_fail(to->err, NM_UNSUPPORTED,
                         "%s is %s: the classes of transformers have LayerNorm and RMSNorm only",
                         norm->site.name, norm->type->name);
    if (status == NM_OK && to->eps >= 0 && to->eps != map->eps)
        status = nm_fail(to->err, NM_UNSUPPORTED, "%s has epsilon %g, other norms have %g: the class has one",
                         norm->site.name, map->eps, to->eps);
    to->eps = map->eps;
    *center = map->kind == NM_NORM_AS_LAYER;
    return status;
}

/* Determines the matrix M of a stack, whose norms must all be of one kind. */
static nm_status open_stack(wide_writer *to, wide_stack *wide)
{
    const nm_stack *stack = wide->stack;
    bool first = true;
    for (int32_t i = 0; i <= stack->config.layers; i++) {
        const nm_layer *layer = i < stack->config.layers ? &stack->layers[i] : NULL;
        const nm_norm *norms[] = {layer ? layer->self.norm : stack->final_norm,
                                  layer ? layer->cross.norm : NULL, layer ? layer->ffn.norm : NULL};
        for (size_t k = 0; k < 3; k++) {
            NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
            bool center;
            if (!norms[k])
                continue;
            NM_TRY(read_norm(to, norms[k], &center, &map));
            if (!first && center != wide->center)
                return nm_fail(to->err, NM_UNSUPPORTED,
                               "%s: LayerNorm and RMSNorm in one stack have no class in transformers",
                               norms[k]->site.name);
            wide->center = center;
            first = false;
        }
    }
    return NM_OK;
}

static wide_linear linear_of(const wide_writer *to, const nm_tensor *weight, const nm_tensor *bias,
                             int32_t first, int32_t rows)
{
    int32_t cols = weight->cols;
    wide_linear l = {nm_allocate((size_t)rows * (size_t)cols * sizeof(double)),
                     nm_allocate((size_t)rows * sizeof(double)), rows, cols};
    NM_AUTO_FREE double *weights = nm_param_values(to->backend, weight),
                        *biases = nm_param_values(to->backend, bias);
    memcpy(l.weight, weights + (size_t)first * (size_t)cols, (size_t)rows * (size_t)cols * sizeof *l.weight);
    if (biases)
        memcpy(l.bias, biases + first, (size_t)rows * sizeof *l.bias);
    return l;
}

static void release_linear(wide_linear *l)
{
    NM_FREE(l->weight, l->bias);
}

/* W' and b' of a layer that reads the output of a norm. */
static void read_stream(const wide_writer *to, wide_linear *l, bool center, const nm_norm_map *map)
{
    double factor = sqrt((double)to->d / to->D);
    double *wide = nm_allocate((size_t)l->rows * (size_t)to->D * sizeof *wide);
    for (int32_t r = 0; r < l->rows; r++) {
        double *row = l->weight + (size_t)r * (size_t)l->cols;
        for (int32_t c = 0; c < l->cols; c++) {
            l->bias[r] += row[c] * map->shift[c];
            row[c] *= factor * map->gain[c];
        }
        widen(to, center, row, wide + (size_t)r * (size_t)to->D);
    }
    free(l->weight);
    l->weight = wide;
    l->cols = to->D;
}

/* s M W and s M b. */
static void write_stream(const wide_writer *to, wide_linear *l, const wide_stack *stack)
{
    int32_t cols = l->cols;
    double *wide = nm_allocate((size_t)to->D * (size_t)cols * sizeof *wide),
           *column = nm_allocate((size_t)to->d * sizeof *column),
           *out = nm_allocate((size_t)to->D * sizeof *out);
    for (int32_t c = 0; c <= cols; c++) { /* the last one is the bias */
        for (int32_t r = 0; r < to->d; r++)
            column[r] =
                stack->scale * (c < cols ? l->weight[(size_t)r * (size_t)cols + (size_t)c] : l->bias[r]);
        widen(to, stack->center, column, out);
        for (int32_t r = 0; r < to->D && c < cols; r++)
            wide[(size_t)r * (size_t)cols + (size_t)c] = out[r];
    }
    NM_FREE(l->weight, l->bias, column);
    *l = (wide_linear){wide, out, to->D, cols};
}

/* Rows (outputs) or columns (inputs) of heads, with zeros. */
static void widen_heads(const wide_writer *to, wide_linear *l, bool rows, double factor)
{
    int32_t new_rows = rows ? to->heads * to->Head : l->rows,
            new_cols = rows ? l->cols : to->heads * to->Head;
    double *weight = nm_allocate((size_t)new_rows * (size_t)new_cols * sizeof *weight),
           *bias = nm_allocate((size_t)new_rows * sizeof *bias);
    for (int32_t r = 0; r < l->rows; r++) {
        int32_t at = rows ? r / to->head * to->Head + r % to->head : r;
        bias[at] = factor * l->bias[r];
        for (int32_t c = 0; c < l->cols; c++) {
            int32_t where = rows ? c : c / to->head * to->Head + c % to->head;
            weight[(size_t)at * (size_t)new_cols + (size_t)where] =
                factor * l->weight[(size_t)r * (size_t)l->cols + (size_t)c];
        }
    }
    release_linear(l);
    *l = (wide_linear){weight, bias, new_rows, new_cols};
}

/* Adds a layer, or several whose rows are concatenated, and releases them. */
static void add_linear(const wide_writer *to, wide_linear *parts, int32_t n, const char *name)
{
    int32_t rows = 0, cols = parts[0].cols, at = 0;
    for (int32_t i = 0; i < n; i++)
        rows += parts[i].rows;
    NM_AUTO_FREE double *weight = nm_allocate((size_t)rows * (size_t)cols * sizeof *weight),
                        *bias = nm_allocate((size_t)rows * sizeof *bias);
    for (int32_t i = 0; i < n; i++)
        for (int32_t r = 0; r < parts[i].rows; r++, at++) {
            bias[at] = parts[i].bias[r];
            for (int32_t c = 0; c < cols; c++)
                weight[to->transposed ? (size_t)c * (size_t)rows + (size_t)at
                                      : (size_t)at * (size_t)cols + (size_t)c] =
                    parts[i].weight[(size_t)r * (size_t)cols + (size_t)c];
        }
    nm_tensor_list_add(to->list, weight, to->transposed ? cols : rows, to->transposed ? rows : cols,
                       "%s.weight", name);
    nm_tensor_list_add(to->list, bias, 0, rows, "%s.bias", name);
    for (int32_t i = 0; i < n; i++)
        release_linear(&parts[i]);
}

/* LayerNorm without gain and bias; final: the free feature is 1. */
static void add_norm(const wide_writer *to, bool final, const char *name)
{
    NM_AUTO_FREE double *gain = nm_allocate((size_t)to->D * sizeof *gain),
                        *bias = nm_allocate((size_t)to->D * sizeof *bias);
    for (int32_t i = 0; i < to->D; i++)
        gain[i] = 1;
    if (final) {
        gain[to->D - 1] = 0;
        bias[to->D - 1] = 1;
    }
    nm_tensor_list_add(to->list, gain, 0, to->D, "%s.weight", name);
    nm_tensor_list_add(to->list, bias, 0, to->D, "%s.bias", name);
}

typedef struct attention_parts {
    wide_linear query, key, value, out;
} attention_parts;

/* memory: the final norm of the encoder, and whether it is a LayerNorm, for cross-attention. */
static nm_status attention_of(wide_writer *to, const wide_stack *stack, const nm_sublayer_attention *a,
                              const wide_stack *memory, attention_parts *parts)
{
    nm_norm_map map, other;
    bool center, other_center;
    int32_t rows = to->heads * to->head;
    bool cross = a->kv_weight != NULL;
    nm_status status = read_norm(to, a->norm, &center, &map);
    nm_status status_memory = cross ? read_norm(to, memory->stack->final_norm, &other_center, &other) : NM_OK;
    if (status == NM_OK && status_memory == NM_OK) {
        const nm_tensor *kv = cross ? a->kv_weight : a->in_weight, *kv_bias = cross ? a->kv_bias : a->in_bias;
        *parts = (attention_parts){linear_of(to, a->in_weight, a->in_bias, 0, rows),
                                   linear_of(to, kv, kv_bias, cross ? 0 : rows, rows),
                                   linear_of(to, kv, kv_bias, cross ? rows : 2 * rows, rows),
                                   linear_of(to, a->out_weight, a->out_bias, 0, to->d)};
        read_stream(to, &parts->query, center, &map);
        read_stream(to, &parts->key, cross ? other_center : center, cross ? &other : &map);
        read_stream(to, &parts->value, cross ? other_center : center, cross ? &other : &map);
        widen_heads(to, &parts->query, true, sqrt((double)to->Head / to->head));
        widen_heads(to, &parts->key, true, 1);
        widen_heads(to, &parts->value, true, 1);
        widen_heads(to, &parts->out, false, 1);
        write_stream(to, &parts->out, stack);
    }
    nm_norm_map_release(&map);
    if (cross)
        nm_norm_map_release(&other);
    return status == NM_OK ? status_memory : status;
}

static nm_status add_ffn(wide_writer *to, const wide_stack *stack, const nm_sublayer_ffn *ffn, const char *in,
                         const char *out)
{
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
    bool center;
    nm_status status = read_norm(to, ffn->norm, &center, &map);
    if (status == NM_OK) {
        wide_linear first = linear_of(to, ffn->in_weight, ffn->in_bias, 0, ffn->in_weight->rows),
                    second = linear_of(to, ffn->out_weight, ffn->out_bias, 0, to->d);
        read_stream(to, &first, center, &map);
        write_stream(to, &second, stack);
        add_linear(to, &first, 1, in);
        add_linear(to, &second, 1, out);
    }
    return status;
}

static void normalize(double *values, int32_t rows, int32_t cols)
{
    for (int32_t r = 0; r < rows; r++) {
        double *row = values + (size_t)r * (size_t)cols, sum = 0;
        for (int32_t c = 0; c < cols; c++)
            sum += row[c] * row[c];
        for (int32_t c = 0; c < cols; c++)
            row[c] /= fmax(sqrt(sum), 1e-12);
    }
}

/* Adds rows [n, D] in the order of the vocabulary of the folder; vocabulary: false: as they are. */
static void add_rows(const wide_writer *to, const double *rows, int32_t n, bool vocabulary, const char *name)
{
    if (!vocabulary || !to->ids) {
        nm_tensor_list_add(to->list, rows, n, to->D, "%s", name);
        return;
    }
    int32_t size = to->ids->size[NM_OF_TARGET_VOCAB];
    NM_AUTO_FREE double *ordered = nm_allocate((size_t)size * (size_t)to->D * sizeof *ordered);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = to->ids->ids[NM_OF_TARGET_VOCAB][i];
        if (id >= 0)
            memcpy(ordered + (size_t)id * (size_t)to->D, rows + (size_t)i * (size_t)to->D,
                   (size_t)to->D * sizeof *ordered);
    }
    nm_tensor_list_add(to->list, ordered, size, to->D, "%s", name);
}

/* Rows that are added to the stream: factor times s M row. values: [n, d]. */
static void add_inputs(const wide_writer *to, const wide_stack *stack, const double *values, int32_t n,
                       double factor, bool vocabulary, const char *name)
{
    NM_AUTO_FREE double *wide = nm_allocate(((size_t)n * (size_t)to->D + 1) * sizeof *wide),
                        *row = nm_allocate((size_t)to->d * sizeof *row);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t c = 0; c < to->d; c++)
            row[c] = factor * stack->scale * values[(size_t)i * (size_t)to->d + (size_t)c];
        widen(to, stack->center, row, wide + (size_t)i * (size_t)to->D);
    }
    add_rows(to, wide, n, vocabulary, name);
}

static nm_status add_output(wide_writer *to, const wide_stack *stack, const nm_tensor *weight,
                            const nm_tensor *bias, bool fixnorm)
{
    NM_AUTO(nm_norm_map_release) nm_norm_map map = {0};
    bool center;
    nm_status status = read_norm(to, stack->stack->final_norm, &center, &map);
    if (status == NM_OK) {
        wide_linear l = linear_of(to, weight, bias, 0, weight->rows);
        if (fixnorm)
            normalize(l.weight, l.rows, l.cols);
        read_stream(to, &l, center, &map);
        for (int32_t r = 0; r < l.rows; r++)
            l.weight[(size_t)r * (size_t)to->D + (size_t)to->D - 1] = l.bias[r];
        add_rows(to, l.weight, l.rows, true, "lm_head.weight");
        release_linear(&l);
    }
    return status;
}

static wide_writer writer_of(const nm_model *model, const nm_stack_config *config, nm_tensor_list *list,
                             nm_error *err)
{
    int32_t wide = nm_huggingface_wide_width(config);
    return (wide_writer){.backend = model->backend,
                         .list = list,
                         .d = config->width,
                         .D = wide,
                         .heads = config->heads,
                         .head = nm_stack_head_widths(config, false).value,
                         .Head = wide / config->heads,
                         .eps = -1,
                         .err = err};
}

nm_status nm_huggingface_wide_gpt2(const nm_model *model, const nm_map_ids *ids, nm_tensor_list *list,
                                   double *eps, nm_error *err)
{
    const nm_lm *lm = nm_lm_of(model);
    const nm_lm_config *c = nm_lm_config_of(model);
    wide_writer to = writer_of(model, &lm->stack.config, list, err);
    wide_stack stack = {.stack = &lm->stack, .scale = 1};
    to.ids = ids;
    to.transposed = true;
    NM_TRY(open_stack(&to, &stack));
    *eps = fmax(to.eps * to.d / to.D, LEAST_EPSILON);
    double *table = nm_param_values(to.backend, lm->table), *positions = nm_lm_position_values(model);
    add_inputs(&to, &stack, table, lm->table->rows, nm_lm_embedding_factor(c), true,
               "transformer.wte.weight");
    add_inputs(&to, &stack, positions, (int32_t)c->context, 1, false, "transformer.wpe.weight");
    NM_FREE(table, positions);
    for (int32_t i = 0; i < lm->stack.config.layers; i++) {
        const nm_layer *layer = &lm->stack.layers[i];
        attention_parts parts;
        char name[64], out[64];
#define NAMED(at, part) (snprintf(at, sizeof at, "transformer.h.%d.%s", i, part), at)
        NM_TRY(attention_of(&to, &stack, &layer->self, NULL, &parts));
        wide_linear qkv[] = {parts.query, parts.key, parts.value};
        add_norm(&to, false, NAMED(name, "ln_1"));
        add_linear(&to, qkv, 3, NAMED(name, "attn.c_attn"));
        add_linear(&to, &parts.out, 1, NAMED(name, "attn.c_proj"));
        add_norm(&to, false, NAMED(name, "ln_2"));
        NM_TRY(add_ffn(&to, &stack, &layer->ffn, NAMED(name, "mlp.c_fc"), NAMED(out, "mlp.c_proj")));
#undef NAMED
    }
    add_norm(&to, true, "transformer.ln_f");
    return add_output(&to, &stack, lm->output_weight, lm->output_bias, false);
}

static nm_status add_layers(wide_writer *to, const wide_stack *stack, const wide_stack *memory,
                            const char *prefix)
{
    static const char *const projections[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    for (int32_t i = 0; i < stack->stack->config.layers; i++) {
        const nm_layer *layer = &stack->stack->layers[i];
        char name[96], out[96];
        for (int cross = 0; cross < (memory ? 2 : 1); cross++) {
            attention_parts parts;
            NM_TRY(attention_of(to, stack, cross ? &layer->cross : &layer->self, memory, &parts));
            wide_linear *all[] = {&parts.query, &parts.key, &parts.value, &parts.out};
            for (int k = 0; k < 4; k++) {
                snprintf(name, sizeof name, "%s.layers.%d.%s.%s", prefix, i,
                         cross ? "encoder_attn" : "self_attn", projections[k]);
                add_linear(to, all[k], 1, name);
            }
            snprintf(name, sizeof name, "%s.layers.%d.%s_layer_norm", prefix, i,
                     cross ? "encoder_attn" : "self_attn");
            add_norm(to, false, name);
        }
        snprintf(name, sizeof name, "%s.layers.%d.fc1", prefix, i);
        snprintf(out, sizeof out, "%s.layers.%d.fc2", prefix, i);
        NM_TRY(add_ffn(to, stack, &layer->ffn, name, out));
        snprintf(name, sizeof name, "%s.layers.%d.final_layer_norm", prefix, i);
        add_norm(to, false, name);
    }
    char name[96];
    snprintf(name, sizeof name, "%s.layer_norm", prefix);
    add_norm(to, memory != NULL, name);
    return NM_OK;
}

/* The embeddings and positions of a stack. */
static void add_tables(const wide_writer *to, const nm_model *model, const wide_stack *stack,
                       const nm_tensor *table, const char *prefix)
{
    const nm_seq2seq *s = nm_seq2seq_of(model);
    const nm_seq2seq_config *c = nm_seq2seq_config_of(model);
    char name[96];
    int32_t rows = (int32_t)c->max_positions;
    NM_AUTO_FREE double *values = nm_param_values(to->backend, table),
                        *positions = s->positions.data
                                         ? nm_mat_values(to->backend, s->positions)
                                         : nm_allocate((size_t)rows * (size_t)to->d * sizeof *positions);
    if (c->fixnorm)
        normalize(values, table->rows, table->cols);
    snprintf(name, sizeof name, "%s.embed_tokens.weight", prefix);
    add_inputs(to, stack, values, table->rows, sqrt((double)to->d), false, name);
    if (!stack->stack->config.decoder) /* not used, but the class has it */
        add_inputs(to, stack, values, table->rows, sqrt((double)to->d), false, "model.shared.weight");
    snprintf(name, sizeof name, "%s.embed_positions.weight", prefix);
    add_inputs(to, stack, positions, rows, 1, false, name);
}

nm_status nm_huggingface_wide_blenderbot(const nm_model *model, nm_tensor_list *list, nm_error *err)
{
    static const double class_epsilon = 1e-5; /* that of nn.LayerNorm, which config.json does not contain */
    const nm_seq2seq *s = nm_seq2seq_of(model);
    wide_writer to = writer_of(model, &s->encoder.config, list, err);
    wide_stack encoder = {.stack = &s->encoder}, decoder = {.stack = &s->decoder};
    NM_TRY(open_stack(&to, &encoder));
    NM_TRY(open_stack(&to, &decoder));
    encoder.scale = decoder.scale = to.eps > 0 ? sqrt(class_epsilon * to.D / (to.d * to.eps)) : LARGE;
    add_tables(&to, model, &encoder, s->source_table, "model.encoder");
    add_tables(&to, model, &decoder, s->target_table, "model.decoder");
    NM_TRY(add_layers(&to, &encoder, NULL, "model.encoder"));
    NM_TRY(add_layers(&to, &decoder, &encoder, "model.decoder"));
    return add_output(&to, &decoder, s->output_weight, s->output_bias, nm_seq2seq_config_of(model)->fixnorm);
}

nm_status nm_huggingface_wide_check(const nm_model *model, nm_error *err)
{
    bool lm = model->type == &nm_model_lm;
    const nm_stack *const stacks[] = {lm ? &nm_lm_of(model)->stack : &nm_seq2seq_of(model)->encoder,
                                      lm ? NULL : &nm_seq2seq_of(model)->decoder};
    wide_writer to = writer_of(model, &stacks[0]->config, NULL, err);
    for (int i = 0; i < 2 && stacks[i]; i++)
        NM_TRY(open_stack(&to, &(wide_stack){.stack = stacks[i]}));
    return NM_OK;
}
