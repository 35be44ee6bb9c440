/* A whole small tagger in double on the plain backend, its memory fenced: gradients of all parameters, those of the
 * conditional random field, of relative attention and of the character encoder among them, against central differences
 * of the loss, for every norm whose backward is the derivative, pre- and post-norm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/tagger.h"

enum { WORDS = 9, TAGS = 5, TOKENS = 7, CHARS = 12 };

static const int32_t offsets[] = {0, 4, 5, 7}, words[] = {1, 2, 3, 1, 8, 0, 4},
                     gold[] = {0, 1, 2, 0, 4, 1, 3};
static const int32_t char_offsets[] = {0, 1, 3, 6, 7, 9, 10, 12};
static const int32_t chars[] = {2, 3, 4, 2, 5, 5, 1, 6, 2, 3, 4, 6}, bigrams[] = {1, 2, 0, 3, 4, 1, 2};
static const int32_t before[] = {0, 0, 3, 0, 2, 5, 0, 0, 6, 0, 0, 4},
                     behind[] = {0, 4, 0, 5, 5, 0, 0, 2, 0, 0, 6, 0};

static const nm_tagger_inputs inputs = {
    .chars = {.n_seqs = TOKENS, .n_tokens = CHARS, .longest = 3, .offsets = char_offsets},
    .char_ids = chars,
    .char_before = before,
    .char_behind = behind,
    .bigrams = bigrams};
static const nm_batch batch = {.n = 3,
                               .units = 3,
                               .tokens = TOKENS,
                               .source = {.n_seqs = 3, .n_tokens = TOKENS, .longest = 4, .offsets = offsets},
                               .source_ids = words,
                               .target_out = gold,
                               .more = &inputs};

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

static void rig_open(rig *r, const char *norm, bool pre)
{
    static const nm_tagger_sizes more = {.chars = 7, .bigrams = 5};
    static const nm_model_sizes sizes = {.source = WORDS, .target = TAGS, .more = &more};
    const char *const settings[] = {"model.preset",
                                    "tiny",
                                    "model.width",
                                    "8",
                                    "model.ff",
                                    "12",
                                    "model.layers",
                                    "2",
                                    "model.word_dim",
                                    "5",
                                    "model.char_dim",
                                    "3",
                                    "model.bigram_dim",
                                    "2",
                                    "model.max_positions",
                                    "16",
                                    "model.relu_dropout",
                                    "0.2",
                                    "model.attention_dropout",
                                    "0.2",
                                    "model.output_dropout",
                                    "0.3",
                                    "model.char_dropout",
                                    "0.2",
                                    "model.placement",
                                    pre ? "pre" : "post",
                                    "model.norm",
                                    norm,
                                    NULL};
    const nm_backend_options device = {.name = "ref", .dtype = NM_F64, .fenced = true};
    nm_error err;
    check(nm_backend_create(&r->backend, &device, &err), &err);
    r->options = nm_options_create();
    nm_model_options_add(r->options, &nm_model_tagger);
    for (int i = 0; settings[i]; i += 2)
        check(nm_options_set(r->options, settings[i], settings[i + 1], NM_ORIGIN_FILE, &err), &err);
    check(nm_model_create(&r->model, &nm_model_tagger, r->backend, r->options, &sizes, true, &err), &err);
    nm_params_initialize(&r->model->params, 1);
    check(nm_tape_init(&r->tape, r->backend, (size_t)1 << 26, &err), &err);
}

static void rig_close(rig *r)
{
    nm_tape_release(&r->tape);
    nm_model_free(r->model);
    nm_options_free(r->options);
    nm_backend_free(r->backend);
}

/* The state of norms is put back, so every call sees the same. */
static double loss_of(rig *r, bool backward)
{
    nm_params *params = &r->model->params;
    nm_norm_memory memory = nm_norm_memory_keep(params);
    nm_error err;
    double sums[2];
    nm_tape_start(&r->tape, true, 5, 3);
    r->tape.mean_weight = batch.units;
    nm_packing packing = nm_tape_packing(&r->tape, &batch.source);
    nm_tensor *emissions = nm_tagger_emissions(r->model, &r->tape, &batch);
    const double *device = nm_crf_loss(&r->tape, emissions, &nm_tagger_of(r->model)->crf, &packing, gold);
    assert_non_null(device);
    r->backend->k.download(r->backend, sums, device, sizeof sums);
    if (backward)
        check(nm_tape_backward(&r->tape, &err), &err);
    nm_norm_memory_put_back(&memory, params);
    return sums[0];
}

