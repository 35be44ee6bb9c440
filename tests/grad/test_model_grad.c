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
        {"model.norm", "batch", "model.decoder_norm", "batch", "norm.batch.count_padding", "true"},
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

/* Memory of the device, heap. */
static double *downloaded(const nm_norm_call *call, const void *data, int32_t count)
{
    double *values = malloc((size_t)count * sizeof *values);
    nm_backend_download(call->backend, values, data, (size_t)count * sizeof *values);
    return values;
}

static double *published(const nm_norm_call *call, const char *name)
{
    for (int i = 0; i < call->n_published; i++)
        if (!strcmp(call->published[i].name, name))
            return downloaded(call, call->published[i].data, call->x.cols);
    fail_msg("%s is not published", name);
    return NULL;
}

/* The batches above, padded to 3 x 5 and 3 x 4 tokens. */
static double share_of(const nm_norm_call *call)
{
    return !strncmp(call->norm->site.name, "enc", 3) ? 9.0 / 15 : 9.0 / 12;
}

/* The variance over the padded batch, whose padding has the value of the mean. */
static void check_variance(void *calls, const nm_norm_call *call, bool backward)
{
    ++*(int *)calls;
    if (backward)
        return;
    int32_t width = call->x.cols;
    double *x = downloaded(call, call->x.data, 9 * width), *variance = published(call, "batch_var");
    for (int32_t k = 0; k < width; k++) {
        double mean = 0, sum = 0;
        for (int32_t i = 0; i < 9; i++)
            mean += x[i * width + k] / 9;
        for (int32_t i = 0; i < 9; i++)
            sum += (x[i * width + k] - mean) * (x[i * width + k] - mean);
        assert_true(fabs(variance[k] - sum / 9 * share_of(call)) < 1e-12);
    }
    free(x);
    free(variance);
}

/* PowerNorm: the sum of dy z that enters the state of the backward pass. */
static void check_backward_sum(void *calls, const nm_norm_call *call, bool backward)
{
    enum { SUM_DY_Z = 2 };
    ++*(int *)calls;
    if (!backward)
        return;
    double *sum = published(call, "grad_sum_z");
    double *collected = downloaded(call, call->norm->statistics[SUM_DY_Z], call->x.cols);
    for (int32_t k = 0; k < call->x.cols; k++)
        assert_true(fabs(collected[k] - sum[k] * share_of(call)) < 1e-12);
    free(sum);
    free(collected);
}

static void test_counted_padding(void **state)
{
    (void)state;
    static const char *const norms[] = {"batch", "power"};
    for (int i = 0; i < 2; i++) {
        const char *const settings[] = {"model.norm",
                                        norms[i],
                                        "model.decoder_norm",
                                        norms[i],
                                        "norm.batch.count_padding",
                                        "true",
                                        "norm.power.count_padding",
                                        "true",
                                        NULL};
        int calls = 0;
        model_rig r;
        rig_open(&r, settings);
        r.batch = batch;
        r.tape.listener = &calls;
        r.tape.listen = i ? check_backward_sum : check_variance;
        model_softmax_loss(&r, true);
        assert_int_equal(calls, 2 * r.model->params.n_norms);
        model_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_exact_norm), cmocka_unit_test(test_presets_of_the_papers),
        cmocka_unit_test(test_activations),      cmocka_unit_test(test_structures),
        cmocka_unit_test(test_guided_alignment), cmocka_unit_test(test_counted_padding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
