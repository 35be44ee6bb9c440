/* Golden cases of family "block": stacks of layers without embeddings and output, single feed-forward layers
 * and activations; and of family "attention", method "self_attention". The parameters have the same names in
 * all cases and are copied into a stack of Norma. Layout: time, batch, feature; sequences are packed one
 * after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "nn/sublayers.h"
#include "model/model.h"

typedef struct block_problem {
    int32_t length, batch, memory_length;
    nm_options *options;
    nm_params params;
    nm_stack stack;
    nm_tape tape;
    int32_t *offsets, *memory_offsets;
    nm_packing packing, memory_packing;
    nm_tensor *x, *memory, *y;
} block_problem;

/* The index of a value in a NULL-terminated list; fails if it is unknown. */
static golden_result choose(golden_case *test, const char *key, const char *otherwise,
                            const char *const *values, int *index)
{
    const char *value = golden_text(test, key, otherwise);
    for (*index = 0; values[*index]; ++*index)
        if (!strcmp(values[*index], value))
            return GOLDEN_PASSED;
    return golden_skip(test, "%s '%.60s' is not offered", key, value);
}

static bool has_param(const golden_case *test, const char *name)
{
    return json_object_get(json_object_get(test->root, "params"), name) != NULL;
}

/* Norms of the layers, and of queries, keys and values, with the epsilon of the case. */
static golden_result set_norms(golden_case *test, block_problem *p)
{
    double eps = golden_number(test, "eps", golden_number(test, "qk_norm_eps", 1e-5));
    const json_t *gain = json_object_get(test->config, "qk_norm_gain");
    GOLDEN_TRY(golden_set_number(test, p->options, "norm.layer.epsilon", eps));
    GOLDEN_TRY(golden_set_number(test, p->options, "norm.rms.epsilon", eps));
    GOLDEN_TRY(golden_set(test, p->options, "norm.rms.epsilon_inside", "true"));
    /* A final LayerNorm with another epsilon is a GroupNorm of one group. */
    GOLDEN_TRY(golden_set(test, p->options, "norm.group.groups", "1"));
    GOLDEN_TRY(
        golden_set_number(test, p->options, "norm.group.epsilon", golden_number(test, "final_eps", eps)));
    return json_is_false(gain) ? golden_set(test, p->options, "norm.rms.gain", "false") : GOLDEN_PASSED;
}

static golden_result configure_attention(golden_case *test, nm_stack_config *c)
{
    static const char *const ropes[] = {"none", "half", "interleaved", NULL};
    static const char *const head_norms[] = {"none", "head", "full", NULL};
    static const char *const places[] = {"before_rope", "after_rope", NULL};
    int rope, qk_norm, v_norm, place;
    GOLDEN_TRY(choose(test, "rope", "none", ropes, &rope));
    GOLDEN_TRY(choose(test, "qk_norm", "none", head_norms, &qk_norm));
    GOLDEN_TRY(choose(test, "v_norm", "none", head_norms, &v_norm));
    GOLDEN_TRY(choose(test, "qk_norm_place", "before_rope", places, &place));
    c->heads = golden_whole(test, "heads", 1);
    c->key_value_heads = golden_whole(test, "kv_heads", 0);
    c->value_width = c->heads * golden_whole(test, "head_width", c->width / (c->heads > 0 ? c->heads : 1));
    c->rope = (nm_rope)rope;
    c->rope_angles.base = golden_number(test, "rope_base", 10000);
    c->qk_norm = (nm_head_norm)qk_norm;
    c->v_norm = (nm_head_norm)v_norm;
    c->qk_norm_after_rope = place == 1;
    c->qk_norm_type = golden_text(test, "qk_norm_function", golden_text(test, "norm", "rms"));
    c->decoder = golden_flag(test, "causal");
    c->decoder_only = !golden_flag(test, "cross_attention");
    return GOLDEN_PASSED;
}

