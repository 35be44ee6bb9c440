/* Structures of layers (model.norm_position, model.residual and others): identities between them, initial
 * values, and combinations that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "model/lm.h"
#include "model/seq2seq.h"

enum { WORDS = 9, TOKENS = 7, WIDTH = 8 };

typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    nm_tape tape;
} rig;

/* settings: "key=value key=value" of the section [model], or with a section */
static nm_status rig_open(rig *r, const nm_model_type *type, const char *settings, nm_error *err)
{
    const nm_backend_options device = {.name = "ref", .dtype = NM_F64};
    const nm_model_sizes sizes = {.source = WORDS, .target = WORDS};
    char *copy = nm_format("preset=tiny width=8 ff=12 heads=2 dropout=0 embedding_dropout=0 %s%s",
                           type == &nm_model_tagger ? "" : "init=xavier-normal ", settings),
         *rest = copy;
    *r = (rig){0};
    assert_int_equal(nm_backend_create(&r->backend, &device, err), NM_OK);
    r->options = nm_options_create();
    nm_model_options_add(r->options, type);
    nm_norm_options_add(r->options);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        char *name = nm_format("%s%.*s", memchr(word, '.', (size_t)(equals - word)) ? "" : "model.",
                               (int)(equals - word), word);
        if (nm_options_set(r->options, name, equals + 1, NM_ORIGIN_COMMAND, err) != NM_OK)
            fail_msg("%s", err->text);
        free(name);
    }
    free(copy);
    NM_TRY(nm_model_create(&r->model, type, r->backend, r->options, &sizes, true, err));
    nm_params_initialize(&r->model->params, 3);
    return nm_tape_init(&r->tape, r->backend, (size_t)16 << 20, err);
}

static void rig_close(rig *r)
{
    if (r->tape.backend)
        nm_tape_release(&r->tape);
    nm_model_free(r->model);
    nm_options_free(r->options);
    nm_backend_free(r->backend);
}

static const int32_t offsets[] = {0, 3, TOKENS};
static const nm_packing packing = {2, TOKENS, 4, offsets, offsets};

/* The output of the language model's stack for an input that depends on the element only, [TOKENS, WIDTH]
 * (free). with_input: the input itself. */
static double *run_stack(rig *r, bool with_input)
{
    nm_tape *tape = &r->tape;
    nm_tape_start(tape, false, 1, 1);
    nm_tensor *x = nm_tape_tensor(tape, TOKENS, WIDTH);
    double *values = nm_allocate(TOKENS * WIDTH * sizeof *values);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        values[i] = sin(1.7 * i + 0.3);
    nm_backend_write(r->backend, x->data, values, TOKENS * WIDTH);
    if (with_input)
        return values;
    nm_tensor *y = nm_stack_forward(tape, &nm_lm_of(r->model)->stack, x, &packing, NULL, NULL, NULL);
    nm_backend_read(r->backend, values, y->data, TOKENS * WIDTH);
    return values;
}

static double *output_of(const char *settings)
{
    rig r;
    nm_error err = {0};
    if (rig_open(&r, &nm_model_lm, settings, &err) != NM_OK)
        fail_msg("%s: %s", settings, err.text);
    double *values = run_stack(&r, false);
    rig_close(&r);
    return values;
}

