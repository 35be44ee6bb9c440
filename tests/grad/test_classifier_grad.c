/* Whole small classifiers in double on the plain backend, its memory fenced: gradients of all parameters against central
 * differences of the loss, for every norm whose backward is the derivative, both placements, poolings and positions; and
 * pooling on its own, with values known beforehand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/model.h"

enum { VOCAB = 11, CLASSES = 3, TEXTS = 4, TOKENS = 12 };

static const int32_t offsets[] = {0, 3, 8, 9, 12}, class_offsets[] = {0, 1, 2, 3, 4};
static const int32_t ids[] = {0, 5, 2, 0, 8, 9, 10, 2, 0, 0, 4, 2},
                     pos[] = {0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1, 2};
static const int32_t classes[] = {2, 0, 1, 2};

static nm_batch fixed_batch(void)
{
    return (nm_batch){.n = TEXTS,
                      .units = TEXTS,
                      .source = {.n_seqs = TEXTS, .n_tokens = TOKENS, .longest = 5, .offsets = offsets},
                      .target = {.n_seqs = TEXTS, .n_tokens = TEXTS, .longest = 1, .offsets = class_offsets},
                      .source_ids = ids,
                      .source_pos = pos,
                      .target_out = classes};
}

typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    nm_tape tape;
} rig;

static void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK)
        fail_msg("%s", err->text);
}

static void rig_open(rig *r, const char *const *settings)
{
    nm_error err;
    nm_backend_options device = {.name = "ref", .dtype = NM_F64, .fenced = true};
    check(nm_backend_create(&r->backend, &device, &err), &err);
    r->options = nm_options_create();
    nm_model_options_add(r->options, &nm_model_classifier);
    static const char *const common[] = {
        "model.preset",        "tiny", "model.width",    "8", "model.ff", "12",
        "model.max_positions", "16",   "model.key_size", "3", NULL};
    for (int i = 0; common[i]; i += 2)
        check(nm_options_set(r->options, common[i], common[i + 1], NM_ORIGIN_FILE, &err), &err);
    for (int i = 0; settings[i]; i += 2)
        check(nm_options_set(r->options, settings[i], settings[i + 1], NM_ORIGIN_COMMAND, &err), &err);
    nm_model_sizes sizes = {.source = VOCAB, .target = CLASSES, .warmup_steps = 4};
    check(nm_model_create(&r->model, &nm_model_classifier, r->backend, r->options, &sizes, true, &err), &err);
    nm_params_initialize(&r->model->params, 3);
    check(nm_tape_init(&r->tape, r->backend, (size_t)64 << 20, &err), &err);
}

static void rig_close(rig *r)
{
    nm_tape_release(&r->tape);
    nm_model_free(r->model);
    nm_options_free(r->options);
    nm_backend_free(r->backend);
}

/* The loss, with gradients when training. State of the norms is what it was before. */
static double loss_of(rig *r, bool training)
{
    nm_error err;
    nm_batch batch = fixed_batch();
    nm_params *params = &r->model->params;
    nm_norm_memory memory = nm_norm_memory_keep(params);
    nm_tape_start(&r->tape, true, 5, 0);
    r->tape.mean_weight = batch.units;
    nm_model_output out = r->model->type->forward(r->model, &r->tape, &batch);
    nm_loss_spec spec = {.eps = 0.1, .targets = classes};
    double *sums = nm_softmax_loss_of(&r->tape, out.hidden, out.weight, out.bias, &spec), pair[2];
    assert_non_null(sums);
    r->backend->k.download(r->backend, pair, sums, sizeof pair);
    if (training)
        check(nm_tape_backward(&r->tape, &err), &err);
    nm_norm_memory_put_back(&memory, params);
    return pair[0];
}

