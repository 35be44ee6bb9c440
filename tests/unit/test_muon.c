/* Muon: singular values of the updates, which parameters it updates and in which blocks, weight decay (also
 * that of Adam), frozen weights, memory, and training with 1, 2 and 3 threads. The golden cases of family
 * "optim" compare its steps with computed values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fnmatch.h>
#include <math.h>

#include "model/tagger_model.h"
#include "support/tiny_job.h"

static nm_backend *fenced_double(void)
{
    nm_backend *backend;
    nm_error err;
    const nm_backend_options options = {.name = "ref", .dtype = NM_F64, .threads = 1, .fenced = true};
    if (nm_backend_create(&backend, &options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

/* Device memory of n doubles; values NULL: zeros. */
static void *upload(nm_backend *backend, const double *values, size_t n)
{
    void *memory;
    nm_error err;
    assert_int_equal(nm_backend_alloc(backend, n * sizeof *values, &memory, &err), NM_OK);
    if (values)
        nm_backend_write(backend, memory, values, n);
    return memory;
}

/* X of the first step with the gradient g [rows, cols]; p: the change of the parameters, which begin at 0. */
static void first_step(const nm_muon *muon, int32_t rows, int32_t cols, const double *g, double *x, double *p)
{
    size_t n = (size_t)rows * (size_t)cols;
    nm_backend *backend = fenced_double();
    void *memory[] = {upload(backend, NULL, n), upload(backend, g, n), upload(backend, NULL, n),
                      upload(backend, NULL, nm_muon_workspace(rows, cols))};
    nm_mat update =
        nm_muon_step(backend, muon, nm_mat_of(memory[0], rows, cols), nm_mat_of(memory[1], rows, cols),
                     nm_mat_of(memory[2], rows, cols), memory[3]);
    nm_backend_read(backend, x, update.data, n);
    nm_backend_read(backend, p, memory[0], n);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        nm_backend_dealloc(backend, memory[i]);
    nm_backend_free(backend);
}

/* Element of the Hadamard matrix of order 8 with rows of length 1. */
static double hadamard(int32_t i, int32_t j)
{
    return (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1) / sqrt(8);
}

/* The singular vectors of the gradient are rows of a Hadamard matrix and unit vectors. They stay, and the
 * singular values approach 1: the authors' coefficients map those that are at least 0.01 of |u| to 0.68 ..
 * 1.14 in five steps. */
static void test_singular_values(void **state)
{
    (void)state;
    static const double values[] = {5, 0.6, 3, 0.08, 2, 1, 0.3, 0.07};
    for (int32_t rank = 3; rank <= 8; rank++)
        for (int tall = 0; tall < 2; tall++) {
            int32_t rows = tall ? 8 : rank, cols = tall ? rank : 8;
            double g[64], x[64], p[64], largest = 0, smallest = 9;
            const nm_muon muon = nm_muon_default();
            for (int32_t i = 0; i < rank; i++)
                for (int32_t j = 0; j < 8; j++)
                    g[tall ? j * cols + i : i * cols + j] = values[i] * hadamard(i, j);
            first_step(&muon, rows, cols, g, x, p);
            for (int32_t i = 0; i < rank; i++) {
                double value = 0;
                for (int32_t j = 0; j < 8; j++)
                    value += x[tall ? j * cols + i : i * cols + j] * hadamard(i, j);
                for (int32_t j = 0; j < 8; j++)
                    assert_true(fabs(x[tall ? j * cols + i : i * cols + j] - value * hadamard(i, j)) < 1e-12);
                largest = fmax(largest, value);
                smallest = fmin(smallest, value);
            }
            if (!(smallest > 0.68 && largest < 1.14))
                fail_msg("[%d, %d]: singular values %g .. %g", (int)rows, (int)cols, smallest, largest);
        }
}

/* Without Newton-Schulz steps Muon is SGD with the momentum divided by its Frobenius norm. The gradient scale
 * cancels. */
