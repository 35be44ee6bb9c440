/* Golden cases of method "text_classifier" (family "model"): logits, mean loss and the gradient of every
 * parameter of a one-layer post-norm classifier with learned positions. The source program has separate q, k
 * and v as x W; in Norma they are rows of one matrix. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden_model.h"
#include "model/classifier_model.h"

enum { MAX_TEXTS = 64 };

/* A tensor of the source and the elements of Norma's parameter that it fills, beginning at `first`. */
typedef struct place {
    const char *source, *ours;
    int part; /* of the stacked projections: q, k, v */
    bool transposed;
} place;

static const place places[] = {
    {"embedding.weight", "embed.weight", 0, false},
    {"positional_encoding.weight", "positions.weight", 0, false},
    {"encoder_layer.self_attn.q_proj_weight", "enc.0.self.qkv.weight", 0, true},
    {"encoder_layer.self_attn.k_proj_weight", "enc.0.self.qkv.weight", 1, true},
    {"encoder_layer.self_attn.v_proj_weight", "enc.0.self.qkv.weight", 2, true},
    {"encoder_layer.self_attn.in_proj_bias", "enc.0.self.qkv.bias", 0, false},
    {"encoder_layer.self_attn.out_proj.weight", "enc.0.self.out.weight", 0, false},
    {"encoder_layer.self_attn.out_proj.bias", "enc.0.self.out.bias", 0, false},
    {"encoder_layer.norm1.weight", "enc.0.self.norm.weight", 0, false},
    {"encoder_layer.norm1.bias", "enc.0.self.norm.bias", 0, false},
    {"encoder_layer.linear1.weight", "enc.0.ffn.in.weight", 0, false},
    {"encoder_layer.linear1.bias", "enc.0.ffn.in.bias", 0, false},
    {"encoder_layer.linear2.weight", "enc.0.ffn.out.weight", 0, false},
    {"encoder_layer.linear2.bias", "enc.0.ffn.out.bias", 0, false},
    {"encoder_layer.norm2.weight", "enc.0.ffn.norm.weight", 0, false},
    {"encoder_layer.norm2.bias", "enc.0.ffn.norm.bias", 0, false},
    {"fc.weight", "output.weight", 0, false},
    {"fc.bias", "output.bias", 0, false},
};
enum { N_PLACES = sizeof places / sizeof *places };

typedef struct problem {
    nm_options *options;
    nm_model *model;
    nm_tape tape;
    int32_t *ids, *pos, *labels, offsets[MAX_TEXTS + 1], target_offsets[MAX_TEXTS + 1];
    int32_t texts, length, classes;
} problem;

static void transpose(golden_tensor *tensor)
{
    size_t rows = (size_t)tensor->shape[0], cols = (size_t)tensor->shape[1];
    double *turned = nm_allocate(tensor->count * sizeof *turned);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            turned[c * rows + r] = tensor->data[r * cols + c];
    free(tensor->data);
    tensor->data = turned;
}

/* The tensor of the file in Norma's layout, and its first element there. */
static golden_result read_place(golden_case *test, const problem *p, const json_t *all, const place *at,
                                golden_tensor *tensor, size_t *first, const nm_param **param)
{
    *param = nm_params_find(&p->model->params, at->ours);
    if (!*param)
        return golden_fail(test, "our model has no %s", at->ours);
    size_t rows = (size_t)(*param)->tensor.rows, width = (size_t)(*param)->tensor.cols;
    size_t keys = (size_t)golden_whole(test, "heads", 0) * (size_t)golden_whole(test, "kdim", 0);
    *first = keys * width * (size_t)at->part;
    if (at->transposed)
        rows = at->part < 2 ? keys : rows - 2 * keys;
    GOLDEN_TRY(golden_read(test, json_object_get(all, at->source), at->source, tensor));
    if ((at->transposed && tensor->rank != 2) || tensor->count != rows * width) {
        golden_release(tensor);
        return golden_fail(test, "%s: unexpected shape", at->source);
    }
    if (at->transposed)
        transpose(tensor);
    return GOLDEN_PASSED;
}

