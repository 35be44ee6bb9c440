/* Golden cases of family "model", method "tensorized_lm": the tensorized Transformer as published
 * (non-causal), with plain and adaptive softmax; losses of all tokens, and gradients of all parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden_model.h"
#include "model/lm.h"

typedef struct problem {
    nm_options *options;
    nm_model *model;
    nm_tape tape;
    int32_t n_seqs, length, *ids, *targets, *pos, *offsets;
} problem;

static golden_result set_number(golden_case *test, problem *p, const char *option, const char *key)
{
    return golden_set_number(test, p->options, option, golden_number(test, key, -1));
}

static golden_result set_cutoffs(golden_case *test, problem *p)
{
    const json_t *cutoffs = json_object_get(test->config, "cutoffs"), *cut;
    size_t index;
    char text[128] = "";
    json_array_foreach(cutoffs, index, cut) snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d",
                                                     index ? "," : "", (int)json_integer_value(cut));
    if (!*text)
        return GOLDEN_PASSED;
    GOLDEN_TRY(golden_set(test, p->options, "model.adaptive", "true"));
    return golden_set(test, p->options, "model.cutoffs", text);
}

static golden_result build(golden_case *test, problem *p)
{
    static const char *const fixed[][2] = {
        {"model.attention", "block-term"}, {"model.causal", "false"},     {"model.final_norm", "none"},
        {"model.positions", "none"},       {"model.dropout", "0"},        {"model.relu_dropout", "0"},
        {"model.embedding_dropout", "0"},  {"model.hidden_dropout", "0"}, {"model.norm", "layer"}};
    static const char *const sizes[][2] = {{"model.width", "d_model"},        {"model.ff", "d_inner"},
                                           {"model.core_width", "d_head"},    {"model.layers", "layers"},
                                           {"model.cores", "cores"},          {"model.context", "tgt_len"},
                                           {"norm.layer.epsilon", "norm_eps"}};
    nm_error err = {0};
    p->options = nm_options_create();
    nm_model_options_add(p->options, &nm_model_lm);
    nm_norm_options_add(p->options);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        GOLDEN_TRY(golden_set(test, p->options, fixed[i][0], fixed[i][1]));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        GOLDEN_TRY(set_number(test, p, sizes[i][0], sizes[i][1]));
    GOLDEN_TRY(
        golden_set(test, p->options, "model.norm_position", golden_flag(test, "pre_norm") ? "pre" : "post"));
    GOLDEN_TRY(set_cutoffs(test, p));
    int32_t words = golden_whole(test, "vocab", 0);
    if (golden_flag(test, "causal_mask") || !golden_flag(test, "tied") || words < 2)
        return golden_skip(test, "causal, untied or without a vocabulary: not what this runner knows");
    nm_model_sizes model_sizes = {.source = words, .target = words};
    if (nm_model_create(&p->model, &nm_model_lm, test->backend, p->options, &model_sizes, true, &err) !=
            NM_OK ||
        nm_tape_init(&p->tape, test->backend, (size_t)64 << 20, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_params_initialize(&p->model->params, 1);
    return GOLDEN_PASSED;
}

/* The name of a parameter of Norma in the source program; false: there is none. */
static bool source_name(const char *ours, char *source, size_t bytes)
{
    static const char *const whole[][2] = {{"embed.weight", "word_emb.emb_layers.0.weight"},
                                           {"output.bias", "crit.out_layers.0.bias"},
                                           {"output.cluster.weight", "crit.cluster_weight"},
                                           {"output.cluster.bias", "crit.cluster_bias"},
                                           {"lm.content.bias", "r_w_bias"},
                                           {"lm.place.bias", "r_r_bias"}};
    static const char *const parts[][2] = {
        {"self.norm.", "dec_attn.layer_norm."}, {"self.core", "dec_attn.core_value"},
        {"self.qkv.", "dec_attn.qkv_net."},     {"self.place.", "dec_attn.r_net."},
        {"self.out.", "dec_attn.o_net."},       {"ffn.norm.", "pos_ff.layer_norm."},
        {"ffn.in.", "pos_ff.CoreNet.0."},       {"ffn.out.", "pos_ff.CoreNet.3."}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!strcmp(ours, whole[i][0])) {
            snprintf(source, bytes, "%s", whole[i][1]);
            return true;
        }
    int layer, used = 0;
    if (sscanf(ours, "lm.%d.%n", &layer, &used) != 1 || !used)
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t length = strlen(parts[i][0]);
        if (!strncmp(ours + used, parts[i][0], length)) {
            snprintf(source, bytes, "layers.%d.%s%s", layer, parts[i][1], ours + used + length);
            return true;
        }
    }
    return false;
}