static void test_no_steps(void **state)
{
    (void)state;
    const double g[] = {3, 0, -4, 0, 12, 0}, norm = 13;
    const double scale = 7;
    double x[6], p[6];
    nm_muon muon = nm_muon_default();
    muon.steps = 0;
    muon.lr = 0.5;
    muon.grad_scale = &scale;
    muon.scale = NM_MUON_ORIGINAL;
    first_step(&muon, 3, 2, g, x, p);
    for (int i = 0; i < 6; i++) {
        assert_true(fabs(x[i] - g[i] / norm) < 1e-7);
        assert_true(fabs(p[i] + 0.5 * sqrt(1.5) * g[i] / norm) < 1e-7);
    }
}

static void test_a_zero_gradient(void **state)
{
    (void)state;
    const double g[6] = {0};
    double x[6], p[6];
    nm_muon muon = nm_muon_default();
    muon.lr = 1;
    first_step(&muon, 2, 3, g, x, p);
    for (int i = 0; i < 6; i++)
        assert_true(x[i] == 0 && p[i] == 0);
}

typedef struct rule_case {
    const nm_model_type *type;
    const char *settings;     /* "model.a=b model.c=d" */
    const char *hidden;       /* patterns of the names of all hidden weights */
    const char *among_others; /* some other matrices of the model */
} rule_case;

static const rule_case models[] = {
    {&nm_model_seq2seq, "model.share_embeddings=none",
     "*.self.qkv.weight *.cross.q.weight *.cross.kv.weight *.self.out.weight *.cross.out.weight "
     "*.ffn.in.weight "
     "*.ffn.out.weight",
     "enc.embed.weight dec.embed.weight output.weight"},
    {&nm_model_lm,
     "model.attention=softmax model.positions=learned model.adaptive=true model.cutoffs=4,6 "
     "model.share_embeddings=false",
     "*.self.qkv.weight *.self.out.weight *.ffn.in.weight *.ffn.out.weight",
     "embed.weight position.weight output.weight output.cluster.weight"},
    {&nm_model_lm, "model.attention=block-term model.cores=2",
     "*.self.qkv.weight *.self.place.weight *.ffn.in.weight *.ffn.out.weight",
     "embed.weight *.self.core *.self.out.weight"},
    {&nm_model_tagger, "model.width=16", "*.self.qkv.weight *.ffn.in.weight *.ffn.out.weight",
     "embed.weight in.weight chars.conv.weight output.weight crf.transitions"},
    {&nm_model_classifier, "model.positions=learned model.key_size=4 model.heads=2 model.width=16",
     "*.self.qkv.weight *.self.out.weight *.ffn.in.weight *.ffn.out.weight",
     "embed.weight positions.weight output.weight"},
};