static golden_result load_params(golden_case *test, problem *p)
{
    const json_t *params = json_object_get(test->root, "params");
    size_t unit = nm_dtype_bytes(test->backend->dtype);
    if (json_object_size(params) != N_PLACES)
        return golden_fail(test, "%zu parameters instead of %d", json_object_size(params), N_PLACES);
    for (size_t i = 0; i < N_PLACES; i++) {
        golden_tensor tensor;
        size_t first;
        const nm_param *param;
        GOLDEN_TRY(read_place(test, p, params, &places[i], &tensor, &first, &param));
        void *reals = golden_reals(test, tensor.data, tensor.count);
        nm_backend_upload(test->backend, (char *)param->tensor.data + first * unit, reals,
                          tensor.count * unit);
        free(reals);
        golden_release(&tensor);
    }
    return GOLDEN_PASSED;
}

static golden_result compare_grads(golden_case *test, const problem *p)
{
    const json_t *grads = json_object_get(test->root, "dparams_of_loss_mean");
    size_t unit = nm_dtype_bytes(test->backend->dtype);
    for (size_t i = 0; i < N_PLACES; i++) {
        golden_tensor tensor;
        size_t first;
        const nm_param *param;
        GOLDEN_TRY(read_place(test, p, grads, &places[i], &tensor, &first, &param));
        void *got = golden_download(test, (char *)param->tensor.grad + first * unit, tensor.count);
        golden_result result =
            golden_compare(test, places[i].source, got, tensor.data, tensor.count, test->gradient_tolerance);
        free(got);
        golden_release(&tensor);
        GOLDEN_TRY(result);
    }
    return GOLDEN_PASSED;
}

static golden_result set_number(golden_case *test, problem *p, const char *path, const char *key)
{
    nm_error err = {0};
    char text[32];
    snprintf(text, sizeof text, "%d", golden_whole(test, key, -1));
    return nm_options_set(p->options, path, text, NM_ORIGIN_COMMAND, &err) == NM_OK
               ? GOLDEN_PASSED
               : golden_fail(test, "%s", err.text);
}

static golden_result configure(golden_case *test, problem *p)
{
    static const char *const numbers[][2] = {
        {"model.width", "d"}, {"model.ff", "ff"}, {"model.heads", "heads"}, {"model.key_size", "kdim"}};
    nm_error err = {0};
    p->options = nm_options_create();
    nm_model_options_add(p->options, &nm_model_classifier);
    nm_norm_options_add(p->options);
    double scale = golden_number(test, "query_scale", 0), value_size = golden_number(test, "vdim", 0);
    if (strcmp(golden_text(test, "positions", ""), "learned table") ||
        strcmp(golden_text(test, "pooling", ""), "first position") ||
        !(fabs(scale - 1 / sqrt(value_size)) < 1e-12))
        return golden_skip(test, "other positions, pooling or query scale than ours");
    GOLDEN_TRY(nm_options_set(p->options, "model.preset", "tiny", NM_ORIGIN_COMMAND, &err) == NM_OK &&
                       nm_options_set(p->options, "model.positions", "learned", NM_ORIGIN_COMMAND, &err) ==
                           NM_OK
                   ? GOLDEN_PASSED
                   : golden_fail(test, "%s", err.text));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        GOLDEN_TRY(set_number(test, p, numbers[i][0], numbers[i][1]));
    /* below the option's minimum: the table of the case has one position per token of a text */
    ((nm_classifier_model_config *)nm_options_find(p->options, "model"))->max_positions =
        golden_whole(test, "max_len", 0);
    return GOLDEN_PASSED;
}

