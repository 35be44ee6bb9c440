/* Builds the model that a golden case describes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden_model.h"

static double number_of(const golden_model *made, const char *key, double otherwise)
{
    const json_t *value = json_object_get(made->config, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static bool flag_of(const golden_model *made, const char *key)
{
    return json_is_true(json_object_get(made->config, key));
}

static const char *text_of(const golden_model *made, const char *key)
{
    const char *text = json_string_value(json_object_get(made->config, key));
    return text ? text : "";
}

static golden_result set_list(golden_case *test, golden_model *made, const char *const (*list)[2])
{
    for (; (*list)[0]; list++)
        GOLDEN_TRY(golden_set(test, made->options, (*list)[0], (*list)[1]));
    return GOLDEN_PASSED;
}

static golden_result set_sizes(golden_case *test, golden_model *made)
{
    static const char *const rows[][2] = {{"model.width", "d"},
                                          {"model.ff", "ff"},
                                          {"model.heads", "heads"},
                                          {"model.encoder_layers", "encoder_layers"},
                                          {"model.decoder_layers", "decoder_layers"}};
    static const char *const none[][2] = {
        {"model.dropout", "0"},           {"model.attention_dropout", "0"},  {"model.relu_dropout", "0"},
        {"model.embedding_dropout", "0"}, {"model.share_embeddings", "all"}, {NULL, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        GOLDEN_TRY(golden_set_number(test, made->options, rows[i][0], number_of(made, rows[i][1], -1)));
    GOLDEN_TRY(
        golden_set(test, made->options, "model.norm_position", flag_of(made, "pre_norm") ? "pre" : "post"));
    double scale = number_of(made, "embedding_scale", -1), d = number_of(made, "d", 0);
    if (scale * scale < d * (1 - 1e-12) || scale * scale > d * (1 + 1e-12))
        return golden_skip(test, "embeddings are scaled by %g, not by sqrt(d)", scale);
    return set_list(test, made, none);
}

static golden_result set_tears(golden_case *test, golden_model *made)
{
    GOLDEN_TRY(golden_set(test, made->options, "model.positions", "tears"));
    GOLDEN_TRY(golden_set(test, made->options, "model.output_bias", "true"));
    GOLDEN_TRY(golden_set(test, made->options, "model.fixnorm", flag_of(made, "fixnorm") ? "true" : "false"));
    GOLDEN_TRY(golden_set(test, made->options, "model.norm", flag_of(made, "scalenorm") ? "scale" : "layer"));
    GOLDEN_TRY(
        golden_set_number(test, made->options, "norm.layer.epsilon", number_of(made, "norm_eps", 1e-5)));
    return golden_set_number(test, made->options, "norm.scale.epsilon", number_of(made, "norm_eps", 1e-5));
}

/* The code of PowerNorm: scaling per layer in BatchNorm, per head in PowerNorm. */
static golden_result set_powernorm(golden_case *test, golden_model *made)
{
    const char *norm = text_of(made, "encoder_norm");
    if (strcmp(norm, "layer") && strcmp(norm, "batch") && strcmp(norm, "power"))
        return golden_skip(test, "encoder norm '%.60s' is unknown", norm);
    if (strcmp(text_of(made, "decoder_norm"), "layer"))
        return golden_skip(test, "decoder norm '%.60s' is unknown", text_of(made, "decoder_norm"));
    if (!strcmp(norm, "power") && number_of(made, "warmup_iters_final_norms", 1000) != 1000)
        return golden_skip(test, "another warm-up of the final norm than 1000");
    GOLDEN_TRY(golden_set(test, made->options, "model.encoder_norm", norm));
    GOLDEN_TRY(golden_set(test, made->options, "model.decoder_norm", "layer"));
    GOLDEN_TRY(golden_set(test, made->options, "norm.batch.preset", "pn"));
    made->warmup_steps = (int32_t)number_of(made, "warmup_iters_inside_layers", 1);
    return GOLDEN_PASSED;
}