static nm_model *create(const rule_case *c, nm_backend *backend, nm_options *options)
{
    static const nm_tagger_model_sizes more = {.chars = 5};
    const nm_model_sizes sizes = {.source = 10, .target = 10, .plan = {.warmup_updates = 1}, .more = &more};
    nm_model *model;
    nm_error err;
    nm_model_options_add(options, c->type);
    nm_norm_options_add(options);
    char *text = nm_duplicate(c->settings), *rest = text;
    for (char *setting; (setting = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(setting, '=');
        *value++ = 0;
        tiny_set(options, setting, value);
    }
    free(text);
    if (nm_model_create(&model, c->type, backend, options, &sizes, true, &err) != NM_OK)
        fail_msg("%s", err.text);
    return model;
}

static bool is_listed(const char *patterns, const char *name)
{
    char *text = nm_duplicate(patterns), *rest = text;
    bool found = false;
    for (char *pattern; (pattern = strsep(&rest, " ")) != NULL;)
        found |= !fnmatch(pattern, name, 0);
    free(text);
    return found;
}

static void test_which_parameters(void **state)
{
    (void)state;
    nm_backend *backend;
    nm_error err;
    const nm_backend_options ref = {.name = "ref", .threads = 1};
    assert_int_equal(nm_backend_create(&backend, &ref, &err), NM_OK);
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        nm_options *options = nm_options_create();
        nm_model *model = create(&models[k], backend, options);
        size_t n_hidden = 0, n_others = 0;
        for (size_t i = 0; i < model->params.n; i++) {
            const nm_param *param = model->params.list[i];
            const char *name = param->tensor.name;
            int32_t rows = 0;
            if (nm_param_is_hidden(param) != is_listed(models[k].hidden, name))
                fail_msg("%s: %s", models[k].type->name, name);
            for (int b = 0; b < NM_PARAM_BLOCKS; b++)
                rows += param->block_rows[b];
            assert_int_equal(rows, nm_param_is_hidden(param) ? param->tensor.rows : 0);
            n_hidden += nm_param_is_hidden(param);
            n_others += is_listed(models[k].among_others, name);
        }
        if (n_hidden < 3 || n_others < 3)
            fail_msg("%s: %zu hidden weights, %zu others", models[k].type->name, n_hidden, n_others);
        nm_model_free(model);
        nm_options_free(options);
    }
    nm_backend_free(backend);
}

/* The rows of q, k and v: here q and k have 2 heads of 4 features, v has the width of the model. */
static void test_blocks(void **state)
{
    (void)state;
    nm_backend *backend;
    nm_error err;
    const nm_backend_options ref = {.name = "ref", .threads = 1};
    assert_int_equal(nm_backend_create(&backend, &ref, &err), NM_OK);
    nm_options *options = nm_options_create();
    nm_model *model = create(&models[4], backend, options);
    const nm_param *qkv = nm_params_find(&model->params, "enc.0.self.qkv.weight");
    assert_int_equal(qkv->block_rows[0], 8);
    assert_int_equal(qkv->block_rows[1], 8);
    assert_int_equal(qkv->block_rows[2], 16);
    nm_model_free(model);
    nm_options_free(options);
    nm_backend_free(backend);
}

typedef struct trained {
    nm_options *options;
    nm_trainer *trainer;
    char *folder;
} trained;