static golden_result build(golden_case *test, problem *p)
{
    nm_error err = {0};
    GOLDEN_TRY(configure(test, p));
    p->classes = golden_whole(test, "classes", 0);
    nm_model_sizes sizes = {.source = golden_whole(test, "vocab", 0), .target = p->classes};
    if (sizes.source < 1 || sizes.source > 1 << 20 || p->classes < 1 || p->classes > 1 << 20)
        return golden_fail(test, "config.vocab or config.classes is missing or out of range");
    if (nm_model_create(&p->model, &nm_model_classifier, test->backend, p->options, &sizes, true, &err) !=
            NM_OK ||
        nm_tape_init(&p->tape, test->backend, (size_t)64 << 20, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    return load_params(test, p);
}

static golden_result read_texts(golden_case *test, problem *p)
{
    golden_tensor ids, labels = {0};
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "input"), "input", &ids));
    golden_result result = golden_read(test, json_object_get(test->root, "label"), "label", &labels);
    if (result == GOLDEN_PASSED &&
        (ids.rank != 2 || ids.shape[0] > MAX_TEXTS || labels.count != (size_t)ids.shape[0]))
        result = golden_fail(test, "input or label: unexpected shape");
    if (result == GOLDEN_PASSED) {
        p->texts = (int32_t)ids.shape[0];
        p->length = (int32_t)ids.shape[1];
        p->ids = nm_allocate(ids.count * sizeof *p->ids);
        p->pos = nm_allocate(ids.count * sizeof *p->pos);
        p->labels = nm_allocate(labels.count * sizeof *p->labels);
        for (int32_t i = 0; i < (int32_t)ids.count; i++) {
            p->ids[i] = (int32_t)ids.data[i];
            p->pos[i] = i % p->length;
        }
        for (int32_t t = 0; t <= p->texts; t++) {
            p->offsets[t] = t * p->length;
            p->target_offsets[t] = t;
            if (t < p->texts)
                p->labels[t] = (int32_t)labels.data[t];
        }
    }
    golden_release(&ids);
    golden_release(&labels);
    return result;
}

static golden_result compare_logits(golden_case *test, const nm_tensor *logits)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "logits"), "logits", &want));
    golden_result result = GOLDEN_PASSED;
    if (want.count != (size_t)logits->rows * (size_t)logits->cols) {
        result = golden_fail(test, "logits: unexpected shape");
    } else {
        void *got = golden_download(test, logits->data, want.count);
        result = golden_compare(test, "logits", got, want.data, want.count, test->value_tolerance);
        free(got);
    }
    golden_release(&want);
    return result;
}

static golden_result solve(golden_case *test, problem *p)
{
    nm_backend *b = test->backend;
    nm_params *params = &p->model->params;
    nm_error err = {0};
    nm_batch batch = {.n = p->texts,
                      .n_targets = p->texts,
                      .source = {p->texts, p->texts * p->length, p->length, p->offsets, NULL},
                      .target = {p->texts, p->texts, 1, p->target_offsets, NULL},
                      .source_ids = p->ids,
                      .source_pos = p->pos,
                      .target_out = p->labels};
    nm_tape_start(&p->tape, true, 1, 0);
    p->tape.grad_scale = 1.0 / p->texts;
    nm_backend_zero(b, params->grads, params->n_elements * nm_dtype_bytes(b->dtype));
    nm_model_output out = p->model->type->forward(p->model, &p->tape, &batch);
    nm_tensor *logits = nm_linear(&p->tape, out.hidden, out.weight, out.bias, NM_ACT_NONE, 0);
    nm_loss_spec loss = {.targets = p->labels};
    const double *device_sums = nm_softmax_loss_of(&p->tape, out.hidden, out.weight, out.bias, &loss);
    double sums[2], want = json_number_value(json_object_get(test->root, "loss_mean"));
    if (!device_sums)
        return golden_fail(test, "out of memory");
    GOLDEN_TRY(compare_logits(test, logits));
    nm_backend_download(b, sums, device_sums, sizeof sums);
    if (!(fabs(sums[0] / p->texts - want) <= test->value_tolerance * (1 + fabs(want))))
        return golden_fail(test, "loss_mean: got %.12g, expected %.12g", sums[0] / p->texts, want);
    if (nm_tape_backward(&p->tape, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    return compare_grads(test, p);
}

golden_result golden_classifier_run(golden_case *test)
{
    problem p = {0};
    golden_result result = read_texts(test, &p);
    if (result == GOLDEN_PASSED)
        result = build(test, &p);
    if (result == GOLDEN_PASSED)
        result = solve(test, &p);
    if (p.tape.backend)
        nm_tape_release(&p.tape);
    nm_model_free(p.model);
    nm_options_free(p.options);
    free(p.ids);
    free(p.pos);
    free(p.labels);
    return result;
}