static double *keep_gradients(rig *r)
{
    nm_params *params = &r->model->params;
    double *grads = malloc(params->n_elements * sizeof *grads);
    r->backend->k.zero(r->backend, params->grads, params->n_elements * sizeof(double));
    loss_of(r, true);
    r->backend->k.download(r->backend, grads, params->grads, params->n_elements * sizeof *grads);
    return grads;
}

/* One parameter along one random direction. */
static void check_parameter(rig *r, size_t p, const double *grads)
{
    nm_backend *b = r->backend;
    nm_tensor *t = &r->model->params.list[p]->tensor;
    size_t n = (size_t)t->rows * (size_t)t->cols;
    double *value = malloc(n * sizeof *value), *moved = malloc(n * sizeof *moved), expected = 0, sides[2];
    const double step = 1e-5;
    b->k.download(b, value, t->data, n * sizeof *value);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++) {
            nm_random_words w = nm_random4(9, NM_RANDOM_TEST, (uint32_t)p, 0, i);
            double direction = nm_random_normal(w.w[0], w.w[1]);
            moved[i] = value[i] + (side ? -step : step) * direction;
            expected += side ? 0 : direction * grads[i];
        }
        b->k.upload(b, t->data, moved, n * sizeof *moved);
        sides[side] = loss_of(r, false);
    }
    b->k.upload(b, t->data, value, n * sizeof *value);
    double measured = (sides[0] - sides[1]) / (2 * step);
    if (!(fabs(measured - expected) <= 1e-6 * (1 + fabs(expected))))
        fail_msg("%s: backward %.12g, differences %.12g", t->name, expected, measured);
    free(value);
    free(moved);
}

static void check_model(const char *norm, bool pre)
{
    rig r;
    rig_open(&r, norm, pre);
    double *grads = keep_gradients(&r);
    for (size_t p = 0; p < r.model->params.n; p++)
        if (!r.model->params.list[p]->fixed)
            check_parameter(&r, p, grads + r.model->params.list[p]->offset);
    free(grads);
    rig_close(&r);
}

/* RBN's penalty is no part of this loss, and PN, MABN and Batch Renormalization do not give the derivative. */
static void every_exact_norm(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        bool exact = !((*type)->traits & (NM_APPROX_GRAD | NM_HAS_PENALTY)) &&
                     strcmp((*type)->name, "renorm") && strcmp((*type)->name, "fix");
        for (int pre = 0; exact && pre < 2; pre++)
            if (pre || strcmp((*type)->name, "none"))
                check_model((*type)->name, pre);
    }
}

/* Nothing that the model computes for a sentence depends on its company. */
static void sentences_are_alone(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "layer", false);
    double together[TOKENS * TAGS], alone[TAGS];
    nm_tape_start(&r.tape, false, 0, 0);
    nm_tensor *all = nm_tagger_emissions(r.model, &r.tape, &batch);
    r.backend->k.download(r.backend, together, all->data, sizeof together);
    const int32_t one_word[] = {0, 1}, two_chars[] = {0, 2};
    const nm_tagger_inputs own = {.chars = {.n_seqs = 1, .n_tokens = 2, .longest = 2, .offsets = two_chars},
                                  .char_ids = chars + 7,
                                  .char_before = before + 7,
                                  .char_behind = behind + 7,
                                  .bigrams = bigrams + 4};
    const nm_batch second = {.n = 1,
                             .source = {.n_seqs = 1, .n_tokens = 1, .longest = 1, .offsets = one_word},
                             .source_ids = words + 4,
                             .more = &own};
    nm_tape_start(&r.tape, false, 0, 0);
    nm_tensor *emissions = nm_tagger_emissions(r.model, &r.tape, &second);
    r.backend->k.download(r.backend, alone, emissions->data, sizeof alone);
    assert_memory_equal(alone, together + 4 * TAGS, sizeof alone);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_exact_norm),
                                       cmocka_unit_test(sentences_are_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
