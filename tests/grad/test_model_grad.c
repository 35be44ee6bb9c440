/* A small encoder-decoder in double on the ref backend with fenced memory: gradients of all parameters
 * against central differences of the loss, pre- and post-norm, for every norm whose backward is the
 * derivative. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model/seq2seq.h"
#include "model_gradients.h"

enum { VOCAB = 11 };

static const int32_t source_offsets[] = {0, 3, 8, 9}, target_offsets[] = {0, 4, 6, 9};
static const int32_t source_ids[] = {4, 5, 2, 7, 8, 9, 10, 2, 2}, source_pos[] = {0, 1, 2, 0, 1, 2, 3, 4, 0};
static const int32_t target_in[] = {2, 6, 7, 8, 2, 5, 2, 9, 4}, target_out[] = {6, 7, 8, 2, 5, 2, 9, 4, 2};
static const int32_t target_pos[] = {0, 1, 2, 3, 0, 1, 0, 1, 2};

static const nm_batch batch = {
    .n = 3,
    .source = {.n_seqs = 3, .n_tokens = 9, .longest = 5, .offsets = source_offsets},
    .target = {.n_seqs = 3, .n_tokens = 9, .longest = 4, .offsets = target_offsets},
    .source_ids = source_ids,
    .source_pos = source_pos,
    .target_in = target_in,
    .target_out = target_out,
    .target_pos = target_pos};

static void rig_open(model_rig *r, const char *const *settings)
{
    static const char *const common[] = {
        "model.preset", "tiny", "model.width",         "8",  "model.ff", "12",
        "model.heads",  "2",    "model.max_positions", "16", NULL};
    static const nm_model_sizes sizes = {.source = VOCAB, .target = VOCAB, .plan = {.warmup_updates = 4}};
    model_rig_open(r, &nm_model_seq2seq, &sizes, common, settings);
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
            if (!norm_is_differentiable(*type, post))
                continue;
            const char *const settings[] = {"model.norm",
                                            (*type)->name,
                                            "model.decoder_norm",
                                            (*type)->name,
                                            "model.norm_position",
                                            post ? "post" : "pre",
                                            "model.relu_dropout",
                                            "0.2",
                                            "model.attention_dropout",
                                            "0.2",
                                            NULL};
            run(settings);
        }
}

static void test_presets_of_the_papers(void **state)
{
    (void)state;
    static const char *const tears[] = {
        "model.norm", "scale",      "model.fixnorm", "true", "model.output_bias", "true", "model.positions",
        "tears",      "model.init", "small",         NULL};
    static const char *const untied[] = {"model.share_embeddings", "none", "model.init", "xavier-normal",
                                         NULL};
    static const char *const half_tied[] = {
        "model.share_embeddings", "decoder", "model.fixnorm", "true", "model.init", "rbn", NULL};
    run(tears);
    run(untied);
    run(half_tied);
}

static void test_activations(void **state)
{
    (void)state;
    static const char *const activations[] = {"gelu", "gelu-tanh", "silu"};
    for (int i = 0; i < 3; i++) {
        const char *const settings[] = {"model.activation", activations[i], "model.relu_dropout", "0.2",
                                        NULL};
        run(settings);
    }
}

/* Positions of the norms, residual forms, and parts of attention and feed-forward layers. */
static void test_structures(void **state)
{
    (void)state;
    static const char *const structures[][13] = {
        {"model.norm_position", "sandwich", "model.embedding_norm", "rms", "model.embedding_dropout", "0.2"},
        {"model.norm_position", "inside", "model.norm", "rms", "model.residual", "skipinit"},
        {"model.norm_position", "mix", "model.norm", "batch", "model.decoder_norm", "batch"},
        {"model.norm_position", "sub", "model.init", "subln", "model.residual", "depth-scaled"},
        {"model.norm_position", "post", "model.residual", "deepnorm", "model.init", "deepnorm"},
        {"model.norm_position", "post", "model.residual", "admin", "model.init", "admin"},
        {"model.norm_position", "post", "model.residual", "resi-dual", "model.init", "torchscale"},
        {"model.residual", "layerscale", "model.layer_scale", "0.7", "model.norm_position", "sandwich"},
        {"model.residual", "rezero", "model.norm", "none", "model.init", "tfixup"},
        {"model.gated", "true", "model.activation", "silu", "model.bias", "false"},
        {"model.gated", "true", "model.norm_position", "sub", "model.relu_dropout", "0.2"},
        {"model.key_value_heads", "1", "model.rope", "half", "model.positions", "none"},
        {"model.rope", "interleaved", "model.qk_norm", "head", "model.v_norm", "head"},
        {"model.qk_norm", "full", "model.key_value_heads", "1", "model.rope", "half",
         "model.qk_norm_after_rope", "true"},
        {"model.head_width", "6", "model.qk_norm", "head", "model.qk_norm_type", "layer"},
        {"model.qk_norm", "head", "model.qk_norm_type", "batch", "model.bias", "false"}};
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        run(structures[i]);
}

/* Aligned target tokens to none, one and several source tokens, in the first and in the last layer. */
static void test_guided_alignment(void **state)
{
    (void)state;
    static const int32_t offsets[] = {0, 1, 1, 3, 4, 9, 10, 11, 12, 12};
    static const int32_t keys[] = {2, 0, 1, 2, 0, 1, 2, 3, 4, 3, 0, 0};
    for (int32_t layer = 0; layer < 2; layer++) {
        const nm_alignment_guide guide = {
            .offsets = offsets, .keys = keys, .layer = layer, .head = layer, .weight = 0.7};
        const char *const settings[] = {"model.norm_position", layer ? "post" : "pre",
                                        "model.attention_dropout", "0.2", NULL};
        model_rig r;
        rig_open(&r, settings);
        r.batch = batch;
        double plain = model_softmax_loss(&r, false);
        r.batch.more = &guide;
        assert_true(model_softmax_loss(&r, false) > plain + 1);
        model_rig_check(&r, model_softmax_loss);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_exact_norm),
                                       cmocka_unit_test(test_presets_of_the_papers),
                                       cmocka_unit_test(test_activations), cmocka_unit_test(test_structures),
                                       cmocka_unit_test(test_guided_alignment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