static double largest_difference(const double *a, const double *b)
{
    double largest = 0;
    for (int i = 0; i < TOKENS * WIDTH; i++)
        largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

/* The second model gets the parameters of the first one that have the same name. */
static void assert_equal_outputs(const char *a, const char *b, double tolerance)
{
    rig r[2];
    nm_error err;
    assert_int_equal(rig_open(&r[0], &nm_model_lm, a, &err), NM_OK);
    assert_int_equal(rig_open(&r[1], &nm_model_lm, b, &err), NM_OK);
    for (size_t i = 0; i < r[0].model->params.n; i++) {
        const nm_tensor *from = &r[0].model->params.list[i]->tensor;
        const nm_param *to = nm_params_find(&r[1].model->params, from->name);
        if (to)
            nm_backend_upload(r[1].backend, to->tensor.data, from->data,
                              (size_t)from->rows * (size_t)from->cols * sizeof(double));
    }
    double *left = run_stack(&r[0], false), *right = run_stack(&r[1], false);
    rig_close(&r[0]);
    rig_close(&r[1]);
    if (!(largest_difference(left, right) <= tolerance))
        fail_msg("'%s' and '%s' differ by %g", a, b, largest_difference(left, right));
    free(left);
    free(right);
}

/* ReZero and SkipInit begin as the identity, LayerScale with 0 as well. */
static void test_untrained_stack_is_the_identity(void **state)
{
    (void)state;
    static const char *const settings[] = {"residual=rezero final_norm=none",
                                           "residual=skipinit final_norm=none",
                                           "residual=layerscale layer_scale=0 final_norm=none",
                                           "residual=rezero norm_position=inside final_norm=none"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        rig r;
        nm_error err;
        assert_int_equal(rig_open(&r, &nm_model_lm, settings[i], &err), NM_OK);
        double *x = run_stack(&r, true), *y = run_stack(&r, false);
        assert_memory_equal(x, y, TOKENS * WIDTH * sizeof *x);
        free(x);
        free(y);
        rig_close(&r);
    }
}

static void test_identities(void **state)
{
    (void)state;
    static const char *const equal[][2] = {
        {"layers=1 residual=depth-scaled", "layers=1"},
        {"residual=layerscale layer_scale=1", ""},
        {"key_value_heads=2", ""},
        {"head_width=4", ""},
        /* without final norm, mix with all layers post-norm is post-norm */
        {"norm_position=mix post_layers=2 final_norm=none", "norm_position=post"},
        /* norms without effect */
        {"norm_position=sandwich norm=none", "norm=none"},
        {"norm_position=inside norm=none", "norm=none"},
        {"norm_position=sub norm=none", "norm=none"},
        {"qk_norm=head qk_norm_type=none v_norm=head", ""}};
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        assert_equal_outputs(equal[i][0], equal[i][1], 1e-14);
}

/* Every structure differs from every other one. */
static void test_structures_differ(void **state)
{
    (void)state;
    static const char *const settings[] = {"",
                                           "norm_position=post",
                                           "norm_position=sandwich",
                                           "norm_position=inside",
                                           "norm_position=mix",
                                           "norm_position=sub",
                                           "norm_position=post residual=deepnorm",
                                           "residual=depth-scaled",
                                           "residual=layerscale",
                                           "residual=rezero",
                                           "norm_position=post residual=resi-dual",
                                           "embedding_norm=layer",
                                           "activation=silu",
                                           "gated=true",
                                           "gated=true activation=silu",
                                           "bias=false init=torch",
                                           "key_value_heads=1",
                                           "head_width=6",
                                           "rope=half",
                                           "rope=interleaved",
                                           "rope=half rope_base=100",
                                           "rope=half rope_scaling=linear",
                                           "rope=half rope_scaling=llama3 rope_original=8",
                                           "qk_norm=head",
                                           "qk_norm=full",
                                           "qk_norm=head v_norm=head",
                                           "qk_norm=head qk_norm_type=layer",
                                           "init=deepnorm",
                                           "init=subln",
                                           "init=torchscale"};
    enum { N = sizeof settings / sizeof *settings };
    double *outputs[N];
    for (int i = 0; i < N; i++)
        outputs[i] = output_of(settings[i]);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++)
            if (largest_difference(outputs[i], outputs[j]) < 1e-6)
                fail_msg("'%s' and '%s' are equal", settings[i], settings[j]);
    for (int i = 0; i < N; i++)
        free(outputs[i]);
}

/* A sequence does not depend on the others of its batch, with rotations by the position in the sequence. */
static void test_sequences_are_independent(void **state)
{
    (void)state;
    static const char *const settings[] = {"rope=half", "rope=interleaved qk_norm=head",
                                           "key_value_heads=1 rope=half"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        rig r;
        nm_error err;
        assert_int_equal(rig_open(&r, &nm_model_lm, settings[i], &err), NM_OK);
        double *both = run_stack(&r, false);
        nm_tape_start(&r.tape, false, 1, 1);
        enum { FIRST = 3, REST = TOKENS - FIRST };
        nm_tensor *x = nm_tape_tensor(&r.tape, REST, WIDTH);
        double values[REST * WIDTH];
        for (int k = 0; k < REST * WIDTH; k++)
            values[k] = sin(1.7 * (k + FIRST * WIDTH) + 0.3);
        nm_backend_write(r.backend, x->data, values, REST * WIDTH);
        const int32_t alone[] = {0, REST};
        const nm_packing one = {1, REST, REST, alone, alone};
        nm_tensor *y = nm_stack_forward(&r.tape, &nm_lm_of(r.model)->stack, x, &one, NULL, NULL, NULL);
        nm_backend_read(r.backend, values, y->data, REST * WIDTH);
        assert_memory_equal(values, both + FIRST * WIDTH, sizeof values);
        free(both);
        rig_close(&r);
    }
}

