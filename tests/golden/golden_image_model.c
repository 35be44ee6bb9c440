/* Golden cases of family "image_model": logits, mean loss, gradients of all parameters and of the input,
 * running values and inference of small ResNets and Vision Transformers; method "resnet_training": losses and
 * weights of several updates by SGD. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden_image.h"
#include "golden_model.h"
#include "model/image_model.h"

typedef struct problem {
    nm_image_sizes size;
    nm_options *options;
    nm_model *model;
    nm_tape tape;
    int32_t images, classes, blocks[NM_RESNET_MAX_STAGES];
    void *velocity; /* device; of SGD */
} problem;

/* A parameter or module of the source: its name here, and the rows of the parameter that it fills. */
typedef struct place {
    char ours[96];
    int32_t part, parts; /* of q, k, v; 0 of 1: the whole */
} place;

static golden_result resnet_place(golden_case *test, const problem *p, const char *name, place *at)
{
    static const char *const parts[][2] = {
        {"conv1.weight", "conv1.weight"}, {"conv2.weight", "conv2.weight"},
        {"bn1.", "conv1.norm."},          {"bn2.", "conv2.norm."},
        {"downsample.0.", "shortcut."},   {"downsample.1.", "shortcut.norm."}};
    int stage, block, used = 0;
    if (!strcmp(name, "conv1.weight") || !strncmp(name, "bn1.", 4)) {
        snprintf(at->ours, sizeof at->ours, "res.stem.%s%s", *name == 'b' ? "norm." : "",
                 strchr(name, '.') + 1);
        return GOLDEN_PASSED;
    }
    if (!strncmp(name, "fc.", 3)) {
        snprintf(at->ours, sizeof at->ours, "output.%s", name + 3);
        return GOLDEN_PASSED;
    }
    if (sscanf(name, "layer%d.%d.%n", &stage, &block, &used) < 2 || !used || stage < 1 ||
        stage > NM_RESNET_MAX_STAGES)
        return golden_fail(test, "%.90s: unknown parameter", name);
    for (int s = 1; s < stage; s++)
        block += p->blocks[s - 1];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(name + used, parts[i][0], strlen(parts[i][0]))) {
            snprintf(at->ours, sizeof at->ours, "res.%d.%s%s", block, parts[i][1],
                     name + used + strlen(parts[i][0]));
            return GOLDEN_PASSED;
        }
    return golden_fail(test, "%.90s: unknown parameter", name);
}

static golden_result vit_place(golden_case *test, const char *name, place *at)
{
    static const char *const whole[][2] = {{"pos_embed", "positions.weight"},
                                           {"cls_token", "token.weight"},
                                           {"patch_embed.", "patches."},
                                           {"final_norm.", "enc.final.norm."},
                                           {"head.", "output."}};
    static const char *const inner[][2] = {{"attn.q_proj.", "self.qkv."}, {"attn.k_proj.", "self.qkv."},
                                           {"attn.v_proj.", "self.qkv."}, {"attn.out_proj.", "self.out."},
                                           {"attn_norm.", "self.norm."},  {"ffn_norm.", "ffn.norm."},
                                           {"ffn.fc1.", "ffn.in."},       {"ffn.fc2.", "ffn.out."}};
    int layer, used = 0;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!strncmp(name, whole[i][0], strlen(whole[i][0]))) {
            snprintf(at->ours, sizeof at->ours, "%s%s", whole[i][1], name + strlen(whole[i][0]));
            return GOLDEN_PASSED;
        }
    if (sscanf(name, "layers.%d.%n", &layer, &used) < 1 || !used)
        return golden_fail(test, "%.90s: unknown parameter", name);
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (!strncmp(name + used, inner[i][0], strlen(inner[i][0]))) {
            snprintf(at->ours, sizeof at->ours, "enc.%d.%s%s", layer, inner[i][1],
                     name + used + strlen(inner[i][0]));
            if (i < 3) {
                at->part = (int32_t)i;
                at->parts = 3;
            }
            return GOLDEN_PASSED;
        }
    return golden_fail(test, "%.90s: unknown parameter", name);
}

static golden_result place_of(golden_case *test, const problem *p, const char *name, place *at)
{
    *at = (place){.parts = 1};
    return !strcmp(test->method, "vit") ? vit_place(test, name, at) : resnet_place(test, p, name, at);
}

/* The device memory of a parameter, of its gradient, or of a running value. */
enum { VALUE, GRADIENT, STATE };