static golden_result configure_residual(golden_case *test, nm_stack_config *c)
{
    static const char *const sites[] = {"pre", "post", "sandwich", "inside", "mix", "sub", "none", NULL};
    static const char *const forms[] = {"plain",    "deepnorm", "depth-scaled", "layerscale",
                                        "skipinit", "rezero",   "residual",     NULL};
    int site, form;
    GOLDEN_TRY(choose(test, "site", "none", sites, &site));
    GOLDEN_TRY(choose(test, "residual", "plain", forms, &form));
    c->residual = (nm_residual_form)form;
    if (form == NM_RESIDUAL_REZERO && !has_param(test, "layers.0.scale"))
        c->residual = NM_RESIDUAL_SKIPINIT; /* one number per sublayer */
    c->position = site > NM_SUB_NORM ? NM_PRE_NORM : (nm_norm_position)site;
    c->norm = site > NM_SUB_NORM ? "none" : golden_text(test, "norm", "layer");
    c->post_layers = golden_whole(test, "post_layers", 0);
    if (c->position == NM_MIX_NORM && !c->post_layers) /* of an option, 0 is a fraction of the layers */
        c->position = NM_PRE_NORM;
    c->depths = (nm_depths){golden_whole(test, "encoder_layers", 0), golden_whole(test, "decoder_layers", 0)};
    if (form == NM_RESIDUAL_DEEPNORM && c->decoder && !c->decoder_only && !c->depths.encoder)
        c->depths.encoder = 1; /* alpha of a decoder does not depend on it */
    if (golden_flag(test, "final_norm"))
        c->final_norm = json_object_get(test->config, "final_eps") ? "group" : c->norm;
    if (golden_flag(test, "embedding_norm"))
        c->embedding_norm = c->norm;
    return GOLDEN_PASSED;
}

/* The names in case files. */
static const char *const activations[] = {[NM_ACTIVATION_RELU] = "relu",
                                          [NM_ACTIVATION_GELU] = "gelu",
                                          [NM_ACTIVATION_GELU_TANH] = "gelu_tanh",
                                          [NM_ACTIVATION_SILU] = "silu",
                                          [NM_ACTIVATIONS_COUNT] = NULL};

static golden_result configure(golden_case *test, nm_stack_config *c)
{
    int activation;
    GOLDEN_TRY(choose(test, "activation", "relu", activations, &activation));
    *c = (nm_stack_config){.width = golden_whole(test, "d", 0),
                           .ff = golden_whole(test, "ff", 1),
                           .layers = golden_whole(test, "layers", 1),
                           .activation = (nm_activation)activation,
                           .gated = golden_flag(test, "gated"),
                           .init = NM_SCHEME_TORCH,
                           .prefix = "s"};
    c->bias = has_param(test, "layers.0.ffn.fc1.bias") || has_param(test, "fc1.bias") ||
              has_param(test, "q_proj.bias");
    if (c->width < 1 || c->width > 4096 || c->ff < 1 || c->ff > 4096 || c->layers < 1 || c->layers > 100)
        return golden_fail(test, "config: d, ff or layers");
    GOLDEN_TRY(configure_attention(test, c));
    if (c->heads < 1 || c->heads > c->width)
        return golden_fail(test, "config: heads");
    return configure_residual(test, c);
}

/* A parameter of the case is the rows from `first` on of a parameter of Norma. */
typedef struct place_in {
    char name[96];
    int32_t first;
} place_in;

/* Rows of the fused projection of queries, keys and values. */
static int32_t fused_row(const block_problem *p, bool cross, char which)
{
    nm_head_widths w = nm_stack_head_widths(&p->stack.config, cross);
    int32_t queries = cross ? 0 : w.heads * w.key, keys = w.groups * w.key;
    return which == 'q' ? 0 : which == 'k' ? queries : queries + keys;
}

/* PART.KIND: for example attn.q_proj.weight of "layers.0.attn.q_proj.weight". layer: "s.0" */
static bool place_attention(const block_problem *p, const char *layer, const char *rest, bool cross,
                            place_in *to)
{
    char which, kind[16], what[16];
    const char *part = cross ? "cross" : "self";
    if (sscanf(rest, "%c_proj.%15s", &which, kind) == 2 && strchr("qkv", which)) {
        const char *layer_name = !cross ? "qkv" : which == 'q' ? "q" : "kv";
        snprintf(to->name, sizeof to->name, "%s.%s.%s.%s", layer, part, layer_name, kind);
        to->first = fused_row(p, cross, which);
        return true;
    }
    if (sscanf(rest, "out_proj.%15s", kind) == 1)
        return snprintf(to->name, sizeof to->name, "%s.%s.out.%s", layer, part, kind) > 0;
    if (sscanf(rest, "%15[a-z]_norm.%15s", what, kind) != 2)
        return false;
    const char *ours = !strcmp(what, "q")   ? "query"
                       : !strcmp(what, "k") ? "key"
                       : !strcmp(what, "v") ? "value"
                                            : what;
    return snprintf(to->name, sizeof to->name, "%s.%s.%s.norm.%s", layer, part, ours, kind) > 0;
}

