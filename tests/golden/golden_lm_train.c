/* Golden cases of family "lm_train": updates of a language model from given weights on given batches,
 * computed by transformers and torch.optim. The weights are read by the names of transformers, as by norma
 * convert. Losses, gradient norms, and some of the weights after the last update. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/comm.h"
#include "convert/huggingface.h"
#include "golden.h"
#include "task/lm_task.h"
#include "train/optimizer.h"

/* PyTorch's own deviation in single precision is 4e-5. */
static const double SINGLE_TOLERANCE = 2e-3;

typedef struct training {
    golden_case *test;
    const nm_llama_class *class; /* NULL: GPT-2 */
    nm_options *options;
    nm_model *model;
    nm_tape tape;
    nm_comm comm;
    nm_shard_tree tree;
    nm_optimizer optimizer;
    double *plan; /* device: of an update */
    nm_tensor_map map;
    nm_map_ids map_ids;
    int32_t n_seqs, length, *ids, *targets, *pos, *offsets, *same_ids;
} training;

static golden_result set_whole(golden_case *test, training *t, const char *option, const char *key,
                               int32_t otherwise)
{
    return golden_set_number(test, t->options, option, golden_whole(test, key, otherwise));
}

/* optim.decayed_parameters: the decayed tensors are all, or the matrices. */
static golden_result set_decay(golden_case *test, training *t)
{
    const json_t *list = json_object_get(test->root, "decayed"), *tensor, *name;
    const char *key;
    size_t n_matrices = 0, n_decayed_matrices = 0, index;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(test->root, "params"), key, tensor)
    {
        bool matrix = json_array_size(json_object_get(tensor, "shape")) == 2;
        n_matrices += matrix;
        json_array_foreach(list, index, name) n_decayed_matrices +=
            matrix && !strcmp(json_string_value(name), key);
    }
    if (!json_array_size(list))
        return GOLDEN_PASSED;
    bool all = json_array_size(list) == json_object_size(json_object_get(test->root, "params"));
    if (!all && (json_array_size(list) != n_matrices || n_decayed_matrices != n_matrices))
        return golden_skip(test, "the decayed parameters are neither all nor the matrices");
    GOLDEN_TRY(
        golden_set_number(test, t->options, "optim.weight_decay", golden_number(test, "weight_decay", 0)));
    return golden_set(test, t->options, "optim.decayed_parameters", all ? "all" : "matrices");
}

static golden_result set_optimizer(golden_case *test, training *t)
{
    const json_t *betas = json_object_get(test->config, "betas");
    const char *name = golden_text(test, "optimizer", "");
    if (strcmp(name, "adam") && strcmp(name, "adamw") && strcmp(name, "sgd"))
        return golden_skip(test, "optimizer '%.60s' is not offered", name);
    GOLDEN_TRY(golden_plain_optimizer(test));
    GOLDEN_TRY(golden_set(test, t->options, "optim.name", name));
    if (!strcmp(name, "sgd")) {
        GOLDEN_TRY(golden_set_number(test, t->options, "optim.momentum", golden_number(test, "momentum", 0)));
        return set_decay(test, t);
    }
    if (json_array_size(betas) != 2)
        return golden_fail(test, "config: betas");
    for (size_t i = 0; i < 2; i++)
        GOLDEN_TRY(golden_set_number(test, t->options, i ? "optim.beta2" : "optim.beta1",
                                     json_number_value(json_array_get(betas, i))));
    GOLDEN_TRY(golden_set_number(test, t->options, "optim.eps", golden_number(test, "eps", 1e-8)));
    return set_decay(test, t);
}

static golden_result set_embeddings(golden_case *test, training *t)
{
    double scale = golden_number(test, "embedding_scale", 1), d = golden_number(test, "d", 0);
    bool root = fabs(scale * scale - d) < 1e-9 * d;
    if (!root && scale != 1)
        return golden_skip(test, "embeddings are multiplied by %g", scale);
    GOLDEN_TRY(golden_set(test, t->options, "model.embedding_scale", root ? "sqrt" : "none"));
    return golden_set(test, t->options, "model.share_embeddings",
                      golden_flag(test, "tied") ? "true" : "false");
}

