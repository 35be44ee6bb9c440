#include <math.h>
#include <stdio.h>

#include "nn/sublayers.h"

nm_head_widths nm_stack_head_widths(const nm_stack_config *c, bool cross)
{
    int32_t values = c->value_width ? c->value_width : c->width;
    int32_t keys = c->key_width && !cross ? c->key_width : values;
    int32_t groups = c->key_value_heads && !cross ? c->key_value_heads : c->heads;
    return (nm_head_widths){c->heads, groups, keys / c->heads, values / c->heads};
}

/* A linear layer whose rows are up to three blocks; the last one has another factor of the initial values. */
typedef struct projection {
    const char *name; /* "qkv" */
    int32_t blocks[NM_PARAM_BLOCKS], cols;
    double factor; /* of the last block; the others have the factor 1 */
    bool output;
} projection;

/* Registers AT.NAME.weight and AT.NAME.bias. */
static void add_projection(const nm_stack *stack, nm_params *params, const char *at, const projection *p,
                           bool scale_bias, nm_tensor **weight, nm_tensor **bias)
{
    const nm_stack_config *c = &stack->config;
    nm_head_widths w = nm_stack_head_widths(c, false);
    const nm_attention_widths widths = {c->width, w.heads * w.key, w.heads * w.value};
    int32_t rows = 0, last = 0;
    for (int i = 0; i < NM_PARAM_BLOCKS && p->blocks[i]; i++)
        rows += last = p->blocks[i];
    *weight = nm_params_add(params, rows, p->cols, nm_init_attention(c->init, widths, p->output),
                            "%s.%s.weight", at, p->name);
    nm_params_mark_hidden(*weight, p->blocks);
    nm_params_scale_rows(*weight, rows - last, p->factor);
    if (!c->bias)
        return;
    *bias = nm_params_add(params, 1, rows, nm_init_attention_bias(c->init, p->cols, p->output), "%s.%s.bias",
                          at, p->name);
    if (scale_bias)
        nm_params_scale_rows(*bias, rows - last, p->factor);
}

void nm_softmax_build(nm_stack *stack, int32_t layer, bool cross, nm_params *params,
                      const nm_depth_factors *factors)
{
    const nm_stack_config *c = &stack->config;
    nm_sublayer_attention *attention = cross ? &stack->layers[layer].cross : &stack->layers[layer].self;
    nm_head_widths w = nm_stack_head_widths(c, cross);
    const bool global = cross || (c->global_every && (layer + 1) % c->global_every == 0);
    attention->window = global ? 0 : c->window;
    int32_t d = c->width, queries = w.heads * w.key, keys = w.groups * w.key, values = w.groups * w.value;
    double value = cross ? factors->cross_value : factors->value;
    double output = cross ? factors->cross_output : factors->projected;
    bool biases = factors->biases;
    const projection q = {"q", {queries}, d, 1, false}, kv = {"kv", {keys, values}, d, value, false},
                     qkv = {"qkv", {queries, keys, values}, d, value, false},
                     out = {"out", {d}, w.heads * w.value, output, true};
    char at[64];
    snprintf(at, sizeof at, "%s.%d.%s", c->prefix, layer, cross ? "cross" : "self");
    add_projection(stack, params, at, cross ? &q : &qkv, biases, &attention->in_weight, &attention->in_bias);
    if (cross)
        add_projection(stack, params, at, &kv, biases, &attention->kv_weight, &attention->kv_bias);
    add_projection(stack, params, at, &out, biases, &attention->out_weight, &attention->out_bias);
}

bool nm_softmax_is_plain(const nm_stack *stack)
{
    const nm_stack_config *c = &stack->config;
    nm_head_widths w = nm_stack_head_widths(c, false);
    return !c->rope && !c->qk_norm && !c->v_norm && w.groups == w.heads;
}

/* Normalizes queries or keys, and rotates those of self-attention by their positions (positions NULL:
 * not). */