static bool place_ffn(const block_problem *p, const char *layer, const char *rest, place_in *to)
{
    char kind[16];
    if (sscanf(rest, "gate.%15s", kind) == 1)
        return snprintf(to->name, sizeof to->name, "%s.ffn.in.%s", layer, kind) > 0;
    if (sscanf(rest, "fc1.%15s", kind) == 1) {
        to->first = p->stack.config.gated ? p->stack.config.ff : 0;
        return snprintf(to->name, sizeof to->name, "%s.ffn.in.%s", layer, kind) > 0;
    }
    if (sscanf(rest, "fc2.%15s", kind) == 1)
        return snprintf(to->name, sizeof to->name, "%s.ffn.out.%s", layer, kind) > 0;
    return sscanf(rest, "inner_norm.%15s", kind) == 1 &&
           snprintf(to->name, sizeof to->name, "%s.ffn.inner.norm.%s", layer, kind) > 0;
}

static bool place_in_layer(const block_problem *p, const char *layer, const char *rest, place_in *to)
{
    char part[16], kind[16];
    if (!strcmp(rest, "scale"))
        return snprintf(to->name, sizeof to->name, "%s.scale", layer) > 0;
    if (!strncmp(rest, "attn.", 5) || !strncmp(rest, "cross.", 6))
        return place_attention(p, layer, strchr(rest, '.') + 1, *rest == 'c', to);
    if (!strncmp(rest, "ffn.", 4))
        return place_ffn(p, layer, rest + 4, to);
    size_t length = strcspn(rest, "_");
    snprintf(part, sizeof part, "%.*s", (int)length, rest);
    const char *ours = !strcmp(part, "attn") ? "self" : part;
    if (!strcmp(rest + length, "_scale"))
        return snprintf(to->name, sizeof to->name, "%s.%s.scale", layer, ours) > 0;
    if (sscanf(rest + length, "_norm_out.%15s", kind) == 1)
        return snprintf(to->name, sizeof to->name, "%s.%s.output.norm.%s", layer, ours, kind) > 0;
    return sscanf(rest + length, "_norm.%15s", kind) == 1 &&
           snprintf(to->name, sizeof to->name, "%s.%s.norm.%s", layer, ours, kind) > 0;
}

/* Where a parameter of the case is in the stack. Names without "layers." are those of a single sublayer or of
 * the stack. */
static bool find_place(const golden_case *test, const block_problem *p, const char *name, place_in *to)
{
    int layer, length = 0;
    char at[16], kind[16];
    *to = (place_in){0};
    if (!strcmp(test->method, "self_attention"))
        return place_attention(p, "s.0", name, false, to);
    if (!strcmp(test->method, "feed_forward"))
        return place_ffn(p, "s.0", name, to);
    if (sscanf(name, "final_norm.%15s", kind) == 1 || sscanf(name, "embedding_norm.%15s", kind) == 1)
        return snprintf(to->name, sizeof to->name, "s.%s.norm.%s", *name == 'f' ? "final" : "embedding",
                        kind) > 0;
    if (sscanf(name, "layers.%d.%n", &layer, &length) != 1 || !length)
        return false;
    snprintf(at, sizeof at, "s.%d", layer);
    return place_in_layer(p, at, name + length, to);
}

/* Gains stored as g - 1. */
static double gain_offset(const golden_case *test, const char *name)
{
    return strstr(name, "norm") && nm_ends_with(name, ".weight") &&
                   !strcmp(golden_text(test, "gain", "g"), "1+g")
               ? 1
               : 0;
}

