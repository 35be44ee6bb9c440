/* Small classifiers in double on the ref backend with fenced memory: gradients of all parameters against
 * central differences of
 * the loss, for every norm whose backward is the derivative, pre- and post-norm, all poolings and
 * positions; and pooling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model/classifier_model.h"
#include "model_gradients.h"

enum { VOCAB = 11, CLASSES = 3, TEXTS = 4, TOKENS = 12 };

static const int32_t offsets[] = {0, 3, 8, 9, 12}, class_offsets[] = {0, 1, 2, 3, 4};
static const int32_t ids[] = {0, 5, 2, 0, 8, 9, 10, 2, 0, 0, 4, 2},
                     pos[] = {0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1, 2};
static const int32_t classes[] = {2, 0, 1, 2};

static const nm_batch batch = {
    .n = TEXTS,
    .n_targets = TEXTS,
    .source = {.n_seqs = TEXTS, .n_tokens = TOKENS, .longest = 5, .offsets = offsets},
    .target = {.n_seqs = TEXTS, .n_tokens = TEXTS, .longest = 1, .offsets = class_offsets},
    .source_ids = ids,
    .source_pos = pos,
    .target_out = classes};

static void rig_open(model_rig *r, const char *const *settings)
{
    static const char *const common[] = {
        "model.preset",        "tiny", "model.width",    "8", "model.ff", "12",
        "model.max_positions", "16",   "model.key_size", "3", NULL};
    static const nm_model_sizes sizes = {.source = VOCAB, .target = CLASSES, .plan = {.warmup_updates = 4}};
    model_rig_open(r, &nm_model_classifier, &sizes, common, settings);
}

static void run(const char *const *settings)
{
    model_rig r;
    rig_open(&r, settings);
    r.batch = batch;
    model_rig_check(&r, model_softmax_loss);
}

static void test_every_exact_norm(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        for (int post = 0; post < 2; post++) {
            const char *const settings[] = {"model.norm",
                                            (*type)->name,
                                            "model.norm_position",
                                            post ? "post" : "pre",
                                            "model.pooling",
                                            post ? "mean" : "first",
                                            "model.attention_dropout",
                                            "0.2",
                                            "model.embedding_dropout",
                                            "0.2",
                                            NULL};
            if (norm_is_differentiable(*type, post))
                run(settings);
        }
}

static void test_positions_and_poolings(void **state)
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

/* Two buckets: bigrams share them. */
static void test_ngrams(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.ngram_dim",
                                           "3",
                                           "model.ngram_buckets",
                                           "2",
                                           "model.pooling",
                                           "mean",
                                           "model.embedding_dropout",
                                           "0.2",
                                           NULL};
    run(settings);
}

static void set_column(const model_rig *r, const char *name, double first, double step)
{
    nm_tensor *column = &nm_params_find(&r->model->params, name)->tensor;
    for (int32_t i = 0; i < column->rows; i++) {
        double value = first + step * i;
        nm_backend_upload(r->backend, (char *)column->data + (size_t)i * sizeof value, &value, sizeof value);
    }
}

static void test_weighted_ngrams(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.ngram_dim",
                                           "3",
                                           "model.ngram_buckets",
                                           "2",
                                           "model.ngram_weights",
                                           "idf",
                                           "model.embedding_dropout",
                                           "0.2",
                                           NULL};
    model_rig r;
    rig_open(&r, settings);
    r.batch = batch;
    assert_true(nm_params_find(&r.model->params, "ngrams.words_idf")->fixed);
    set_column(&r, "ngrams.words_idf", 0.5, 0.25);
    set_column(&r, "ngrams.bigrams_idf", 2, -0.75);
    model_rig_check(&r, model_softmax_loss);
}

static void test_weighted_pool(void **state)
{
    (void)state;
    static const int32_t ends[] = {0, 1, 3}, rows[] = {1, 1, 0};
    static const double values[] = {1, 2, 3, 4, 5, 8}, wanted[4] = {3, 6, 11.5, 16};
    static const char *const settings[] = {"model.ngram_dim", "2", "model.ngram_weights", "idf", NULL};
    model_rig r;
    rig_open(&r, settings);
    set_column(&r, "ngrams.words_idf", 0.5, 2.5); /* w_0 = 0.5, w_1 = 3 */
    nm_tape_start(&r.tape, false, 1, 0);
    nm_packing packing = {.n_seqs = 2, .n_tokens = 3, .longest = 2, .offsets = ends};
    nm_tensor *x = nm_tape_tensor(&r.tape, 3, 2);
    nm_backend_upload(r.backend, x->data, values, sizeof values);
    nm_tensor *y = nm_pool_weighted(&r.tape, x, &packing,
                                    &nm_params_find(&r.model->params, "ngrams.words_idf")->tensor, rows);
    double got[4];
    nm_backend_download(r.backend, got, y->data, sizeof got);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(got[i] - wanted[i]) < 1e-15);
    model_rig_close(&r);
}

static void test_pooled_values(void **state)
{
    (void)state;
    static const int32_t ends[] = {0, 1, 3};
    static const nm_pooling poolings[] = {NM_POOL_FIRST, NM_POOL_MEAN};
    static const double values[] = {1, 2, 3, 4, 5, 8};
    const double wanted[2][4] = {{1, 2, 3, 4}, {1, 2, 4, 6}};
    for (int k = 0; k < 2; k++) {
        model_rig r;
        static const char *const none[] = {NULL};
        rig_open(&r, none);
        nm_tape_start(&r.tape, false, 1, 0);
        nm_packing packing = {.n_seqs = 2, .n_tokens = 3, .longest = 2, .offsets = ends};
        nm_tensor *x = nm_tape_tensor(&r.tape, 3, 2);
        nm_backend_upload(r.backend, x->data, values, sizeof values);
        nm_tensor *y = nm_pool(&r.tape, x, &packing, poolings[k]);
        double got[4];
        assert_int_equal(y->rows, 2);
        nm_backend_download(r.backend, got, y->data, sizeof got);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(got[i] - wanted[k][i]) < 1e-14);
        model_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_exact_norm), cmocka_unit_test(test_positions_and_poolings),
        cmocka_unit_test(test_ngrams),           cmocka_unit_test(test_weighted_ngrams),
        cmocka_unit_test(test_weighted_pool),    cmocka_unit_test(test_pooled_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