static double deviation(const rig *r, const char *name, int32_t first, int32_t rows)
{
    const nm_tensor *t = &nm_params_find(&r->model->params, name)->tensor;
    size_t n = (size_t)rows * (size_t)t->cols;
    double *values = nm_allocate(n * sizeof *values), sum = 0;
    nm_backend_read(r->backend, values, (char *)t->data + (size_t)first * (size_t)t->cols * sizeof(double),
                    n);
    for (size_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    free(values);
    return sqrt(sum / (double)n);
}

/* DeepNet's factors of the values, but not of the queries and keys. */
static void test_initial_values_of_deepnorm(void **state)
{
    (void)state;
    rig plain, deep;
    nm_error err;
    const char *sizes = "width=64 ff=64 encoder_layers=3 decoder_layers=5 norm_position=post";
    char *a = nm_format("%s init=xavier-normal", sizes), *b = nm_format("%s init=deepnorm", sizes);
    assert_int_equal(rig_open(&plain, &nm_model_seq2seq, a, &err), NM_OK);
    assert_int_equal(rig_open(&deep, &nm_model_seq2seq, b, &err), NM_OK);
    double encoder = 0.87 * pow(81 * 5, -1.0 / 16), decoder = pow(60, -0.25);
    const struct {
        const char *name;
        int32_t first, rows;
        double factor;
    } parts[] = {{"enc.0.self.qkv.weight", 0, 128, 1},
                 {"enc.0.self.qkv.weight", 128, 64, encoder},
                 {"enc.2.self.out.weight", 0, 64, encoder},
                 {"enc.1.ffn.in.weight", 0, 64, encoder},
                 {"dec.4.cross.q.weight", 0, 64, 1},
                 {"dec.4.cross.kv.weight", 0, 64, 1},
                 {"dec.4.cross.kv.weight", 64, 64, decoder},
                 {"dec.0.cross.out.weight", 0, 64, decoder},
                 {"dec.0.self.qkv.weight", 128, 64, decoder},
                 {"dec.3.ffn.out.weight", 0, 64, decoder},
                 {"embed.weight", 0, WORDS, 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double before = deviation(&plain, parts[i].name, parts[i].first, parts[i].rows);
        double after = deviation(&deep, parts[i].name, parts[i].first, parts[i].rows);
        if (fabs(after / before - parts[i].factor) > 1e-12)
            fail_msg("%s: %g instead of %g", parts[i].name, after / before, parts[i].factor);
    }
    free(a);
    free(b);
    rig_close(&plain);
    rig_close(&deep);
}

/* Element i of a bias of a model with this initialization. */
static double bias_element(const char *init, const char *name, int i)
{
    rig r;
    nm_error err;
    char *settings =
        nm_format("width=64 ff=64 encoder_layers=3 decoder_layers=5 norm_position=post init=%s", init);
    double values[192];
    assert_int_equal(rig_open(&r, &nm_model_seq2seq, settings, &err), NM_OK);
    const nm_tensor *bias = &nm_params_find(&r.model->params, name)->tensor;
    assert_in_range(bias->cols, i + 1, 192);
    nm_backend_read(r.backend, values, bias->data, (size_t)bias->cols);
    free(settings);
    rig_close(&r);
    return values[i];
}

/* The released code of DeepNet and Sub-LN scales the biases of values, outputs and feed-forward layers,
 * too. */
static void test_initial_biases(void **state)
{
    (void)state;
    double deepnet = 1.15 * pow(81 * 5, -1.0 / 16), subln = sqrt(log(15) * log(6) / 3);
    const struct {
        const char *name;
        int element;
        double ratio;
    } parts[] = {{"enc.0.self.qkv.bias", 0, 1},
                 {"enc.0.self.qkv.bias", 127, 1},
                 {"enc.0.self.qkv.bias", 128, subln / deepnet},
                 {"enc.0.self.qkv.bias", 191, subln / deepnet},
                 {"enc.2.self.out.bias", 63, subln / deepnet},
                 {"enc.2.ffn.in.bias", 5, subln / deepnet},
                 {"dec.0.cross.kv.bias", 127, pow(60, 0.25)}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double a = bias_element("torchscale", parts[i].name, parts[i].element),
               b = bias_element("subln", parts[i].name, parts[i].element);
        if (!(fabs(b / a - parts[i].ratio) < 1e-12))
            fail_msg("%s[%d]: %g instead of %g", parts[i].name, parts[i].element, b / a, parts[i].ratio);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const nm_model_type *type;
        const char *settings, *reason;
    } refused[] = {
        {&nm_model_lm, "residual=deepnorm", "deepnorm needs model.norm_position = post"},
        {&nm_model_lm, "residual=resi-dual norm_position=sandwich",
         "resi-dual needs model.norm_position = post"},
        {&nm_model_lm, "residual=admin", "admin needs model.norm_position = post"},
        {&nm_model_lm, "init=admin norm_position=post", "needs model.residual = admin"},
        {&nm_model_lm, "residual=depth-scaled norm_position=post", "scales the norms before sublayers"},
        {&nm_model_lm, "key_value_heads=3", "not a multiple of model.key_value_heads = 3"},
        {&nm_model_lm, "heads=3", "not a multiple of model.heads = 3"},
        {&nm_model_seq2seq, "heads=3", "not a multiple of model.heads = 3"},
        {&nm_model_classifier, "heads=3", "not a multiple of model.heads = 3"},
        {&nm_model_tagger, "heads=3", "not a multiple of model.heads = 3"},
        {&nm_model_lm, "rope=half head_width=3", "even number of features per head, not 3"},
        {&nm_model_lm, "norm_position=mix post_layers=3", "the stack lm has 2 layers"},
        {&nm_model_lm, "rope=half rope_scaling=llama3 rope_low=4 rope_high=4",
         "4 is not below model.rope_high"},
        {&nm_model_lm, "rope=half rope_scaling=llama3 rope_low=5 rope_high=4",
         "5 is not below model.rope_high"},
        {&nm_model_lm, "init=tfixup", "encoder and decoder"},
        {&nm_model_lm, "embedding_norm=laier", "unknown norm 'laier'"},
        {&nm_model_lm, "qk_norm=head qk_norm_type=rmsnorm", "unknown norm 'rmsnorm'"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        rig r;
        nm_error err = {0};
        if (rig_open(&r, refused[i].type, refused[i].settings, &err) == NM_OK ||
            !strstr(err.text, refused[i].reason))
            fail_msg("%s: '%s'", refused[i].settings, err.text);
        nm_options_free(r.options);
        nm_backend_free(r.backend);
    }
    static const char *const accepted[] = {"norm_position=mix post_layers=2",
                                           "rope=half rope_scaling=llama3 rope_low=3.9 rope_high=4",
                                           "rope=half rope_scaling=linear rope_low=4 rope_high=4"};
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        rig r;
        nm_error err = {0};
        if (rig_open(&r, &nm_model_lm, accepted[i], &err) != NM_OK)
            fail_msg("%s: '%s'", accepted[i], err.text);
        rig_close(&r);
    }
}

/* The frequencies of transformers' function for rope_type = llama3, which is defined by wavelengths. */
static double llama3_frequency(double f, double factor, double low, double high, double context)
{
    double wavelength = 2 * acos(-1) / f, low_wavelength = context / low, high_wavelength = context / high;
    double smooth = (context / wavelength - low) / (high - low);
    return wavelength < high_wavelength  ? f
           : wavelength > low_wavelength ? f / factor
                                         : (1 - smooth) * f / factor + smooth * f;
}

static void test_scaled_rotations(void **state)
{
    (void)state;
    enum { FEATURES = 64 };
    nm_rope_angles plain = {.base = 500000}, linear = {500000, NM_ROPE_LINEAR, 4, 1, 4, 8192},
                   llama3 = {500000, NM_ROPE_LLAMA3, 8, 1, 4, 8192};
    int kept = 0, divided = 0, between = 0;
    for (int32_t j = 0; j < FEATURES / 2; j++) {
        double f = nm_rope_frequency(&plain, j, FEATURES), scaled = nm_rope_frequency(&llama3, j, FEATURES);
        assert_true(fabs(f - pow(500000, -j / 32.0)) <= 1e-12 * f);
        assert_true(fabs(nm_rope_frequency(&linear, j, FEATURES) - f / 4) <= 1e-12 * f);
        assert_true(fabs(scaled - llama3_frequency(f, 8, 1, 4, 8192)) <= 1e-12 * f);
        kept += scaled == f;
        divided += scaled == f / 8;
        between += scaled < f && scaled > f / 8;
    }
    assert_int_equal(kept + divided + between, FEATURES / 2);
    assert_true(kept > 5 && divided > 5 && between > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_untrained_stack_is_the_identity),
                                       cmocka_unit_test(test_identities),
                                       cmocka_unit_test(test_structures_differ),
                                       cmocka_unit_test(test_sequences_are_independent),
                                       cmocka_unit_test(test_initial_values_of_deepnorm),
                                       cmocka_unit_test(test_initial_biases),
                                       cmocka_unit_test(test_scaled_rotations),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