/* Elements of Norma's parameter that a parameter of the case is, after checking its size. */
static golden_result find_elements(golden_case *test, block_problem *p, const char *name, size_t count,
                                   nm_param **param, size_t *first)
{
    place_in to;
    bool found = find_place(test, p, name, &to);
    *param = found ? nm_params_find(&p->params, to.name) : NULL;
    if (found && !*param && nm_ends_with(to.name, ".norm.weight")) { /* the gain of RMSNorm */
        snprintf(strrchr(to.name, '.'), sizeof ".scale", ".scale");
        *param = nm_params_find(&p->params, to.name);
    }
    if (!*param)
        return golden_fail(test, "the stack has no place for the parameter %.90s", name);
    const nm_tensor *tensor = &(*param)->tensor;
    *first = (size_t)to.first * (size_t)(tensor->rows == 1 ? 1 : tensor->cols);
    if (*first + count > (size_t)tensor->rows * (size_t)tensor->cols)
        return golden_fail(test, "%.90s has %zu numbers, too many for %.90s", name, count, to.name);
    return GOLDEN_PASSED;
}

static golden_result load_param(golden_case *test, block_problem *p, const char *name, const json_t *value,
                                size_t *loaded)
{
    golden_tensor tensor;
    nm_param *param;
    size_t first, unit = nm_dtype_bytes(test->backend->dtype);
    GOLDEN_TRY(golden_read(test, value, name, &tensor));
    golden_result result = find_elements(test, p, name, tensor.count, &param, &first);
    for (size_t i = 0; i < tensor.count; i++)
        tensor.data[i] += gain_offset(test, name);
    if (result == GOLDEN_PASSED) {
        void *reals = golden_reals(test, tensor.data, tensor.count);
        nm_backend_upload(test->backend, (char *)param->tensor.data + first * unit, reals,
                          tensor.count * unit);
        free(reals);
        *loaded += tensor.count;
    }
    golden_release(&tensor);
    return result;
}

static golden_result load_params(golden_case *test, block_problem *p)
{
    const char *name;
    json_t *value;
    size_t loaded = 0;
    json_object_foreach(json_object_get(test->root, "params"), name, value)
        GOLDEN_TRY(load_param(test, p, name, value, &loaded));
    bool whole = strcmp(test->method, "self_attention") && strcmp(test->method, "feed_forward");
    if (whole && loaded != nm_params_learned(&p->params))
        return golden_fail(test, "the stack has %zu parameters, the case %zu", nm_params_learned(&p->params),
                           loaded);
    return GOLDEN_PASSED;
}

static golden_result compare_gradients(golden_case *test, block_problem *p)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(test->root, "dparams"), name, value)
    {
        golden_tensor want;
        nm_param *param;
        size_t first, unit = nm_dtype_bytes(test->backend->dtype);
        GOLDEN_TRY(golden_read(test, value, name, &want));
        golden_result result = find_elements(test, p, name, want.count, &param, &first);
        if (result == GOLDEN_PASSED)
            result = golden_compare(test, name, (char *)param->tensor.grad + first * unit, want.data,
                                    want.count, test->gradient_tolerance);
        golden_release(&want);
        GOLDEN_TRY(result);
    }
    return GOLDEN_PASSED;
}

/* The file is [time, batch, d], a tensor [batch, time, d] in rows. */
static void transpose(double *rows, const double *file, int32_t length, int32_t batch, int32_t d, bool back)
{
    for (int32_t t = 0; t < length; t++)
        for (int32_t b = 0; b < batch; b++)
            for (int32_t c = 0; c < d; c++) {
                size_t in_file = ((size_t)t * (size_t)batch + (size_t)b) * (size_t)d + (size_t)c;
                size_t in_rows = ((size_t)b * (size_t)length + (size_t)t) * (size_t)d + (size_t)c;
                rows[back ? in_file : in_rows] = file[back ? in_rows : in_file];
            }
}

/* Reads [length, batch, d] into packed rows in the precision of the case, [batch length, d] (free). */
static golden_result read_rows(golden_case *test, const block_problem *p, const char *name, int32_t length,
                               void **rows)
{
    golden_tensor file;
    size_t count = (size_t)length * (size_t)p->batch * (size_t)p->stack.config.width;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, name), name, &file));
    golden_result result =
        file.count == count ? GOLDEN_PASSED : golden_fail(test, "%s: unexpected shape", name);
    if (result == GOLDEN_PASSED) {
        double *packed = nm_allocate(count * sizeof *packed);
        transpose(packed, file.data, length, p->batch, p->stack.config.width, false);
        *rows = golden_reals(test, packed, count);
        free(packed);
    }
    golden_release(&file);
    return result;
}