static golden_result find_memory(golden_case *test, const problem *p, const char *name, int which,
                                 char **memory, size_t *count)
{
    place at;
    GOLDEN_TRY(place_of(test, p, name, &at));
    const size_t unit = nm_dtype_bytes(test->backend->dtype);
    if (which != STATE) {
        const nm_param *param = nm_params_find(&p->model->params, at.ours);
        if (!param)
            return golden_fail(test, "our model has no %s", at.ours);
        *count = (size_t)param->tensor.rows * (size_t)param->tensor.cols / (size_t)at.parts;
        *memory = (char *)(which == VALUE ? param->tensor.data : param->tensor.grad) +
                  *count * (size_t)at.part * unit;
        return GOLDEN_PASSED;
    }
    const char *dot = strrchr(at.ours, '.');
    for (size_t n = 0; dot && n < p->model->params.n_norms; n++) {
        nm_norm *norm = p->model->params.norms[n];
        for (int i = 0; i < norm->shape.n_state; i++)
            if (!strncmp(norm->site.name, at.ours, (size_t)(dot - at.ours)) &&
                strlen(norm->site.name) == (size_t)(dot - at.ours) &&
                !strcmp(norm->shape.state[i].name, dot + 1)) {
                *memory = norm->state[i];
                *count = (size_t)norm->shape.state[i].length;
                return GOLDEN_PASSED;
            }
    }
    return golden_fail(test, "our model has no state %s", at.ours);
}

/* Writes all tensors of an object to the model, or compares them with it (got = factor expected). */
static golden_result each(golden_case *test, const problem *p, const char *key, int which, bool write,
                          double factor)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(test->root, key), name, value)
    {
        golden_tensor t;
        char *memory = NULL, what[128];
        size_t count = 0;
        snprintf(what, sizeof what, "%s.%.90s", key, name);
        GOLDEN_TRY(find_memory(test, p, name, which, &memory, &count));
        GOLDEN_TRY(golden_read(test, value, what, &t));
        if (t.rank == 4)
            golden_turn_filters(&t, false);
        golden_result result = GOLDEN_PASSED;
        for (size_t i = 0; i < t.count; i++)
            t.data[i] *= factor;
        if (t.count != count)
            result = golden_fail(test, "%s: %zu numbers instead of %zu", what, t.count, count);
        else if (write)
            nm_backend_write(test->backend, memory, t.data, count);
        else {
            void *got = golden_download(test, memory, count);
            result = golden_compare(test, what, got, t.data, count, test->gradient_tolerance);
            free(got);
        }
        golden_release(&t);
        GOLDEN_TRY(result);
    }
    return GOLDEN_PASSED;
}

static golden_result set_list(golden_case *test, problem *p, const char *key, const char *path,
                              int32_t *values)
{
    const json_t *list = json_object_get(test->config, key);
    char text[128] = "";
    if (!json_array_size(list) || json_array_size(list) > NM_RESNET_MAX_STAGES)
        return golden_fail(test, "config.%s is no list of stages", key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t value = (int32_t)json_integer_value(json_array_get(list, i));
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? "," : "", value);
        if (values)
            values[i] = value;
    }
    return path ? golden_set(test, p->options, path, text) : GOLDEN_PASSED;
}

static golden_result configure_resnet(golden_case *test, problem *p)
{
    int32_t strides[NM_RESNET_MAX_STAGES] = {0};
    const bool both = !strcmp(golden_text(test, "pad_channels", ""), "both");
    const bool padded = !strcmp(golden_text(test, "shortcut", "conv"), "pad");
    GOLDEN_TRY(golden_set(test, p->options, "model.network", "resnet"));
    GOLDEN_TRY(set_list(test, p, "widths", "model.widths", NULL));
    GOLDEN_TRY(set_list(test, p, "blocks", "model.blocks", p->blocks));
    GOLDEN_TRY(set_list(test, p, "strides", NULL, strides));
    for (int s = 0; s < NM_RESNET_MAX_STAGES && strides[s]; s++)
        if (strides[s] != (s ? 2 : 1))
            return golden_skip(test, "stride %d of stage %d", strides[s], s + 1);
    return golden_set(test, p->options, "model.shortcut", !padded ? "conv" : both ? "pad-both" : "pad");
}