static nm_tensor *place(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *attention,
                        nm_norm *norm, nm_tensor *x, int32_t heads, const int32_t *positions)
{
    const nm_stack_config *c = &stack->config;
    const nm_mat *rotations = attention->window ? &stack->local_rotations : &stack->rotations;
    if (norm && !c->qk_norm_after_rope)
        x = nm_normalize(tape, norm, x);
    if (c->rope && positions)
        x = nm_rotated(tape, x, rotations, positions, heads, c->rope == NM_ROPE_INTERLEAVED);
    if (norm && c->qk_norm_after_rope)
        x = nm_normalize(tape, norm, x);
    return x;
}

void nm_linear_rows(nm_backend *b, nm_mat x, const nm_tensor *weight, const nm_tensor *bias, int32_t first,
                    nm_mat y)
{
    size_t unit = nm_dtype_bytes(b->dtype);
    nm_mat rows =
        nm_mat_of((char *)weight->data + (size_t)first * (size_t)weight->cols * unit, y.cols, weight->cols);
    nm_dropout none = {0};
    NM_CALL(b, linear, .x = x, .weight = rows,
            .bias = bias ? (char *)bias->data + (size_t)first * unit : NULL, .drop = &none, .y = y);
}

/* The same as a tensor [tokens, rows]. */
static nm_tensor *linear_rows(nm_tape *tape, nm_tensor *x, const nm_tensor *weight, const nm_tensor *bias,
                              int32_t first, int32_t rows)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, rows);
    if (!nm_tape_exhausted(tape))
        nm_linear_rows(tape->backend, nm_tensor_mat(x), weight, bias, first, nm_tensor_mat(y));
    return y;
}

nm_tensor *nm_softmax_queries(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *attention,
                              nm_tensor *h, const int32_t *positions)
{
    nm_head_widths w = nm_stack_head_widths(&stack->config, attention->kv_weight != NULL);
    nm_tensor *q = linear_rows(tape, h, attention->in_weight, attention->in_bias, 0, w.heads * w.key);
    return place(tape, stack, attention, attention->query_norm, q, w.heads, positions);
}

static nm_key_values placed_key_values(nm_tape *tape, const nm_stack *stack,
                                       const nm_sublayer_attention *attention, nm_tensor *keys,
                                       nm_tensor *values, const int32_t *positions)
{
    nm_head_widths w = nm_stack_head_widths(&stack->config, attention->kv_weight != NULL);
    keys = place(tape, stack, attention, attention->key_norm, keys, w.groups, positions);
    if (attention->value_norm)
        values = nm_normalize(tape, attention->value_norm, values);
    return (nm_key_values){keys, values};
}

nm_key_values nm_softmax_key_values(nm_tape *tape, const nm_stack *stack,
                                    const nm_sublayer_attention *attention, nm_tensor *h,
                                    const int32_t *positions)
{
    bool cross = attention->kv_weight != NULL;
    nm_head_widths w = nm_stack_head_widths(&stack->config, cross);
    const nm_tensor *weight = cross ? attention->kv_weight : attention->in_weight;
    const nm_tensor *bias = cross ? attention->kv_bias : attention->in_bias;
    int32_t first = cross ? 0 : w.heads * w.key, keys = w.groups * w.key, values = w.groups * w.value;
    return placed_key_values(tape, stack, attention, linear_rows(tape, h, weight, bias, first, keys),
                             linear_rows(tape, h, weight, bias, first + keys, values), positions);
}

/* [k | v] with as many heads as the queries. */
static nm_tensor *joined_key_values(nm_tape *tape, nm_key_values kv, nm_head_widths w)
{
    nm_tensor *const parts[] = {nm_repeated_heads(tape, kv.keys, w.groups, w.heads),
                                nm_repeated_heads(tape, kv.values, w.groups, w.heads)};
    return nm_concat(tape, parts, 2);
}

/* Keys are the columns from k_first of their tensor, followed by the values. The scale is 1/sqrt(width of a
 * value head) even if keys have another width, as in declare-lab's classifier. */