/* The RBN code: "batch_1_1", "power" (which is PN-V there), or "batch_PENALTY_mean_var". Its LayerNorm has
 * the divisor d - 1, except after the decoder: a GroupNorm of one group there is the standard LayerNorm. */
static golden_result set_regularized(golden_case *test, golden_model *made)
{
    static const char *const common[][2] = {
        {"norm.batch.preset", "rbn"},          {"norm.pnv.preset", "rbn"},
        {"norm.layer.unbiased", "true"},       {"norm.group.groups", "1"},
        {"model.encoder_final_norm", "layer"}, {"model.decoder_norm", "layer"},
        {"model.decoder_final_norm", "group"}, {NULL, NULL}};
    char penalty[16] = "";
    const char *norm = text_of(made, "encoder_norm");
    double mean = number_of(made, "penalty_mean", 0), var = number_of(made, "penalty_var", 0);
    bool regularized = mean != 0 || var != 0;
    bool plain = !strcmp(norm, "batch") || !strcmp(norm, "batch_1_1");
    if (regularized && (sscanf(norm, "batch_%15[a-z0-9]", penalty) != 1 ||
                        (strcmp(penalty, "diff") && strcmp(penalty, "diff2") && strcmp(penalty, "reldiff"))))
        return golden_skip(test, "encoder norm '%.60s' is not offered", norm);
    if (!regularized && !plain && strcmp(norm, "power"))
        return golden_skip(test, "encoder norm '%.60s' is not offered", norm);
    GOLDEN_TRY(golden_set(test, made->options, "model.encoder_norm",
                          regularized ? "rbn"
                          : plain     ? "batch"
                                      : "pnv"));
    if (regularized) {
        GOLDEN_TRY(golden_set(test, made->options, "norm.rbn.penalty", penalty));
        GOLDEN_TRY(golden_set_number(test, made->options, "norm.rbn.lambda", mean));
        GOLDEN_TRY(golden_set_number(test, made->options, "norm.rbn.nu", var));
    }
    return set_list(test, made, common);
}

void *golden_download(const golden_case *test, const void *device, size_t count)
{
    void *values = golden_reals(test, NULL, count);
    nm_backend_download(test->backend, values, device, count * nm_dtype_bytes(test->backend->dtype));
    return values;
}

static void upload_at(const golden_case *test, void *device, size_t first, const double *values, size_t count)
{
    size_t unit = nm_dtype_bytes(test->backend->dtype);
    void *reals = golden_reals(test, values, count);
    nm_backend_upload(test->backend, (char *)device + first * unit, reals, count * unit);
    free(reals);
}

static golden_result load_piece(golden_case *test, golden_model *made, const golden_piece *piece)
{
    nm_param *param = nm_params_find(&made->model->params, piece->ours);
    golden_tensor tensor;
    NM_ASSERT(param &&
              piece->first + piece->count <= (size_t)param->tensor.rows * (size_t)param->tensor.cols);
    GOLDEN_TRY(golden_read(test, json_object_get(json_object_get(made->root, "params"), piece->source),
                           piece->source, &tensor));
    golden_result result = GOLDEN_PASSED;
    if (piece->source_first + piece->count > tensor.count)
        result =
            golden_fail(test, "%s has %zu numbers, too few for %s", piece->source, tensor.count, piece->ours);
    else
        upload_at(test, param->tensor.data, piece->first, tensor.data + piece->source_first, piece->count);
    golden_release(&tensor);
    return result;
}

static golden_result load_params(golden_case *test, golden_model *made)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(made->root, "params"), name, value)
    {
        bool known = false;
        for (size_t i = 0; i < made->n_pieces; i++)
            known |= !strcmp(made->pieces[i].source, name);
        if (!known)
            return golden_fail(test, "our model has no place for the parameter %.90s", name);
    }
    for (size_t i = 0; i < made->n_pieces; i++)
        GOLDEN_TRY(load_piece(test, made, &made->pieces[i]));
    return GOLDEN_PASSED;
}