static trained open_run(const char *const *settings)
{
    trained r = {.options = tiny_options(settings), .folder = tiny_folder()};
    nm_error err;
    if (nm_trainer_open(&r.trainer, &nm_task_translation, r.options, r.folder, false, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
    return r;
}

static void close_run(trained *r)
{
    nm_trainer_close(r->trainer);
    nm_options_free(r->options);
    tiny_data_remove(r->folder);
}

static const nm_params *params_of(const trained *r)
{
    return &nm_trainer_model(r->trainer)->params;
}

/* One update; the parameters before it, heap. */
static float *update(trained *r)
{
    nm_training_progress progress;
    nm_error err;
    float *before = nm_allocate(nm_params_bytes(params_of(r)));
    memcpy(before, params_of(r)->values, nm_params_bytes(params_of(r)));
    if (nm_trainer_update(r->trainer, &progress, &err) != NM_OK)
        fail_msg("%s", err.text);
    return before;
}

/* Frobenius norm of now - keep before. */
static double distance(const float *now, const float *before, double keep, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = (double)now[i] - keep * (double)before[i];
        square += difference * difference;
    }
    return sqrt(square);
}

#define FIRST_UPDATE                                                                                         \
    "schedule.name", "constant", "schedule.lr", "0.02", "model.dropout", "0", "optim.weight_decay", "0.1"

/* Without Newton-Schulz steps the change of every block has the norm of its factor times the learning rate;
 * the other parameters are bitwise identical to those of AdamW. Clipping, which scales the gradients, does
 * not change the direction of a block. */
static void test_every_block_and_the_others(void **state)
{
    (void)state;
    static const char *const muon[] = {
        FIRST_UPDATE, "optim.name",           "muon", "optim.muon_steps",    "0",   "optim.muon_scale",
        "original",   "optim.muon_lr_factor", "3",    "train.max_grad_norm", "0.5", NULL};
    static const char *const adamw[] = {FIRST_UPDATE,          "optim.name", "adamw",
                                        "train.max_grad_norm", "0.5",        NULL};
    const double lr = 3 * 0.02, keep = 1 - lr * 0.1;
    trained r = open_run(muon), other = open_run(adamw);
    float *before = update(&r), *ignored = update(&other);
    const nm_params *params = params_of(&r);
    int n_blocks = 0, n_others = 0;
    for (size_t i = 0; i < params->n; i++) {
        const nm_param *param = params->list[i];
        const float *now = param->tensor.data, *old = before + param->offset;
        size_t elements = (size_t)param->tensor.rows * (size_t)param->tensor.cols;
        if (!nm_param_is_hidden(param)) {
            const nm_param *same = params_of(&other)->list[i];
            assert_memory_equal(now, same->tensor.data, elements * sizeof *now);
            n_others += distance(now, old, 1, elements) > 0;
            continue;
        }
        for (int b = 0; b < NM_PARAM_BLOCKS && param->block_rows[b]; b++, n_blocks++) {
            size_t n = (size_t)param->block_rows[b] * (size_t)param->tensor.cols;
            double expected = lr * sqrt(fmax(1, (double)param->block_rows[b] / param->tensor.cols));
            double moved = distance(now, old, keep, n);
            /* the gradients of q and k are so small at first that eps matters */
            if (fabs(moved - expected) > 1e-3 * expected)
                fail_msg("%s, block %d: %g, expected %g", param->tensor.name, b, moved, expected);
            now += n;
            old += n;
        }
    }
    assert_int_equal(n_blocks, 2 * (3 + 1 + 2) + 2 * (3 + 1 + 1 + 2 + 1 + 2));
    assert_true(n_others > 20);
    free(before);
    free(ignored);
    close_run(&r);
    close_run(&other);
}

/* After one update matrices are those of the weight decay of all parameters, and vectors those without weight
 * decay. */
static void test_decay_of_matrices(void **state)
{
    (void)state;
    static const char *const names[] = {"adam", "adam-fairseq", "adamw", "muon"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const char *const all[] = {FIRST_UPDATE, "optim.name", names[k], NULL};
        const char *const none[] = {FIRST_UPDATE, "optim.name", names[k], "optim.weight_decay", "0", NULL};
        const char *const matrices[] = {
            FIRST_UPDATE, "optim.name",   names[k],           "optim.decayed_parameters",
            "matrices",   "model.freeze", "dec.0.ffn.*.bias", NULL};
        trained r[] = {open_run(matrices), open_run(all), open_run(none)};
        int n_decayed[2] = {0}; /* vectors and matrices that the decay of all parameters changes */
        for (int i = 0; i < 3; i++)
            free(update(&r[i]));
        for (size_t i = 0; i < params_of(&r[0])->n; i++) {
            const nm_param *param = params_of(&r[0])->list[i];
            const bool matrix = param->tensor.rows > 1;
            const size_t bytes = (size_t)param->tensor.rows * (size_t)param->tensor.cols * sizeof(float);
            const float *with = params_of(&r[1])->list[i]->tensor.data,
                        *without = params_of(&r[2])->list[i]->tensor.data;
            if (!param->fixed)
                assert_memory_equal(param->tensor.data, matrix ? with : without, bytes);
            n_decayed[matrix] += memcmp(with, without, bytes) != 0;
        }
        assert_true(n_decayed[0] > 5 && n_decayed[1] > 5);
        for (int i = 0; i < 3; i++)
            close_run(&r[i]);
    }
}

/* Gains that decay to 1 and are 1 at first: one update is that without weight decay; that of gains that decay
 * to 0 is not. */
static void test_decay_to_one(void **state)
{
    (void)state;
    static const char *const names[] = {"adam", "adam-fairseq", "adamw", "muon"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const char *const rms[] = {FIRST_UPDATE, "optim.name", names[k], "model.norm", "rms", NULL};
        const char *const none[] = {FIRST_UPDATE, "optim.name",         names[k], "model.norm",
                                    "rms",        "optim.weight_decay", "0",      NULL};
        const char *const one[] = {
            FIRST_UPDATE, "optim.name", names[k], "model.norm", "rms", "norm.rms.decay_to_one", "true", NULL};
        trained r[] = {open_run(one), open_run(none), open_run(rms)};
        int n_gains = 0;
        for (int i = 0; i < 3; i++)
            free(update(&r[i]));
        for (size_t i = 0; i < params_of(&r[0])->n; i++) {
            const nm_tensor *gain = &params_of(&r[0])->list[i]->tensor;
            if (!strstr(gain->name, ".norm.scale"))
                continue;
            const float *a = gain->data, *b = params_of(&r[1])->list[i]->tensor.data,
                        *zero = params_of(&r[2])->list[i]->tensor.data;
            for (int32_t c = 0; c < gain->cols; c++) {
                assert_true(fabsf(a[c] - b[c]) < 2e-7f);
                n_gains += fabsf(a[c] - zero[c]) > 1e-5f;
            }
        }
        assert_true(n_gains > 20);
        for (int i = 0; i < 3; i++)
            close_run(&r[i]);
    }
}

/* With match-rms an update is about 0.2 of the learning rate, with the original factor 1/sqrt(columns) of a
 * wide matrix. */
static void test_scales(void **state)
{
    (void)state;
    static const char *const settings[] = {FIRST_UPDATE,         "optim.name", "muon",
                                           "optim.weight_decay", "0",          NULL};
    trained r = open_run(settings);
    float *before = update(&r);
    const nm_param *param = nm_params_find(params_of(&r), "enc.0.ffn.out.weight");
    size_t n = (size_t)param->tensor.rows * (size_t)param->tensor.cols;
    double rms = distance(param->tensor.data, before + param->offset, 1, n) / sqrt((double)n);
    assert_true(rms > 0.6 * 0.2 * 0.02 && rms < 1.14 * 0.2 * 0.02);
    free(before);
    close_run(&r);
}

/* Clipped to a norm far below eps, the gradients have no effect: the scale of the gradients is applied before
 * eps. */
static void test_gradients_below_eps(void **state)
{
    (void)state;
    static const char *const settings[] = {FIRST_UPDATE, "optim.name",          "muon",  "optim.weight_decay",
                                           "0",          "train.max_grad_norm", "1e-13", NULL};
    trained r = open_run(settings);
    float *before = update(&r);
    const nm_param *param = nm_params_find(params_of(&r), "enc.0.ffn.out.weight");
    size_t n = (size_t)param->tensor.rows * (size_t)param->tensor.cols;
    assert_true(distance(param->tensor.data, before + param->offset, 1, n) / sqrt((double)n) <
                1e-3 * 0.2 * 0.02);
    free(before);
    close_run(&r);
}

static void test_frozen_weights(void **state)
{
    (void)state;
    static const char *const settings[] = {FIRST_UPDATE,   "optim.name",   "muon",
                                           "model.freeze", "enc.0,*.bias", NULL};
    trained r = open_run(settings);
    float *before = update(&r);
    int moved = 0;
    for (size_t i = 0; i < params_of(&r)->n; i++) {
        const nm_param *param = params_of(&r)->list[i];
        size_t n = (size_t)param->tensor.rows * (size_t)param->tensor.cols;
        bool same = distance(param->tensor.data, before + param->offset, 1, n) == 0;
        if (param->fixed)
            assert_true(same);
        moved += !same && nm_param_is_hidden(param);
    }
    assert_int_equal(moved, 2 * 4 + 2 * 7 - 4);
    free(before);
    close_run(&r);
}

static void test_no_matrix_to_train(void **state)
{
    (void)state;
    static const char *const settings[] = {"optim.name", "muon", "model.freeze", "enc.?,dec.?", NULL};
    nm_error err;
    job j = {.updates = "2", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_USAGE, &err);
    assert_non_null(strstr(err.text, "optim.name = muon"));
    tiny_data_remove(j.folder);
}

/* The second moments of hidden weights are not stored; there is a workspace for the largest block, which is
 * not the last one. */
static void test_memory(void **state)
{
    (void)state;
    static const char *const muon[] = {"model.width", "64", "model.ff", "48", "optim.name", "muon", NULL};
    static const char *const adamw[] = {"model.width", "64", "model.ff", "48", "optim.name", "adamw", NULL};
    trained r = open_run(muon), other = open_run(adamw);
    size_t hidden = 0, workspace = 4 * 64 * 64 + 16;
    for (size_t i = 0; i < params_of(&r)->n; i++) {
        const nm_param *param = params_of(&r)->list[i];
        if (nm_param_is_hidden(param))
            hidden += (size_t)param->tensor.rows * (size_t)param->tensor.cols;
    }
    assert_true(hidden > workspace);
    assert_int_equal(nm_trainer_peak_bytes(other.trainer) - nm_trainer_peak_bytes(r.trainer),
                     (hidden - workspace) * sizeof(float));
    close_run(&r);
    close_run(&other);
}

/* The products of the iteration are large enough to be divided over threads. */
static void test_threads_are_exact(void **state)
{
    (void)state;
    static const char *const threads[] = {"1", "2", "3"};
    static const char *const settings[] = {"model.width", "64",           "model.ff", "192", "optim.name",
                                           "muon",        "train.shards", "2",        NULL};
    uint64_t hashes[3];
    nm_error err;
    for (int i = 0; i < 3; i++) {
        job j = {.threads = threads[i], .updates = "6", .folder = tiny_folder(), .settings = settings};
        hashes[i] = run(&j, NM_OK, &err);
        tiny_data_remove(j.folder);
    }
    assert_true(hashes[0] == hashes[1] && hashes[0] == hashes[2]);
}

/* Activation checkpointing, and the validation loss of the reversal task. */
static void test_reversal_is_learned(void **state)
{
    (void)state;
    static const char *const checkpointing[] = {"none", "layer"};
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        const char *const settings[] = {"train.max_tokens",
                                        "400",
                                        "model.dropout",
                                        "0",
                                        "model.embedding_dropout",
                                        "0",
                                        "train.validate_every",
                                        "75",
                                        "train.score",
                                        "0",
                                        "schedule.name",
                                        "constant",
                                        "optim.name",
                                        "muon",
                                        "train.activation_checkpointing",
                                        checkpointing[i],
                                        NULL};
        nm_error err;
        job j = {.updates = "150", .folder = tiny_folder(), .settings = settings};
        hashes[i] = run(&j, NM_OK, &err);
        char *text = tiny_log(j.folder), *last = NULL;
        for (char *at = text; (at = strstr(at, "\"nll\":")) != NULL; at++)
            last = at;
        assert_non_null(last);
        if (atof(last + 6) > 0.8 * 2.3) /* ln 10 = 2.3: chance level of ten words */
            fail_msg("nll %g", atof(last + 6));
        free(text);
        tiny_data_remove(j.folder);
    }
    assert_true(hashes[0] == hashes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_singular_values),
        cmocka_unit_test(test_no_steps),
        cmocka_unit_test(test_a_zero_gradient),
        cmocka_unit_test(test_which_parameters),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_every_block_and_the_others),
        cmocka_unit_test(test_decay_of_matrices),
        cmocka_unit_test(test_decay_to_one),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_gradients_below_eps),
        cmocka_unit_test(test_frozen_weights),
        cmocka_unit_test(test_no_matrix_to_train),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_threads_are_exact),
        cmocka_unit_test(test_reversal_is_learned),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