static nm_attention_shape attention_shape(nm_head_widths w, const nm_sublayer_attention *attention,
                                          int32_t k_first, bool causal)
{
    return (nm_attention_shape){.key_width = w.heads * w.key,
                                .value_width = w.heads * w.value,
                                .k_first = k_first,
                                .v_first = k_first + w.heads * w.key,
                                .heads = w.heads,
                                .causal = causal,
                                .window = attention->window,
                                .scale = 1 / sqrt((double)w.value),
                                .site = attention->norm->site.name};
}

nm_tensor *nm_softmax_output(nm_tape *tape, const nm_sublayer_attention *attention, nm_tensor *h)
{
    if (attention->inner_norm)
        h = nm_normalize(tape, attention->inner_norm, h);
    nm_tensor *f = nm_linear(tape, h, attention->out_weight, attention->out_bias, NM_ACT_NONE, 0);
    if (attention->inner_norm)
        nm_tape_keep_operand(tape, h);
    return f;
}

nm_tensor *nm_softmax_self(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *self,
                           nm_tensor *h, const nm_packing *packing, const int32_t *positions)
{
    const nm_stack_config *c = &stack->config;
    nm_head_widths w = nm_stack_head_widths(c, false);
    nm_tensor *qkv = nm_linear(tape, h, self->in_weight, self->in_bias, NM_ACT_NONE, 0), *q = qkv, *kv = qkv;
    int32_t queries = w.heads * w.key, keys = w.groups * w.key;
    if (!nm_softmax_is_plain(stack)) {
        q = place(tape, stack, self, self->query_norm, nm_column_copy(tape, qkv, 0, queries), w.heads,
                  positions);
        nm_key_values parts =
            placed_key_values(tape, stack, self, nm_column_copy(tape, qkv, queries, keys),
                              nm_column_copy(tape, qkv, queries + keys, w.groups * w.value), positions);
        kv = joined_key_values(tape, parts, w);
        nm_tape_discard(tape, qkv);
    }
    const nm_attention_shape shape = attention_shape(w, self, q == kv ? queries : 0, c->decoder);
    h = nm_attention(tape, q, kv, &shape, packing, packing, c->attention_drop);
    nm_tape_keep_operand(tape, q);
    if (kv != q)
        nm_tape_keep_operand(tape, kv);
    return nm_softmax_output(tape, self, h);
}

nm_tensor *nm_softmax_cross(nm_tape *tape, const nm_stack *stack, const nm_sublayer_attention *cross,
                            nm_tensor *h, const nm_packing *packing, const nm_memory *memory,
                            const nm_alignment_guide *guide)
{
    const nm_stack_config *c = &stack->config;
    nm_head_widths w = nm_stack_head_widths(c, true);
    nm_tensor *q = nm_linear(tape, h, cross->in_weight, cross->in_bias, NM_ACT_NONE, 0);
    nm_tensor *kv = nm_linear(tape, memory->x, cross->kv_weight, cross->kv_bias, NM_ACT_NONE, 0);
    int32_t keys = w.heads * w.key;
    if (cross->query_norm || cross->value_norm) {
        q = place(tape, stack, cross, cross->query_norm, q, w.heads, NULL);
        kv = joined_key_values(tape,
                               placed_key_values(tape, stack, cross, nm_column_copy(tape, kv, 0, keys),
                                                 nm_column_copy(tape, kv, keys, w.heads * w.value), NULL),
                               w);
    }
    const nm_attention_shape shape = attention_shape(w, cross, 0, false);
    if (guide)
        nm_guided_attention(tape, q, kv, &shape, packing, memory->packing, guide);
    h = nm_attention(tape, q, kv, &shape, packing, memory->packing, c->attention_drop);
    if (!guide) { /* guided attention reads them in float */
        nm_tape_keep_operand(tape, q);
        nm_tape_keep_operand(tape, kv);
    }
    return nm_softmax_output(tape, cross, h);
}