static golden_result set_activation(golden_case *test, training *t)
{
    static const char *const names[][2] = {
        {"gelu_tanh", "gelu-tanh"}, {"gelu", "gelu"}, {"relu", "relu"}, {"silu", "silu"}};
    const char *name = golden_text(test, "activation", "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i][0]))
            return golden_set(test, t->options, "model.activation", names[i][1]);
    return *name ? golden_skip(test, "activation '%.60s' is not offered", name) : GOLDEN_PASSED;
}

/* The preset has the structure of the model, the case its sizes. */
static golden_result configure(golden_case *test, training *t)
{
    static const char *const plain[] = {"model.dropout", "model.attention_dropout", "model.relu_dropout",
                                        "model.embedding_dropout", "model.hidden_dropout"};
    const char *form = golden_text(test, "form", "");
    bool gpt2 = !strcmp(form, "gpt2");
    t->class = gpt2 ? NULL : nm_llama_class_named(strcmp(form, "gemma3") ? form : "gemma3_text");
    if (!gpt2 && !t->class)
        return golden_skip(test, "form '%.60s' is not offered", form);
    t->options = nm_options_create();
    nm_train_options_add(t->options, &nm_task_lm);
    GOLDEN_TRY(golden_set(test, t->options, "model.preset",
                          strcmp(form, "mistral") && strcmp(form, "qwen2") ? form : "llama"));
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        GOLDEN_TRY(golden_set(test, t->options, plain[i], "0"));
    GOLDEN_TRY(set_whole(test, t, "model.width", "d", 0));
    GOLDEN_TRY(set_whole(test, t, "model.ff", "ff", 0));
    GOLDEN_TRY(set_whole(test, t, "model.heads", "heads", 0));
    GOLDEN_TRY(set_activation(test, t));
    GOLDEN_TRY(set_whole(test, t, "model.layers", "layers", 0));
    GOLDEN_TRY(set_whole(test, t, "model.context", "context", 0));
    GOLDEN_TRY(set_embeddings(test, t));
    GOLDEN_TRY(set_optimizer(test, t));
    double eps = golden_number(test, "norm_eps", 1e-5);
    if (gpt2)
        return golden_set_number(test, t->options, "norm.layer.epsilon", eps);
    GOLDEN_TRY(set_whole(test, t, "model.key_value_heads", "kv_heads", 0));
    GOLDEN_TRY(set_whole(test, t, "model.head_width", "head_width", 0));
    if (golden_flag(test, "bias") || t->class->input_biases)
        return golden_skip(test, "biases in a model of the form %.60s", form);
    GOLDEN_TRY(
        golden_set_number(test, t->options, "model.rope_base", golden_number(test, "rope_base", 10000)));
    GOLDEN_TRY(golden_set(test, t->options, "norm.rms.epsilon_inside", "true"));
    return golden_set_number(test, t->options, "norm.rms.epsilon", eps);
}

static const json_t *param_of(const void *file, const char *name)
{
    return json_object_get(json_object_get(((const golden_case *)file)->root, "params"), name);
}

static bool source_shape(const void *file, const char *name, int *rank, int64_t *shape)
{
    const json_t *dims = json_object_get(param_of(file, name), "shape");
    *rank = (int)json_array_size(dims);
    for (int i = 0; i < *rank && i < 2; i++)
        shape[i] = json_integer_value(json_array_get(dims, (size_t)i));
    return *rank == 1 || *rank == 2;
}

static double *source_read(const void *file, const char *name, int *rank, int64_t *shape)
{
    golden_tensor tensor;
    if (!source_shape(file, name, rank, shape) ||
        golden_read((golden_case *)(uintptr_t)file, param_of(file, name), name, &tensor) != GOLDEN_PASSED)
        return NULL;
    return tensor.data;
}

static const char *source_name(const void *file, size_t index)
{
    json_t *params = json_object_get(((const golden_case *)file)->root, "params");
    void *at = json_object_iter(params);
    while (at && index--)
        at = json_object_iter_next(params, at);
    return at ? json_object_iter_key(at) : NULL;
}

static nm_status map_norm(const nm_norm *norm, const char *tensor, void *context, nm_error *err)
{
    training *t = context;
    char gain[160];
    (void)err;
    snprintf(gain, sizeof gain, "%s.scale", norm->site.name);
    nm_tensor_map_add(&t->map, &nm_params_find(&t->model->params, gain)->tensor, "%s", tensor)->offset =
        t->class->gemma ? -1 : 0;
    return NM_OK;
}

static golden_result load(golden_case *test, training *t)
{
    nm_error err = {0};
    nm_lm *lm = nm_lm_of(t->model);
    const nm_tensor_source source = {test->path, test, source_shape, source_read, source_name, NULL};
    if (t->class) {
        nm_huggingface_map_llama(&t->map, t->model);
        nm_llama_each_norm(t->model, map_norm, t, &err);
    } else {
        nm_huggingface_map_gpt2(&t->map, t->model, "transformer.");
        nm_tensor_map_add(&t->map, lm->position_table, "transformer.wpe.weight");
    }
    for (size_t i = 0; i < t->map.n; i++) /* imports divide the embeddings by their scale */
        if (t->map.entries[i].param == lm->table)
            t->map.entries[i].factor = 1;
    if (lm->output_weight != lm->table)
        nm_tensor_map_add(&t->map, lm->output_weight, "lm_head.weight")->vocab = NM_OF_TARGET_VOCAB;
    int32_t words = t->model->target_size;
    t->same_ids = nm_allocate(((size_t)words + 1) * sizeof *t->same_ids);
    for (int32_t i = 0; i < words; i++)
        t->same_ids[i] = i;
    t->map_ids.ids[NM_OF_TARGET_VOCAB] = t->same_ids;
    t->map_ids.size[NM_OF_TARGET_VOCAB] = words;
    nm_status status = nm_tensor_map_check(&t->map, &source, &t->map_ids, &err);
    if (status == NM_OK)
        status = nm_tensor_map_read(&t->map, test->backend, &source, &t->map_ids, &err);
    return status == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}

static golden_result open_training(golden_case *test, training *t)
{
    nm_error err = {0};
    int32_t words = golden_whole(test, "vocab", 0);
    t->n_seqs = golden_whole(test, "batch", 0);
    t->length = golden_whole(test, "context", 0);
    if (words < 2 || words > 1000 || t->n_seqs < 1 || t->n_seqs > 100 || t->length < 1 || t->length > 100)
        return golden_fail(test, "config: vocab, batch or context");
    const nm_model_sizes sizes = {.source = words, .target = words};
    t->comm = (nm_comm){.type = &nm_comm_none, .size = 1};
    if (nm_model_create(&t->model, &nm_model_lm, test->backend, t->options, &sizes, true, &err) != NM_OK ||
        nm_tape_init(&t->tape, test->backend, (size_t)16 << 20, &err) != NM_OK ||
        nm_shard_tree_init(&t->tree, &t->model->params, 1, &t->comm, false, &err) != NM_OK ||
        nm_optimizer_init(&t->optimizer, nm_options_find(t->options, "optim"), 0, &t->tree, &err) != NM_OK ||
        nm_backend_alloc(test->backend, NM_PLAN_SIZE * sizeof *t->plan, (void **)&t->plan, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    int32_t n = t->n_seqs * t->length;
    t->pos = nm_allocate((size_t)n * sizeof *t->pos);
    t->offsets = nm_allocate(((size_t)t->n_seqs + 1) * sizeof *t->offsets);
    t->ids = nm_allocate((size_t)n * sizeof *t->ids);
    t->targets = nm_allocate((size_t)n * sizeof *t->targets);
    for (int32_t i = 0; i < n; i++)
        t->pos[i] = i % t->length;
    for (int32_t s = 0; s <= t->n_seqs; s++)
        t->offsets[s] = s * t->length;
    return load(test, t);
}

/* [batch, time], as the segments of a batch. */
static golden_result read_ids(golden_case *test, const training *t, const json_t *step, const char *key,
                              int32_t *ids)
{
    golden_tensor tensor;
    size_t n = (size_t)t->n_seqs * (size_t)t->length;
    GOLDEN_TRY(golden_read(test, json_object_get(step, key), key, &tensor));
    golden_result result = tensor.count == n ? GOLDEN_PASSED : golden_fail(test, "%s: not %zu ids", key, n);
    for (size_t i = 0; result == GOLDEN_PASSED && i < n; i++) {
        ids[i] = (int32_t)tensor.data[i];
        if (!(tensor.data[i] >= 0 && tensor.data[i] < t->model->target_size))
            result = golden_fail(test, "%s[%zu] is no word", key, i);
    }
    golden_release(&tensor);
    return result;
}

/* Mean loss of the current batch; the gradients of this mean if `training`. */
static golden_result mean_loss(golden_case *test, training *t, bool with_grads, double *loss)
{
    nm_error err = {0};
    int32_t n = t->n_seqs * t->length;
    nm_params *params = &t->model->params;
    const nm_batch batch = {.n = t->n_seqs,
                            .target = {t->n_seqs, n, t->length, t->offsets, NULL},
                            .target_in = t->ids,
                            .target_out = t->targets,
                            .target_pos = t->pos};
    const nm_loss_spec spec = {.targets = t->targets};
    double sums[2];
    nm_backend_zero(test->backend, params->grads, params->n_elements * nm_dtype_bytes(test->backend->dtype));
    nm_tape_start(&t->tape, with_grads, 1, 0);
    t->tape.grad_scale = 1.0 / n;
    const double *device = nm_lm_loss(t->model, &t->tape, nm_lm_hidden(t->model, &t->tape, &batch), &spec);
    if (!device || (with_grads && nm_tape_backward(&t->tape, &err) != NM_OK))
        return golden_fail(test, "out of memory");
    nm_backend_download(test->backend, sums, device, sizeof sums);
    *loss = sums[0] / n;
    return GOLDEN_PASSED;
}

static golden_result compare_number(golden_case *test, const char *what, size_t step, double got,
                                    const json_t *expected)
{
    char name[64];
    double want = json_number_value(expected), tolerance = test->single ? SINGLE_TOLERANCE : 1e-9;
    snprintf(name, sizeof name, "step %zu: %s", step, what);
    if (!json_is_number(expected))
        return golden_fail(test, "%s is missing", name);
    return fabs(got - want) <= tolerance * (1 + fabs(want))
               ? GOLDEN_PASSED
               : golden_fail(test, "%s: got %.12g, expected %.12g", name, got, want);
}

static golden_result run_step(golden_case *test, training *t, size_t index, const json_t *step)
{
    double loss, norm;
    nm_error err = {0};
    const json_t *lr = json_object_get(step, "lr");
    if (!json_is_number(lr))
        return golden_fail(test, "step %zu: no lr", index);
    GOLDEN_TRY(read_ids(test, t, step, "input", t->ids));
    GOLDEN_TRY(read_ids(test, t, step, "target", t->targets));
    GOLDEN_TRY(mean_loss(test, t, true, &loss));
    GOLDEN_TRY(compare_number(test, "loss_mean", index, loss, json_object_get(step, "loss_mean")));
    nm_optimizer_gradient_square(&t->optimizer, &t->plan[NM_PLAN_SQUARE], &err);
    nm_backend_download(test->backend, &norm, &t->plan[NM_PLAN_SQUARE], sizeof norm);
    norm = sqrt(norm);
    GOLDEN_TRY(compare_number(test, "grad_norm", index, norm, json_object_get(step, "grad_norm")));
    double numbers[3] = {loss};
    const int32_t end = 3;
    NM_CALL(test->backend, plan_update, .targets = 1, .max_norm = golden_number(test, "clip_global_norm", 0),
            .passes = 1, .ends = &end, .numbers = numbers, .plan = t->plan);
    nm_optimizer_step(&t->optimizer, (int64_t)index + 1, json_number_value(lr), &t->plan[NM_PLAN_SCALE],
                      &err);
    return GOLDEN_PASSED;
}

/* Element k of the tensor of an entry. */
static double element(const nm_map_entry *entry, const double *values, size_t k)
{
    size_t cols = (size_t)entry->param->cols, first = (size_t)entry->first, at = first + k;
    if (entry->rows > 0 && entry->transposed)
        at = (first + k % (size_t)entry->rows) * cols + k / (size_t)entry->rows;
    else if (entry->rows > 0)
        at = first * cols + k;
    return entry->factor * values[at] + entry->offset;
}

static golden_result compare_tensor(golden_case *test, const training *t, const char *name,
                                    const json_t *expected)
{
    golden_tensor want;
    size_t i = 0;
    const double tolerance = test->single ? SINGLE_TOLERANCE : 1e-9;
    while (i < t->map.n && strcmp(t->map.entries[i].name, name))
        i++;
    if (i == t->map.n)
        return golden_fail(test, "the model has no tensor %s", name);
    GOLDEN_TRY(golden_read(test, expected, name, &want));
    double *values = nm_param_values(test->backend, t->map.entries[i].param);
    golden_result result = GOLDEN_PASSED;
    for (size_t k = 0; result == GOLDEN_PASSED && k < want.count; k++) {
        double got = element(&t->map.entries[i], values, k);
        if (!(fabs(got - want.data[k]) <= tolerance * (1 + fabs(want.data[k]))))
            result = golden_fail(test, "%s[%zu] after the last update: got %.10g, expected %.10g", name, k,
                                 got, want.data[k]);
    }
    free(values);
    golden_release(&want);
    return result;
}

static golden_result compare_weights(golden_case *test, const training *t)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(test->root, "params_after"), name, value)
        GOLDEN_TRY(compare_tensor(test, t, name, value));
    return GOLDEN_PASSED;
}

static golden_result solve(golden_case *test, training *t)
{
    size_t index;
    double loss;
    const json_t *steps = json_object_get(test->root, "steps"), *step;
    GOLDEN_TRY(configure(test, t));
    GOLDEN_TRY(open_training(test, t));
    if (!json_array_size(steps) || !json_object_size(json_object_get(test->root, "params_after")))
        return golden_fail(test, "no steps, or no params_after");
    json_array_foreach(steps, index, step) GOLDEN_TRY(run_step(test, t, index, step));
    GOLDEN_TRY(mean_loss(test, t, false, &loss));
    GOLDEN_TRY(compare_number(test, "loss_after", index, loss, json_object_get(test->root, "loss_after")));
    return compare_weights(test, t);
}

static golden_result run(golden_case *test)
{
    training t = {.test = test};
    golden_result result = solve(test, &t);
    if (t.plan)
        nm_backend_dealloc(test->backend, t.plan);
    if (t.optimizer.config)
        nm_optimizer_release(&t.optimizer);
    if (t.tree.params)
        nm_shard_tree_release(&t.tree);
    nm_tensor_map_release(&t.map);
    if (t.tape.backend)
        nm_tape_release(&t.tape);
    nm_model_free(t.model);
    if (t.options)
        nm_options_free(t.options);
    int32_t *memory[] = {t.ids, t.targets, t.pos, t.offsets, t.same_ids};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    return result;
}

const golden_family golden_lm_train = {.name = "lm_train", .run = run, .computes = true};