static nm_norm *norm_of(const golden_model *made, const char *module, size_t length)
{
    for (size_t i = 0; i < made->n_places; i++)
        if (strlen(made->places[i].source) == length && !strncmp(made->places[i].source, module, length))
            for (size_t n = 0; n < made->model->params.n_norms; n++)
                if (!strcmp(made->model->params.norms[n]->site.name, made->places[i].ours))
                    return made->model->params.norms[n];
    return NULL;
}

golden_result golden_model_state(golden_case *test, const golden_model *made, const char *name,
                                 golden_state *state)
{
    const char *dot = strrchr(name, '.');
    nm_norm *norm = dot ? norm_of(made, name, (size_t)(dot - name)) : NULL;
    *state = (golden_state){0};
    for (int i = 0; norm && i < norm->shape.n_counters; i++)
        if (!strcmp(norm->shape.counters[i], dot + 1))
            state->counter = &norm->counters[i];
    for (int i = 0; norm && i < norm->shape.n_state; i++)
        if (!strcmp(norm->shape.state[i].name, dot + 1)) {
            state->vector = norm->state[i];
            state->length = norm->shape.state[i].length;
        }
    if (!state->vector && !state->counter)
        return golden_fail(test, "our model has no state %.100s", name);
    return GOLDEN_PASSED;
}

static golden_result load_state(golden_case *test, const golden_model *made)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(made->root, "init_state"), name, value)
    {
        golden_state ours;
        golden_tensor tensor;
        GOLDEN_TRY(golden_model_state(test, made, name, &ours));
        if (ours.counter) {
            GOLDEN_TRY(golden_counter(test, value, name, ours.counter));
            continue;
        }
        GOLDEN_TRY(golden_read(test, value, name, &tensor));
        bool fits = tensor.count == (size_t)ours.length;
        if (fits)
            upload_at(test, ours.vector, 0, tensor.data, tensor.count);
        golden_release(&tensor);
        if (!fits)
            return golden_fail(test, "init_state.%.100s: not %d numbers", name, ours.length);
    }
    return GOLDEN_PASSED;
}

static golden_result create(golden_case *test, golden_model *made)
{
    nm_error err = {0};
    double words = number_of(made, "vocab", 0);
    if (!(words >= 4 && words <= 1 << 20))
        return golden_fail(test, "config.vocab is missing or out of range");
    nm_model_sizes sizes = {
        .source = (int32_t)words, .target = (int32_t)words, .plan = {.warmup_updates = made->warmup_steps}};
    if (nm_model_create(&made->model, &nm_model_seq2seq, test->backend, made->options, &sizes, true, &err) !=
        NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_params_initialize(&made->model->params, 1); /* norms: initial values of their types */
    golden_map_names(made);
    GOLDEN_TRY(load_params(test, made));
    return load_state(test, made);
}

golden_result golden_model_build(golden_case *test, const json_t *root, golden_model *made)
{
    *made = (golden_model){.root = root, .config = json_object_get(root, "config")};
    const char *method = json_string_value(json_object_get(root, "method"));
    if (!method || strcmp(method, "encoder_decoder"))
        return golden_skip(test, "method '%.60s' is not offered", method ? method : "");
    made->tears = json_object_get(made->config, "scalenorm") != NULL;
    made->pad = (int32_t)number_of(made, "pad", -1);
    made->bos = (int32_t)number_of(made, "bos", -1);
    made->eos = (int32_t)number_of(made, "eos", -1);
    if (made->pad < 0 || made->eos < 0 || made->bos < 0)
        return golden_fail(test, "config lacks pad, bos or eos");
    made->options = nm_options_create();
    nm_model_options_add(made->options, &nm_model_seq2seq);
    nm_norm_options_add(made->options);
    GOLDEN_TRY(set_sizes(test, made));
    if (made->tears)
        GOLDEN_TRY(set_tears(test, made));
    else if (json_object_get(made->config, "other_norms"))
        GOLDEN_TRY(set_regularized(test, made));
    else
        GOLDEN_TRY(set_powernorm(test, made));
    return create(test, made);
}

void golden_model_release(golden_model *made)
{
    nm_model_free(made->model);
    if (made->options)
        nm_options_free(made->options);
    free(made->pieces);
    free(made->places);
    *made = (golden_model){0};
}