/* The values of a parameter of the source program in Norma's order: its o_net maps pairs to features, Norma's
 * is the transpose. */
static golden_result read_ours(golden_case *test, const char *group, const nm_tensor *param,
                               golden_tensor *tensor)
{
    char name[128];
    *tensor = (golden_tensor){0};
    if (!source_name(param->name, name, sizeof name))
        return golden_fail(test, "the source has no parameter %s", param->name);
    GOLDEN_TRY(golden_read(test, json_object_get(json_object_get(test->root, group), name), name, tensor));
    size_t rows = (size_t)param->rows, cols = (size_t)param->cols;
    if (tensor->count != rows * cols)
        return golden_fail(test, "%s: %zu numbers for our %zu x %zu", name, tensor->count, rows, cols);
    if (!strstr(name, "o_net"))
        return GOLDEN_PASSED;
    double *turned = nm_allocate(tensor->count * sizeof *turned);
    for (size_t i = 0; i < tensor->count; i++)
        turned[i] = tensor->data[i % cols * rows + i / cols];
    free(tensor->data);
    tensor->data = turned;
    return GOLDEN_PASSED;
}

static golden_result load(golden_case *test, problem *p)
{
    nm_params *params = &p->model->params;
    if (params->n != json_object_size(json_object_get(test->root, "params")))
        return golden_fail(test, "the source has another number of parameters than our %zu", params->n);
    for (size_t i = 0; i < params->n; i++) {
        nm_tensor *t = &params->list[i]->tensor;
        golden_tensor values;
        golden_result result = read_ours(test, "params", t, &values);
        if (result == GOLDEN_PASSED) {
            void *reals = golden_reals(test, values.data, values.count);
            nm_backend_upload(test->backend, t->data, reals,
                              values.count * nm_dtype_bytes(test->backend->dtype));
            free(reals);
        }
        golden_release(&values);
        GOLDEN_TRY(result);
    }
    return GOLDEN_PASSED;
}

/* [time, batch] to concatenated segments */
static golden_result read_ids(golden_case *test, problem *p, const char *key, int32_t **ids)
{
    golden_tensor tensor;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, key), key, &tensor));
    golden_result result = GOLDEN_PASSED;
    int32_t n = p->n_seqs * p->length, words = p->model->target_size;
    if (tensor.count != (size_t)n)
        result = golden_fail(test, "%s: not %d ids", key, n);
    *ids = nm_allocate(((size_t)n + 1) * sizeof **ids);
    for (int32_t i = 0; result == GOLDEN_PASSED && i < n; i++) {
        double id = tensor.data[i % p->length * p->n_seqs + i / p->length];
        if (!(id >= 0 && id < words))
            result = golden_fail(test, "%s[%d] is no word", key, i);
        else
            (*ids)[i] = (int32_t)id;
    }
    golden_release(&tensor);
    return result;
}

static golden_result read_batch(golden_case *test, problem *p)
{
    p->n_seqs = golden_whole(test, "batch", 0);
    p->length = golden_whole(test, "tgt_len", 0);
    if (p->n_seqs < 1 || p->length < 1 || p->n_seqs > 1000 || p->length > 1000)
        return golden_fail(test, "batch or tgt_len out of range");
    p->pos = nm_allocate((size_t)(p->n_seqs * p->length) * sizeof *p->pos);
    p->offsets = nm_allocate(((size_t)p->n_seqs + 1) * sizeof *p->offsets);
    for (int32_t i = 0; i < p->n_seqs * p->length; i++)
        p->pos[i] = i % p->length;
    for (int32_t s = 0; s <= p->n_seqs; s++)
        p->offsets[s] = s * p->length;
    GOLDEN_TRY(read_ids(test, p, "input", &p->ids));
    return read_ids(test, p, "target", &p->targets);
}