/* Backward against differences along one random direction of a parameter. */
static void check_parameter(rig *r, size_t p, const double *grads)
{
    enum { STEPS = 2 };
    static const double step = 1e-5;
    nm_backend *b = r->backend;
    nm_tensor *t = &r->model->params.list[p]->tensor;
    size_t n = (size_t)t->rows * (size_t)t->cols;
    double *value = malloc(n * sizeof *value), *moved = malloc(n * sizeof *moved),
           *direction = malloc(n * sizeof *moved), expected = 0, sides[STEPS];
    b->k.download(b, value, t->data, n * sizeof *value);
    for (size_t i = 0; i < n; i++) {
        nm_random_words w = nm_random4(9, NM_RANDOM_TEST, (uint32_t)p, 0, i);
        direction[i] = nm_random_normal(w.w[0], w.w[1]);
        expected += direction[i] * grads[i];
    }
    for (int side = 0; side < STEPS; side++) {
        for (size_t i = 0; i < n; i++)
            moved[i] = value[i] + (side ? -step : step) * direction[i];
        b->k.upload(b, t->data, moved, n * sizeof *moved);
        sides[side] = loss_of(r, false);
    }
    b->k.upload(b, t->data, value, n * sizeof *value);
    double measured = (sides[0] - sides[1]) / (2 * step);
    if (!(fabs(measured - expected) <= 1e-6 * (1 + fabs(expected))))
        fail_msg("%s: backward %.12g, differences %.12g", t->name, expected, measured);
    free(value);
    free(moved);
    free(direction);
}

static void run(const char *const *settings)
{
    rig r;
    rig_open(&r, settings);
    nm_params *params = &r.model->params;
    r.backend->k.zero(r.backend, params->grads, params->n_elements * sizeof(double));
    loss_of(&r, true);
    double *grads =
        malloc(params->n_elements * sizeof *grads); /* the loss adds to gradients whenever computed */
    r.backend->k.download(r.backend, grads, params->grads, params->n_elements * sizeof *grads);
    for (size_t p = 0; p < params->n; p++)
        check_parameter(&r, p, grads + params->list[p]->offset);
    free(grads);
    rig_close(&r);
}

/* RBN's penalty is differentiated with its running values held, which the second call of a forward pass would move */
static bool differentiable(const nm_norm_type *type)
{
    return !(type->traits & (NM_APPROX_GRAD | NM_HAS_PENALTY)) && strcmp(type->name, "renorm") &&
           strcmp(type->name, "fix");
}

static void every_exact_norm(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        for (int post = 0; post < 2; post++) {
            const char *const settings[] = {"model.norm",
                                            (*type)->name,
                                            "model.placement",
                                            post ? "post" : "pre",
                                            "model.pooling",
                                            post ? "mean" : "first",
                                            "model.attention_dropout",
                                            "0.2",
                                            "model.embedding_dropout",
                                            "0.2",
                                            NULL};
            if (differentiable(*type) && !(post && !strcmp((*type)->name, "none")))
                run(settings);
        }
}

static void positions_and_poolings(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "learned", "sinusoid"}, *const poolings[] = {"first", "mean"};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            const char *const settings[] = {
                "model.positions", names[i], "model.pooling", poolings[k], "model.layers", "2", NULL};
            run(settings);
        }
}

static void pooled_values(void **state)
{
    (void)state;
    static const int32_t ends[] = {0, 1, 3};
    static const double values[] = {1, 2, 3, 4, 5, 8}, wanted[2][4] = {{1, 2, 3, 4}, {1, 2, 4, 6}};
    for (int mean = 0; mean < 2; mean++) {
        rig r;
        static const char *const none[] = {NULL};
        rig_open(&r, none);
        nm_tape_start(&r.tape, false, 1, 0);
        nm_packing packing = {.n_seqs = 2, .n_tokens = 3, .longest = 2, .offsets = ends};
        nm_tensor *x = nm_tape_tensor(&r.tape, 3, 2);
        r.backend->k.upload(r.backend, x->data, values, sizeof values);
        nm_tensor *y = nm_pool(&r.tape, x, &packing, mean ? NM_POOL_MEAN : NM_POOL_FIRST);
        double got[4];
        assert_int_equal(y->rows, 2);
        r.backend->k.download(r.backend, got, y->data, sizeof got);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(got[i] - wanted[mean][i]) < 1e-15);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_exact_norm),
                                       cmocka_unit_test(positions_and_poolings),
                                       cmocka_unit_test(pooled_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
