/* A small tagger in double on the ref backend with fenced memory: gradients of all parameters, including the
 * conditional random field, relative attention and the character encoder, against central differences of the
 * loss, for every norm whose backward is the derivative, pre- and post-norm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model/tagger_model.h"
#include "model_gradients.h"

enum { WORDS = 9, TAGS = 5, TOKENS = 7, CHARS = 12 };

static const int32_t offsets[] = {0, 4, 5, 7}, words[] = {1, 2, 3, 1, 8, 0, 4},
                     gold[] = {0, 1, 2, 0, 4, 1, 3};
static const int32_t char_offsets[] = {0, 1, 3, 6, 7, 9, 10, 12};
static const int32_t chars[] = {2, 3, 4, 2, 5, 5, 1, 6, 2, 3, 4, 6}, bigrams[] = {1, 2, 0, 3, 4, 1, 2};
static const int32_t before[] = {0, 0, 3, 0, 2, 5, 0, 0, 6, 0, 0, 4},
                     after[] = {0, 4, 0, 5, 5, 0, 0, 2, 0, 0, 6, 0};

static const nm_tagger_model_inputs inputs = {
    .chars = {.n_seqs = TOKENS, .n_tokens = CHARS, .longest = 3, .offsets = char_offsets},
    .char_ids = chars,
    .char_before = before,
    .char_after = after,
    .bigrams = bigrams};
static const nm_batch batch = {.n = 3,
                               .n_targets = 3,
                               .tokens = TOKENS,
                               .source = {.n_seqs = 3, .n_tokens = TOKENS, .longest = 4, .offsets = offsets},
                               .source_ids = words,
                               .target_out = gold,
                               .more = &inputs};

static void rig_open(model_rig *r, const char *norm, bool pre)
{
    static const nm_tagger_model_sizes more = {.chars = 7, .bigrams = 5};
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
                                    "model.norm_position",
                                    pre ? "pre" : "post",
                                    "model.norm",
                                    norm,
                                    NULL};
    static const char *const nothing[] = {NULL};
    model_rig_open(r, &nm_model_tagger, &sizes, settings, nothing);
}

/* The running state of norms is restored, so that every call reads the same. */
static double loss_of(void *user, bool backward)
{
    model_rig *r = user;
    nm_params *params = &r->model->params;
    nm_norm_snapshot memory = nm_norm_snapshot_save(params);
    nm_error err;
    double sums[2];
    nm_tape_start(&r->tape, true, 5, 3);
    r->tape.n_targets = batch.n_targets;
    nm_packing packing = nm_tape_packing(&r->tape, &batch.source);
    nm_tensor *emissions = nm_tagger_model_emissions(r->model, &r->tape, &batch);
    const double *device =
        nm_crf_loss(&r->tape, emissions, &nm_tagger_model_of(r->model)->crf, &packing, gold);
    assert_non_null(device);
    nm_backend_download(r->backend, sums, device, sizeof sums);
    if (backward)
        check(nm_tape_backward(&r->tape, &err), &err);
    nm_norm_snapshot_restore(&memory, params);
    return sums[0];
}

/* This loss is without RBN's penalty, and the backward of PN, MABN and Batch Renormalization is not the
 * derivative. */
static void test_every_exact_norm(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        for (int pre = 0; pre < 2; pre++) {
            model_rig r;
            if (!norm_is_differentiable(*type, !pre))
                continue;
            rig_open(&r, (*type)->name, pre);
            model_rig_check(&r, loss_of);
        }
}

/* Results of a sentence do not depend on the other sentences of the batch. */
static void test_sentences_are_independent(void **state)
{
    (void)state;
    model_rig r;
    rig_open(&r, "layer", false);
    double together[TOKENS * TAGS], alone[TAGS];
    nm_tape_start(&r.tape, false, 0, 0);
    nm_tensor *all = nm_tagger_model_emissions(r.model, &r.tape, &batch);
    nm_backend_download(r.backend, together, all->data, sizeof together);
    const int32_t one_word[] = {0, 1}, two_chars[] = {0, 2};
    const nm_tagger_model_inputs own = {
        .chars = {.n_seqs = 1, .n_tokens = 2, .longest = 2, .offsets = two_chars},
        .char_ids = chars + 7,
        .char_before = before + 7,
        .char_after = after + 7,
        .bigrams = bigrams + 4};
    const nm_batch second = {.n = 1,
                             .source = {.n_seqs = 1, .n_tokens = 1, .longest = 1, .offsets = one_word},
                             .source_ids = words + 4,
                             .more = &own};
    nm_tape_start(&r.tape, false, 0, 0);
    nm_tensor *emissions = nm_tagger_model_emissions(r.model, &r.tape, &second);
    nm_backend_download(r.backend, alone, emissions->data, sizeof alone);
    assert_memory_equal(alone, together + 4 * TAGS, sizeof alone);
    model_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_exact_norm),
                                       cmocka_unit_test(test_sentences_are_independent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