static nm_tensor *hidden_of(problem *p, bool training)
{
    int32_t tokens = p->n_seqs * p->length;
    nm_batch batch = {.n = p->n_seqs,
                      .target = {p->n_seqs, tokens, p->length, p->offsets, NULL},
                      .target_in = p->ids,
                      .target_out = p->targets,
                      .target_pos = p->pos};
    nm_tape_start(&p->tape, training, 1, 0);
    return nm_lm_hidden(p->model, &p->tape, &batch);
}

static golden_result compare_one(golden_case *test, const char *what, double got, double want)
{
    void *real = golden_reals(test, &got, 1);
    golden_result result = golden_compare(test, what, real, &want, 1, test->value_tolerance);
    free(real);
    return result;
}

/* The loss of every token separately. */
static golden_result compare_tokens(golden_case *test, problem *p)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "loss_per_token"), "loss_per_token", &want));
    nm_tensor *hidden = hidden_of(p, false);
    golden_result result = GOLDEN_PASSED;
    for (int32_t i = 0; result == GOLDEN_PASSED && i < p->n_seqs * p->length; i++) {
        nm_tensor row = {.data = (char *)hidden->data +
                                 (size_t)i * (size_t)hidden->cols * nm_dtype_bytes(test->backend->dtype),
                         .rows = 1,
                         .cols = hidden->cols};
        nm_loss_spec spec = {.targets = p->targets + i};
        double sums[2];
        nm_backend_download(test->backend, sums, nm_lm_loss(p->model, &p->tape, &row, &spec), sizeof sums);
        result = compare_one(test, "loss_per_token", sums[1],
                             want.data[i % p->length * p->n_seqs + i / p->length]);
    }
    golden_release(&want);
    return result;
}

static golden_result compare_grads(golden_case *test, problem *p)
{
    nm_params *params = &p->model->params;
    for (size_t i = 0; i < params->n; i++) {
        nm_tensor *t = &params->list[i]->tensor;
        golden_tensor want;
        golden_result result = read_ours(test, "dparams_of_loss_mean", t, &want);
        void *got = golden_reals(test, NULL, want.count);
        if (result == GOLDEN_PASSED) {
            nm_backend_download(test->backend, got, t->grad,
                                want.count * nm_dtype_bytes(test->backend->dtype));
            result = golden_compare(test, t->name, got, want.data, want.count, test->gradient_tolerance);
        }
        free(got);
        golden_release(&want);
        GOLDEN_TRY(result);
    }
    return GOLDEN_PASSED;
}

static golden_result solve(golden_case *test, problem *p)
{
    GOLDEN_TRY(build(test, p));
    GOLDEN_TRY(load(test, p));
    GOLDEN_TRY(read_batch(test, p));
    GOLDEN_TRY(compare_tokens(test, p));
    nm_params *params = &p->model->params;
    double tokens = p->n_seqs * p->length, sums[2];
    nm_error err = {0};
    nm_backend_zero(test->backend, params->grads, params->n_elements * nm_dtype_bytes(test->backend->dtype));
    p->tape.grad_scale = 1 / tokens;
    nm_loss_spec spec = {.targets = p->targets};
    const double *device = nm_lm_loss(p->model, &p->tape, hidden_of(p, true), &spec);
    if (!device || nm_tape_backward(&p->tape, &err) != NM_OK)
        return golden_fail(test, "out of memory");
    nm_backend_download(test->backend, sums, device, sizeof sums);
    double mean = json_number_value(json_object_get(test->root, "loss_mean"));
    GOLDEN_TRY(compare_one(test, "loss_mean", sums[0] / tokens, mean));
    return compare_grads(test, p);
}

golden_result golden_lm_run(golden_case *test)
{
    problem p = {0};
    golden_result result = solve(test, &p);
    if (p.tape.backend)
        nm_tape_release(&p.tape);
    nm_model_free(p.model);
    if (p.options)
        nm_options_free(p.options);
    free(p.ids);
    free(p.targets);
    free(p.pos);
    free(p.offsets);
    return result;
}