static golden_result compare_rows(golden_case *test, const block_problem *p, const char *name,
                                  const void *got, int32_t length, double tolerance)
{
    golden_tensor file;
    size_t count = (size_t)length * (size_t)p->batch * (size_t)p->stack.config.width;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, name), name, &file));
    if (file.count != count) {
        golden_release(&file);
        return golden_fail(test, "%s: unexpected shape", name);
    }
    double *packed = nm_allocate(count * sizeof *packed);
    transpose(packed, file.data, length, p->batch, p->stack.config.width, false);
    golden_result result = golden_compare(test, name, got, packed, count, tolerance);
    free(packed);
    golden_release(&file);
    return result;
}

static nm_packing make_packing(int32_t length, int32_t batch, int32_t **offsets)
{
    *offsets = nm_allocate(((size_t)batch + 1) * sizeof **offsets);
    for (int32_t b = 0; b <= batch; b++)
        (*offsets)[b] = b * length;
    return (nm_packing){batch, batch * length, length, *offsets, *offsets};
}

/* A tensor of the tape with these values. */
static nm_tensor *input_tensor(golden_case *test, block_problem *p, const void *rows, int32_t n)
{
    nm_tensor *x = nm_tape_tensor(&p->tape, n, p->stack.config.width);
    size_t bytes = (size_t)n * (size_t)p->stack.config.width * nm_dtype_bytes(test->backend->dtype);
    nm_backend_upload(test->backend, x->data, rows, bytes);
    x->pooled = false; /* the backward pass keeps its gradient */
    bool add;
    nm_mat grad = nm_tensor_grad(&p->tape, x, &add);
    nm_backend_zero(test->backend, grad.data, bytes);
    return x;
}

static void forward(golden_case *test, block_problem *p)
{
    const nm_layer *layer = &p->stack.layers[0];
    if (!strcmp(test->method, "self_attention")) {
        int32_t *positions = nm_tape_host(&p->tape, (size_t)p->packing.n_tokens * sizeof *positions);
        for (int32_t i = 0; i < p->packing.n_tokens; i++)
            positions[i] = i % p->length;
        p->y = nm_softmax_self(&p->tape, &p->stack, &layer->self, p->x, &p->packing, positions);
    } else if (!strcmp(test->method, "feed_forward")) {
        p->y = nm_feed_forward(&p->tape, p->x, &layer->ffn, &p->stack.config);
    } else {
        p->y = nm_stack_forward(&p->tape, &p->stack, p->x, &p->packing, p->memory, &p->memory_packing, NULL);
    }
}

static golden_result backward(golden_case *test, block_problem *p, const void *dy)
{
    nm_error err;
    bool add;
    nm_mat grad = nm_tensor_grad(&p->tape, p->y, &add);
    nm_backend_upload(test->backend, grad.data, dy,
                      (size_t)grad.rows * (size_t)grad.cols * nm_dtype_bytes(test->backend->dtype));
    return nm_tape_backward(&p->tape, &err) == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}