static golden_result configure_vit(golden_case *test, problem *p)
{
    static const char *const numbers[][2] = {{"model.width", "d"},
                                             {"model.ff", "ff"},
                                             {"model.heads", "heads"},
                                             {"model.layers", "layers"},
                                             {"model.patch", "patch"}};
    const char *activation = golden_text(test, "activation", "gelu");
    GOLDEN_TRY(golden_set(test, p->options, "model.network", "vit"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        GOLDEN_TRY(golden_set_number(test, p->options, numbers[i][0], golden_whole(test, numbers[i][1], -1)));
    GOLDEN_TRY(golden_set(test, p->options, "model.activation",
                          strcmp(activation, "gelu_tanh") ? activation : "gelu-tanh"));
    GOLDEN_TRY(golden_set(test, p->options, "model.norm_position", golden_text(test, "site", "pre")));
    if (!golden_flag(test, "final_norm") && strcmp(golden_text(test, "site", "pre"), "post"))
        GOLDEN_TRY(golden_set(test, p->options, "model.final_norm", "none"));
    return golden_set(test, p->options, "model.pooling",
                      strcmp(golden_text(test, "pooling", "mean"), "mean") ? "token" : "mean");
}

static golden_result configure(golden_case *test, problem *p)
{
    const char *norm = golden_text(test, "norm", "batch");
    const bool grouped = !strncmp(norm, "group", 5);
    const double eps = golden_number(test, "eps", 1e-5);
    p->options = nm_options_create();
    nm_model_options_add(p->options, &nm_model_image);
    nm_norm_options_add(p->options);
    GOLDEN_TRY(golden_set(test, p->options, "model.preset", "tiny"));
    GOLDEN_TRY(!strcmp(test->method, "vit") ? configure_vit(test, p) : configure_resnet(test, p));
    GOLDEN_TRY(golden_set(test, p->options, "model.norm", grouped ? "group2d" : norm));
    if (grouped) {
        GOLDEN_TRY(
            golden_set_number(test, p->options, "norm.group2d.groups", golden_whole(test, "groups", 1)));
        return golden_set_number(test, p->options, "norm.group2d.epsilon", eps);
    }
    GOLDEN_TRY(golden_set_number(test, p->options, "norm.layer.epsilon", eps));
    GOLDEN_TRY(golden_set_number(test, p->options, "norm.batch.decay",
                                 1 - golden_number(test, "momentum_new", 0.1)));
    return golden_set_number(test, p->options, "norm.batch.epsilon", eps);
}

static golden_result build(golden_case *test, problem *p)
{
    nm_error err = {0};
    p->images = golden_whole(test, "images", 0);
    p->classes = golden_whole(test, "classes", 0);
    p->size = (nm_image_sizes){golden_whole(test, "height", 0), golden_whole(test, "width", 0), 3};
    if (p->images < 1 || p->classes < 1 || p->size.height < 1 || p->size.width < 1)
        return golden_fail(test, "config: images, classes, height or width");
    GOLDEN_TRY(configure(test, p));
    const nm_model_sizes sizes = {.target = p->classes, .more = &p->size};
    if (nm_model_create(&p->model, &nm_model_image, test->backend, p->options, &sizes, true, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_params_initialize(&p->model->params, 1);
    size_t given = json_object_size(json_object_get(test->root, "params")), ours = p->model->params.n;
    const int32_t layers = !strcmp(test->method, "vit") ? golden_whole(test, "layers", 0) : 0;
    if (given != ours + 4 * (size_t)layers) /* q, k and v are one weight and one bias */
        return golden_fail(test, "%zu parameters, our model has %zu", given, ours);
    GOLDEN_TRY(each(test, p, "params", VALUE, true, 1));
    return each(test, p, "state", STATE, true, 1);
}

static golden_result compare_values(golden_case *test, const char *what, const json_t *value,
                                    const void *device, double factor, double tolerance)
{
    golden_tensor t;
    GOLDEN_TRY(golden_read(test, value, what, &t));
    for (size_t i = 0; i < t.count; i++)
        t.data[i] *= factor;
    void *got = golden_download(test, device, t.count);
    golden_result result = golden_compare(test, what, got, t.data, t.count, tolerance);
    free(got);
    golden_release(&t);
    return result;
}

/* The hidden vectors of the images `input`; *x: the input. */
static golden_result run_model(golden_case *test, problem *p, const json_t *input, bool training,
                               nm_tensor **x, nm_model_output *out)
{
    golden_tensor t;
    const int32_t rows = p->images * p->size.height * p->size.width;
    GOLDEN_TRY(golden_read(test, input, "input", &t));
    if (t.count != (size_t)rows * 3) {
        golden_release(&t);
        return golden_fail(test, "input: %zu numbers", t.count);
    }
    nm_tape_start(&p->tape, training, 1, 0);
    *x = nm_tape_tensor(&p->tape, rows, 3);
    nm_backend_write(test->backend, (*x)->data, t.data, t.count);
    golden_release(&t);
    *out = nm_image_output(p->model, &p->tape, *x, p->images);
    return GOLDEN_PASSED;
}

static golden_result compare_logits(golden_case *test, problem *p, const char *key,
                                    const nm_model_output *out)
{
    nm_tensor *logits = nm_tape_tensor(&p->tape, p->images, p->classes);
    NM_CALL(test->backend, linear, .x = nm_tensor_mat(out->hidden), .weight = nm_tensor_mat(out->weight),
            .bias = out->bias->data, .y = nm_tensor_mat(logits));
    return compare_values(test, key, json_object_get(test->root, key), logits->data, 1,
                          test->value_tolerance);
}

static golden_result backward(golden_case *test, problem *p, const nm_model_output *out, const json_t *root)
{
    golden_tensor t;
    nm_error err = {0};
    double sums[2], mean, want = json_number_value(json_object_get(root, "loss_mean"));
    int32_t *labels = nm_tape_host(&p->tape, (size_t)p->images * sizeof *labels);
    GOLDEN_TRY(golden_read(test, json_object_get(root, "label"), "label", &t));
    for (size_t i = 0; i < t.count && i < (size_t)p->images; i++)
        labels[i] = (int32_t)t.data[i];
    golden_release(&t);
    const nm_loss_spec spec = {.targets = labels};
    double *loss = nm_softmax_loss_of(&p->tape, out->hidden, out->weight, out->bias, &spec);
    if (!loss || nm_tape_backward(&p->tape, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    nm_backend_download(test->backend, sums, loss, sizeof sums);
    mean = sums[0] / p->images;
    void *got = golden_reals(test, &mean, 1);
    golden_result result = golden_compare(test, "loss_mean", got, &want, 1, test->value_tolerance);
    free(got);
    return result;
}

static golden_result infer(golden_case *test, problem *p, const json_t *input)
{
    nm_tensor *x;
    nm_model_output out;
    GOLDEN_TRY(run_model(test, p, input, false, &x, &out));
    return compare_logits(test, p, "eval_logits", &out);
}

static golden_result run_once(golden_case *test, problem *p)
{
    const json_t *input = json_object_get(test->root, "input");
    nm_tensor *x;
    nm_model_output out;
    GOLDEN_TRY(run_model(test, p, input, true, &x, &out));
    GOLDEN_TRY(compare_logits(test, p, "logits", &out));
    GOLDEN_TRY(backward(test, p, &out, test->root));
    GOLDEN_TRY(each(test, p, "dparams_of_loss_mean", GRADIENT, false, p->images));
    GOLDEN_TRY(compare_values(test, "dinput_of_loss_mean", json_object_get(test->root, "dinput_of_loss_mean"),
                              x->grad, p->images, test->gradient_tolerance));
    nm_params_update_norms(&p->model->params, 1);
    GOLDEN_TRY(each(test, p, "state_after", STATE, false, 1));
    return infer(test, p, input);
}

static golden_result update(golden_case *test, problem *p, const json_t *step)
{
    nm_params *params = &p->model->params;
    nm_tensor *x;
    nm_model_output out;
    nm_params_zero_grads(params, params->grads);
    GOLDEN_TRY(run_model(test, p, json_object_get(step, "input"), true, &x, &out));
    GOLDEN_TRY(backward(test, p, &out, step));
    nm_params_update_norms(params, 1);
    NM_CALL(test->backend, sgd, .lr = json_number_value(json_object_get(step, "lr")),
            .momentum = golden_number(test, "momentum", 0),
            .weight_decay = golden_number(test, "weight_decay", 0), .grad_scale = 1.0 / p->images,
            .n = params->n_elements, .g = params->grads, .p = params->values, .v = p->velocity);
    return GOLDEN_PASSED;
}

static golden_result train(golden_case *test, problem *p)
{
    const json_t *steps = json_object_get(test->root, "steps"), *step, *last = NULL;
    nm_error err = {0};
    size_t index;
    if (strcmp(golden_text(test, "optimizer", "sgd"), "sgd"))
        return golden_skip(test, "another optimizer than SGD");
    GOLDEN_TRY(golden_plain_optimizer(test));
    if (nm_backend_alloc(test->backend, p->model->params.n_elements * nm_dtype_bytes(test->backend->dtype),
                         &p->velocity, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    if (test->single)
        test->value_tolerance = 2e-3;
    json_array_foreach(steps, index, step)
    {
        GOLDEN_TRY(update(test, p, step));
        last = step;
    }
    if (!last)
        return golden_fail(test, "no steps");
    GOLDEN_TRY(each(test, p, "params_after", VALUE, false, 1));
    GOLDEN_TRY(each(test, p, "state_after", STATE, false, 1));
    return infer(test, p, json_object_get(last, "input"));
}

static golden_result run(golden_case *test)
{
    problem p = {0};
    if (strcmp(test->method, "resnet") && strcmp(test->method, "resnet_training") &&
        strcmp(test->method, "vit"))
        return golden_skip(test, "method '%.60s' is unknown", test->method);
    nm_tape_init_growing(&p.tape, test->backend);
    golden_result result = build(test, &p);
    if (result == GOLDEN_PASSED)
        result = !strcmp(test->method, "resnet_training") ? train(test, &p) : run_once(test, &p);
    nm_tape_release(&p.tape);
    if (p.velocity)
        nm_backend_dealloc(test->backend, p.velocity);
    nm_model_free(p.model);
    if (p.options)
        nm_options_free(p.options);
    return result;
}

const golden_family golden_image_model = {.name = "image_model", .run = run, .computes = true};
