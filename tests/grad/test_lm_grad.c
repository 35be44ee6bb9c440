/* Small language models in double on the ref backend with fenced memory: gradients of all parameters against
 * central differences, for softmax attention, causal and non-causal block-term attention, plain and adaptive
 * softmax. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model/lm.h"
#include "model_gradients.h"

enum { VOCAB = 13, LENGTH = 4 };

static const int32_t full[] = {0, LENGTH, 2 * LENGTH}, ragged[] = {0, LENGTH, 2 * LENGTH - 1};
static const int32_t words[] = {2, 5, 9, 12, 2, 7, 5, 1, 4}, places[] = {0, 1, 2, 3, 0, 1, 2, 3};

static void rig_open(model_rig *r, const char *const *settings)
{
    static const char *const common[] = {
        "model.preset",     "tiny", "model.width",   "8", "model.ff", "12", "model.heads", "2",
        "model.core_width", "3",    "model.context", "4", NULL};
    static const nm_model_sizes sizes = {.source = VOCAB, .target = VOCAB, .plan = {.warmup_updates = 4}};
    model_rig_open(r, &nm_model_lm, &sizes, common, settings);
}

/* Differences are too small with N(0, 0.02): initial values are ten times larger. */
static void rig_enlarge(model_rig *r)
{
    nm_params *params = &r->model->params;
    for (size_t i = 0; i < params->n; i++) {
        nm_tensor *t = &params->list[i]->tensor;
        nm_mat all = nm_mat_of(t->data, t->rows, t->cols);
        if (!strstr(t->name, "norm"))
            NM_CALL(r->backend, scale, .alpha = 10, .x = all, .y = all);
    }
}

static double loss_of(void *user, bool training)
{
    model_rig *r = user;
    nm_error err;
    const int32_t *offsets = nm_lm_config_of(r->model)->causal ? ragged : full;
    nm_batch batch = {.n = 2,
                      .target = {2, offsets[2], LENGTH, offsets, NULL},
                      .target_in = words,
                      .target_out = words + 1,
                      .target_pos = places};
    nm_norm_snapshot memory = nm_norm_snapshot_save(&r->model->params);
    nm_tape_start(&r->tape, true, 5, 0);
    r->tape.n_targets = offsets[2];
    nm_loss_spec spec = {.eps = 0.1, .targets = words + 1};
    double pair[2], *sums = nm_lm_loss(r->model, &r->tape, nm_lm_hidden(r->model, &r->tape, &batch), &spec);
    assert_non_null(sums);
    nm_backend_download(r->backend, pair, sums, sizeof pair);
    if (training)
        check(nm_tape_backward(&r->tape, &err), &err);
    nm_norm_snapshot_restore(&memory, &r->model->params);
    return pair[0];
}

static void run(const char *const *settings)
{
    model_rig r;
    rig_open(&r, settings);
    rig_enlarge(&r);
    model_rig_check(&r, loss_of);
}

static void test_softmax_attention(void **state)
{
    (void)state;
    static const char *const pre[] = {"model.hidden_dropout", "0.2", "model.dropout", "0.2", NULL};
    static const char *const learned[] = {"model.positions",
                                          "learned",
                                          "model.norm_position",
                                          "post",
                                          "model.embedding_dropout",
                                          "0.2",
                                          "model.share_embeddings",
                                          "false",
                                          NULL};
    static const char *const batch[] = {"model.norm", "batch", "model.output_bias", "false", NULL};
    run(pre);
    run(learned);
    run(batch);
}

/* One matrix with the gradients of both uses: GPT-2, and Gemma, whose embeddings are multiplied by
 * sqrt(d). */
static void test_shared_embeddings(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2", "gemma3", "llama"}, *const scales[] = {"none", "sqrt"};
    for (int preset = 0; preset < 3; preset++)
        for (int scale = 0; scale < 2; scale++) {
            const char *const settings[] = {"model.preset",
                                            presets[preset],
                                            "model.share_embeddings",
                                            "true",
                                            "model.embedding_scale",
                                            scales[scale],
                                            "model.layers",
                                            "1",
                                            NULL};
            run(settings);
        }
}

static void test_structures(void **state)
{
    (void)state;
    static const char *const structures[][15] = {
        {"model.rope", "half", "model.positions", "none", "model.gated", "true", "model.activation", "silu",
         "model.bias", "false", "model.norm", "rms"},
        {"model.window", "2", "model.global_every", "2", "model.rope", "half", "model.local_rope_base", "7",
         "model.attention_dropout", "0.2"},
        {"model.norm_position", "post", "model.residual", "resi-dual", "model.dropout", "0.2"},
        {"model.norm_position", "post", "model.residual", "deepnorm", "model.init", "deepnorm"},
        {"model.norm_position", "inside", "model.qk_norm", "full", "model.dropout", "0.2"},
        {"model.attention", "block-term", "model.norm_position", "sandwich", "model.positions", "none"},
        {"model.attention", "block-term", "model.norm_position", "sub", "model.positions", "none"},
        {"model.embedding_norm", "layer", "model.embedding_dropout", "0.2", "model.residual",
         "depth-scaled"}};
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        run(structures[i]);
}

static void test_block_term_attention(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++)
        for (int post = 0; post < 2; post++) {
            const char *const settings[] = {"model.attention",
                                            "block-term",
                                            "model.causal",
                                            causal ? "true" : "false",
                                            "model.norm_position",
                                            post ? "post" : "pre",
                                            "model.cores",
                                            post ? "2" : "1",
                                            "model.positions",
                                            "none",
                                            "model.norm",
                                            post ? "layer" : "batch",
                                            "model.embedding_dropout",
                                            "0.2",
                                            NULL};
            run(settings);
        }
}

static void test_adaptive_softmax(void **state)
{
    (void)state;
    static const char *const three[] = {"model.adaptive", "true", "model.cutoffs", "3,6,11", NULL};
    static const char *const empty_band[] = {"model.adaptive",
                                             "true",
                                             "model.cutoffs",
                                             "8,10,11",
                                             "model.share_embeddings",
                                             "false",
                                             "model.output_bias",
                                             "false",
                                             NULL};
    run(three);
    run(empty_band);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_attention), cmocka_unit_test(test_shared_embeddings),
        cmocka_unit_test(test_structures), cmocka_unit_test(test_block_term_attention),
        cmocka_unit_test(test_adaptive_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