static golden_result build(golden_case *test, block_problem *p)
{
    nm_stack_config config;
    nm_error err = {0};
    p->length = golden_whole(test, "T", 1);
    p->batch = golden_whole(test, "B", 1);
    if (p->length < 1 || p->batch < 1 || p->length > 1000 || p->batch > 1000)
        return golden_fail(test, "config: T or B");
    p->options = nm_options_create();
    nm_model_options_add(p->options, &nm_model_seq2seq);
    nm_norm_options_add(p->options);
    GOLDEN_TRY(set_norms(test, p));
    GOLDEN_TRY(configure(test, &config));
    nm_params_init(&p->params, test->backend);
    if (nm_stack_build(&p->stack, &config, &p->params, p->options, &err) != NM_OK ||
        nm_params_allocate(&p->params, true, &err) != NM_OK ||
        nm_stack_ready(&p->stack, test->backend, p->length, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_params_initialize(&p->params, 1);
    return load_params(test, p);
}

static golden_result read_memory(golden_case *test, block_problem *p)
{
    golden_tensor memory;
    void *rows = NULL;
    const json_t *value = json_object_get(test->root, "memory");
    if (!value)
        return GOLDEN_PASSED;
    GOLDEN_TRY(golden_read(test, value, "memory", &memory));
    p->memory_length = memory.rank == 3 ? (int32_t)memory.shape[0] : 0;
    golden_release(&memory);
    GOLDEN_TRY(read_rows(test, p, "memory", p->memory_length, &rows));
    p->memory_packing = make_packing(p->memory_length, p->batch, &p->memory_offsets);
    p->memory = input_tensor(test, p, rows, p->memory_packing.n_tokens);
    free(rows);
    return GOLDEN_PASSED;
}

static golden_result solve(golden_case *test, block_problem *p)
{
    void *x = NULL, *dy = NULL;
    nm_error err;
    GOLDEN_TRY(build(test, p));
    if (nm_tape_init(&p->tape, test->backend, (size_t)1 << 26, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_tape_start(&p->tape, true, 1, 1);
    p->tape.grad_scale = 1;
    p->packing = make_packing(p->length, p->batch, &p->offsets);
    golden_result result = read_rows(test, p, "x", p->length, &x);
    if (result == GOLDEN_PASSED)
        result = read_rows(test, p, "dy", p->length, &dy);
    if (result == GOLDEN_PASSED)
        result = read_memory(test, p);
    if (result == GOLDEN_PASSED) {
        p->x = input_tensor(test, p, x, p->packing.n_tokens);
        forward(test, p);
        result = compare_rows(test, p, "y", p->y->data, p->length, test->value_tolerance);
    }
    if (result == GOLDEN_PASSED)
        result = backward(test, p, dy);
    free(x);
    free(dy);
    GOLDEN_TRY(result);
    GOLDEN_TRY(compare_rows(test, p, "dx", p->x->grad, p->length, test->gradient_tolerance));
    if (p->memory)
        GOLDEN_TRY(
            compare_rows(test, p, "dmemory", p->memory->grad, p->memory_length, test->gradient_tolerance));
    return compare_gradients(test, p);
}

golden_result golden_self_attention(golden_case *test)
{
    block_problem p = {0};
    golden_result result = solve(test, &p);
    nm_stack_release(&p.stack, test->backend);
    nm_params_release(&p.params);
    nm_tape_release(&p.tape);
    if (p.options)
        nm_options_free(p.options);
    free(p.offsets);
    free(p.memory_offsets);
    return result;
}

static golden_result compare_numbers(golden_case *test, const char *name, const void *got, size_t count,
                                     double tolerance)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, name), name, &want));
    golden_result result = want.count == count ? golden_compare(test, name, got, want.data, count, tolerance)
                                               : golden_fail(test, "%s: unexpected shape", name);
    golden_release(&want);
    return result;
}

/* y = f(x), dx = f'(x) dy */
static golden_result run_activation(golden_case *test)
{
    static const nm_map_op ops[] = {NM_ACTIVATIONS(NM_ACTIVATION_OP)};
    golden_tensor x, dy;
    int index;
    GOLDEN_TRY(choose(test, "activation", "", activations, &index));
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "x"), "x", &x));
    golden_result result = golden_read(test, json_object_get(test->root, "dy"), "dy", &dy);
    if (result == GOLDEN_PASSED && dy.count != x.count)
        result = golden_fail(test, "x and dy have different shapes");
    if (result == GOLDEN_PASSED) {
        int32_t n = (int32_t)x.count;
        void *in = golden_reals(test, x.data, x.count), *up = golden_reals(test, dy.data, x.count);
        void *y = golden_reals(test, NULL, x.count), *dx = golden_reals(test, NULL, x.count);
        nm_backend *b = test->backend;
        NM_CALL(b, map, .op = ops[index], .x = nm_mat_of(in, 1, n), .y = nm_mat_of(y, 1, n));
        NM_CALL(b, map_grad, .forward = {.op = ops[index], .x = nm_mat_of(in, 1, n)},
                .dy = nm_mat_of(up, 1, n), .dx = nm_mat_of(dx, 1, n));
        result = compare_numbers(test, "y", y, x.count, test->value_tolerance);
        if (result == GOLDEN_PASSED)
            result = compare_numbers(test, "dx", dx, x.count, test->gradient_tolerance);
        void *const owned[] = {in, up, y, dx};
        for (int i = 0; i < 4; i++)
            free(owned[i]);
    }
    golden_release(&x);
    golden_release(&dy);
    return result;
}

static golden_result run(golden_case *test)
{
    return strcmp(test->method, "activation") ? golden_self_attention(test) : run_activation(test);
}

const golden_family golden_block = {.name = "block", .run = run, .computes = true};
