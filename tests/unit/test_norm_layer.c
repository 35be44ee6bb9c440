/* Standalone normalization layers: files, errors, presets, penalties, names, threads. */
#include <pthread.h>

#include "norm_fixture.h"

static void check_save_and_load(const nm_norm_type *type)
{
    nm_norm *saved = create_trained(type), *loaded = create(type->name, settings_of(type));
    nm_error err = {0};
    double a[N], b[N];
    assert_int_equal(nm_norm_save(saved, path, &err), NM_OK);
    assert_int_equal(nm_norm_load(loaded, path, &err), NM_OK);
    for (int step = 0; step < 3; step++) { /* bitwise identical further training */
        assert_int_equal(nm_norm_forward(saved, ROWS, input, a, &err), NM_OK);
        assert_int_equal(nm_norm_forward(loaded, ROWS, input, b, &err), NM_OK);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(nm_norm_backward(saved, upstream, a, &err), NM_OK);
        assert_int_equal(nm_norm_backward(loaded, upstream, b, &err), NM_OK);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_same_state(saved, loaded, 0);
    nm_norm_free(saved);
    nm_norm_free(loaded);
}

static void test_save_and_load(void **unused)
{
    (void)unused;
    for_each_type(check_save_and_load);
}

static void load_fails(nm_norm *norm, nm_status expected, const char *word)
{
    nm_error err = {0};
    assert_int_equal(nm_norm_load(norm, path, &err), expected);
    if (!strstr(err.text, word) || !strstr(err.text, path))
        print_error("%s\n", err.text);
    assert_non_null(strstr(err.text, word));
}

static void test_files_that_do_not_fit(void **unused)
{
    (void)unused;
    nm_norm *power = create("power", NULL), *layer = create("layer", NULL),
            *short_window = create("mabn", "window=3");
    nm_norm *long_window = create("mabn", "window=4"), *wide = NULL;
    nm_norm_site other = place;
    nm_error err;
    other.width = 2 * WIDTH;
    assert_int_equal(nm_norm_create(&wide, ref, "power", NULL, &other, &err), NM_OK);
    assert_int_equal(nm_norm_save(power, path, &err), NM_OK);
    load_fails(layer, NM_MISMATCH, "type 'power'");
    load_fails(wide, NM_MISMATCH, "12 features");
    assert_int_equal(nm_norm_save(short_window, path, &err), NM_OK);
    load_fails(long_window, NM_MISMATCH, "buffer_x2");
    *nm_norm_counter(power, "iters") = -3;
    assert_int_equal(nm_norm_save(power, path, &err), NM_OK);
    *nm_norm_counter(power, "iters") = 5;
    load_fails(power, NM_FORMAT, "negative");
    assert_true(*nm_norm_counter(power, "iters") == 5);
    assert_int_equal(nm_safetensors_finish(nm_safetensors_begin(), path, &err), NM_OK);
    load_fails(layer, NM_MISMATCH, "single normalization layer");
    assert_int_equal(nm_file_write(path, "abc", 3, &err), NM_OK);
    load_fails(layer, NM_FORMAT, "malformed");
    nm_norm_free(power);
    nm_norm_free(layer);
    nm_norm_free(short_window);
    nm_norm_free(long_window);
    nm_norm_free(wide);
}

static void create_fails(const char *type, const char *settings, const nm_norm_site *at, const char *word)
{
    nm_norm *norm;
    nm_error err = {0};
    assert_int_equal(nm_norm_create(&norm, ref, type, settings, at, &err), NM_USAGE);
    assert_null(norm);
    if (!strstr(err.text, word))
        print_error("expected '%s' in '%s'\n", word, err.text);
    assert_non_null(strstr(err.text, word));
}

static void test_usage_errors(void **unused)
{
    (void)unused;
    nm_norm_site odd = place, empty = place, no_groups = place;
    odd.groups = 5;
    no_groups.groups = 0;
    empty.width = 0;
    create_fails(
        "PowerNorm", NULL, &place,
        "unknown norm 'PowerNorm'; the most similar one is power (PowerNorm); available: none, layer");
    create_fails("layernorm", NULL, &place, "the most similar one is layer (LayerNorm)");
    create_fails("BatchNorm1d", NULL, &place, "the most similar one is batch (BatchNorm)");
    create_fails("Regularized BatchNorm", NULL, &place, "the most similar one is rbn");
    create_fails("xyz", NULL, &place, "unknown norm 'xyz'; available");
    create_fails("layers", NULL, &place, "unknown norm 'layers'");
    create_fails("layer", "epsilom=1", &place, "norm.layer.epsilon");
    create_fails("layer", "epsilon=x", &place, "epsilon");
    create_fails("layer", "epsilon", &place, "key=value");
    create_fails("power", "warmup=soon", &place, "norm.power.warmup = soon: expected lr or");
    create_fails("power", "warmup=-1", &place, "norm.power.warmup = -1: expected lr or");
    create_fails("mabn", "warmup=1e3", &place, "norm.mabn.warmup = 1e3: expected lr or");
    create_fails("un", "warmup=soon", &place, "norm.un.warmup = soon: expected lr or");
    create_fails("progressive", "warmup=-1", &place, "norm.progressive.warmup = -1: expected lr or");
    create_fails("power", NULL, &odd, "divide");
    create_fails("pnv", NULL, &odd, "divide");
    create_fails("group", NULL, &odd, "divide");
    create_fails("rms", "groups=5", &place, "divide");
    create_fails("power", NULL, &no_groups, "0 groups");
    create_fails("pnv", NULL, &no_groups, "0 groups");
    create_fails("mabn", "scaling=group", &no_groups, "0 groups");
    create_fails("group", NULL, &no_groups, "0 groups");
    create_fails("renorm", "ramp_start=20 r_ramp_end=10", &place, "ramp_start = 20 is after r_ramp_end = 10");
    create_fails("renorm", "d_ramp_end=4999", &place, "ramp_start = 5000 is after d_ramp_end = 4999");
    create_fails("layer", NULL, &empty, "0 features");
    nm_norm *norm = NULL;
    nm_error err;
    double y[N];
    assert_int_equal(nm_norm_create(&norm, ref, "power", "scaling=none", &no_groups, &err), NM_OK);
    nm_norm_free(norm);
    norm = create("layer", "  epsilon=1e-6  unbiased=true ");
    assert_int_equal(nm_norm_backward(norm, upstream, y, &err), NM_USAGE);
    assert_int_equal(nm_norm_forward(norm, 0, input, y, &err), NM_USAGE);
    assert_int_equal(nm_norm_forward(norm, INT32_MAX, input, y, &err), NM_USAGE);
    assert_int_equal(nm_norm_infer(norm, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(norm, upstream, y, &err), NM_USAGE);
    assert_null(nm_norm_param(norm, "scale", NULL));
    assert_null(nm_norm_state(norm, "running_mean", NULL));
    assert_null(nm_norm_counter(norm, "iters"));
    nm_norm_free(norm);
    nm_norm_free(NULL);
}

static void test_fixed_scale(void **unused)
{
    (void)unused;
    nm_norm *inner = create("scale", "trainable=false"), *last = NULL;
    nm_norm_site final = place;
    nm_error err;
    int32_t length = 0;
    final.kind = NM_SITE_BEFORE_OUTPUT;
    assert_int_equal(nm_norm_create(&last, ref, "scale", "trainable=false", &final, &err), NM_OK);
    assert_near(*(double *)nm_norm_param(inner, "scale", &length), sqrt(WIDTH), 1e-15);
    assert_int_equal(length, 1);
    assert_null(nm_norm_param_grad(inner, "scale", NULL));
    assert_non_null(nm_norm_param_grad(last, "scale", NULL));
    nm_norm_free(inner);
    nm_norm_free(last);
}

/* The linear layer with centered weights after the norm gives W_c y = W y_c, y_c the output with
 * center_weights. */
static void test_centered_weights_of_mabn(void **unused)
{
    (void)unused;
    nm_norm *plain = create("mabn", NULL), *centered = create("mabn", "center_weights=true");
    double y[N], y_c[N];
    nm_error err;
    for (int pass = 0; pass < 2; pass++) {
        nm_status (*run)(nm_norm *, int32_t, const void *, void *, nm_error *) =
            pass ? nm_norm_infer : nm_norm_forward;
        assert_int_equal(run(plain, ROWS, input, y, &err), NM_OK);
        assert_int_equal(run(centered, ROWS, input, y_c, &err), NM_OK);
        for (int r = 0; r < ROWS; r++) {
            const double *w = upstream; /* one output unit of a linear layer */
            double mean_w = 0, expected = 0, actual = 0;
            for (int i = 0; i < WIDTH; i++)
                mean_w += w[i] / WIDTH;
            for (int i = 0; i < WIDTH; i++) {
                expected += (w[i] - mean_w) * y[r * WIDTH + i];
                actual += w[i] * y_c[r * WIDTH + i];
            }
            assert_near(actual, expected, 1e-13);
        }
    }
    nm_norm_free(plain);
    nm_norm_free(centered);
}

static void test_presets_of_batch(void **unused)
{
    (void)unused;
    double y[N], var[2];
    const char *const settings[] = {"preset=paper", "preset=paper unbiased_running=true"};
    nm_error err;
    for (int i = 0; i < 2; i++) {
        nm_norm *norm = create("batch", settings[i]);
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y, &err), NM_OK);
        var[i] = ((double *)nm_norm_state(norm, "running_var", NULL))[0] - 0.9;
        nm_norm_free(norm);
    }
    assert_near(var[1], var[0] * ROWS / (ROWS - 1), 1e-12);
}

/* Two pending passes: the results are those of consecutive passes, and x may be moved in between. Types whose
 * backward pass reads running statistics depend on the order of the backward passes by definition. */
static void check_pending_passes(const nm_norm_type *type)
{
    nm_norm *apart = create_trained(type), *norm = create_trained(type);
    nm_norm_pass *first = nm_norm_pass_create(norm), *second = nm_norm_pass_create(norm);
    double y[N], dx[N], y_first[N], y_second[N], dx_first[N], moved[N];
    nm_error err;
    assert_int_equal(nm_norm_pass_forward(first, ROWS, input, y_first, &err), NM_OK);
    assert_int_equal(nm_norm_pass_forward(second, ROWS / 2, upstream, y_second, &err), NM_OK);
    memcpy(moved, input, sizeof moved);
    assert_int_equal(nm_norm_pass_backward(first, moved, upstream, 1, dx_first, &err), NM_OK);

    assert_int_equal(nm_norm_forward(apart, ROWS, input, y, &err), NM_OK);
    assert_memory_equal(y, y_first, sizeof y);
    assert_near(nm_norm_pass_penalty(first), nm_norm_penalty(apart), 0);
    assert_int_equal(nm_norm_backward(apart, upstream, dx, &err), NM_OK);
    if (!(type->traits & NM_APPROX_GRAD))
        assert_memory_equal(dx, dx_first, sizeof dx);
    assert_int_equal(nm_norm_forward(apart, ROWS / 2, upstream, y, &err), NM_OK);
    assert_memory_equal(y, y_second, sizeof y / 2);
    if (!(type->traits & NM_APPROX_GRAD))
        assert_same_state(norm, apart, 0);
    if (!(type->traits & NM_APPROX_GRAD)) { /* a second backward pass */
        assert_int_equal(nm_norm_pass_backward(first, moved, upstream, 1, dx, &err), NM_OK);
        assert_memory_equal(dx, dx_first, sizeof dx);
    }
    assert_int_equal(nm_norm_backward(norm, upstream, dx, &err), NM_USAGE);
    nm_norm_pass_free(second); /* without a backward pass */
    nm_norm_pass_free(first);
    nm_norm_free(norm);
    nm_norm_free(apart);
}

static void test_pending_passes(void **unused)
{
    (void)unused;
    for_each_type(check_pending_passes);
    nm_norm_pass_free(NULL);
}

/* Each backward pass writes the row of MABN's buffer that belongs to its forward pass, in any order of the
 * backward passes. */
static void test_buffer_of_pending_passes_of_mabn(void **unused)
{
    (void)unused;
    nm_norm *apart = create("mabn", "window=4 warmup=0"), *norm = create("mabn", "window=4 warmup=0");
    nm_norm_pass *first = nm_norm_pass_create(norm), *second = nm_norm_pass_create(norm);
    double y[N], dx[N];
    nm_error err;
    assert_int_equal(nm_norm_pass_forward(first, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_pass_forward(second, ROWS, upstream, y, &err), NM_OK);
    assert_int_equal(nm_norm_pass_backward(second, upstream, input, 1, dx, &err), NM_OK);
    assert_int_equal(nm_norm_pass_backward(first, input, upstream, 1, dx, &err), NM_OK);
    assert_int_equal(nm_norm_forward(apart, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(apart, upstream, dx, &err), NM_OK);
    assert_int_equal(nm_norm_forward(apart, ROWS, upstream, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(apart, input, dx, &err), NM_OK);
    assert_same_state(norm, apart, 0);
    nm_norm_pass_free(second);
    nm_norm_pass_free(first);
    nm_norm_free(norm);
    nm_norm_free(apart);
}

/* After nm_norm_pass_infer, dx and the gradients of the parameters are those of sum(upstream y) by finite
 * differences, except for AdaNorm, whose inference is its training. */
static void check_gradient_at_inference(const nm_norm_type *type)
{
    if (type->traits & NM_APPROX_GRAD && !(type->traits & NM_USES_BATCH))
        return;
    nm_norm *norm = create_trained(type), *untouched = create_trained(type);
    nm_norm_pass *pass = nm_norm_pass_create(norm);
    const double step = 1e-5;
    double x[N], y[N], dx[N];
    nm_error err;
    memcpy(x, input, sizeof x);
    nm_norm_zero_grads(norm);
    assert_int_equal(nm_norm_pass_infer(pass, ROWS, x, y, &err), NM_OK);
    assert_int_equal(nm_norm_pass_backward(pass, x, upstream, 1, dx, &err), NM_OK);
    assert_same_state(norm, untouched, 0);
    for (int p = -1; p < norm->shape.n_params; p++) {
        double *values = p < 0 ? x : norm->params[p], *grad = p < 0 ? dx : norm->param_grads[p];
        for (int i = 0; grad && i < (p < 0 ? N : norm->shape.params[p].length); i++) {
            double saved = values[i], sums[2] = {0, 0};
            for (int side = 0; side < 2; side++) {
                values[i] = saved + (side ? step : -step);
                assert_int_equal(nm_norm_infer(norm, ROWS, x, y, &err), NM_OK);
                for (int k = 0; k < N; k++)
                    sums[side] += upstream[k] * y[k];
            }
            values[i] = saved;
            assert_near(grad[i], (sums[1] - sums[0]) / (2 * step), 1e-7);
        }
    }
    nm_norm_pass_free(pass);
    nm_norm_free(norm);
    nm_norm_free(untouched);
}

static void test_gradient_at_inference(void **unused)
{
    (void)unused;
    for_each_type(check_gradient_at_inference);
    nm_norm *norm = create("mabn", "center_weights=true");
    nm_norm_pass *pass = nm_norm_pass_create(norm);
    double y[N];
    nm_error err;
    assert_int_equal(nm_norm_pass_infer(pass, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_pass_backward(pass, input, upstream, 1, y, &err), NM_UNSUPPORTED);
    nm_norm_pass_free(pass);
    nm_norm_free(norm);
}

/* dx is linear in the gradient of the penalty. */
static void test_gradient_of_the_penalty(void **unused)
{
    (void)unused;
    nm_norm *norm = create("rbn", "lambda=3 nu=2"), *batch = create("batch", "preset=rbn");
    nm_norm_pass *pass = nm_norm_pass_create(norm);
    double y[N], dx[3][N], plain[N], largest = 0;
    nm_error err;
    for (int factor = 0; factor < 3; factor++) {
        assert_int_equal(nm_norm_pass_forward(pass, ROWS, input, y, &err), NM_OK);
        assert_int_equal(nm_norm_pass_backward(pass, input, upstream, factor, dx[factor], &err), NM_OK);
        memcpy(nm_norm_state(norm, "running_mean", NULL), nm_norm_state(batch, "running_mean", NULL),
               WIDTH * sizeof(double));
        memcpy(nm_norm_state(norm, "running_var", NULL), nm_norm_state(batch, "running_var", NULL),
               WIDTH * sizeof(double));
    }
    assert_int_equal(nm_norm_forward(batch, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(batch, upstream, plain, &err), NM_OK);
    for (int i = 0; i < N; i++) {
        assert_near(dx[0][i], plain[i], 1e-13);
        assert_near(dx[2][i] - dx[1][i], dx[1][i] - dx[0][i], 1e-13);
        largest = fmax(largest, fabs(dx[1][i] - dx[0][i]));
    }
    assert_true(largest > 1e-3);
    nm_norm_pass_free(pass);
    nm_norm_free(norm);
    nm_norm_free(batch);
}

static void test_names_of_vectors(void **unused)
{
    (void)unused;
    nm_norm *norm = create("power", NULL);
    assert_string_equal(nm_norm_param_name(norm, 1), "bias");
    assert_null(nm_norm_param_name(norm, 2));
    assert_string_equal(nm_norm_state_name(norm, 0), "running_phi");
    assert_string_equal(nm_norm_state_name(norm, 1), "ema_gz");
    assert_null(nm_norm_state_name(norm, 2));
    assert_true(nm_norm_state_of_gradients(norm, "ema_gz"));
    assert_false(nm_norm_state_of_gradients(norm, "running_phi"));
    assert_false(nm_norm_state_of_gradients(norm, "weight"));
    assert_string_equal(nm_norm_counter_name(norm, 0), "iters");
    assert_null(nm_norm_counter_name(norm, 1));
    assert_null(nm_norm_param_name(norm, -1));
    nm_norm_free(norm);
}

enum { THREADS = 3, MANY_ROWS = 500, WIDE = 48 };

typedef struct trained_layer {
    nm_backend *backend;
    const nm_norm_type *type;
    float y[MANY_ROWS * WIDE], dx[MANY_ROWS * WIDE];
    nm_status status;
} trained_layer;

static float many[MANY_ROWS * WIDE], many_upstream[MANY_ROWS * WIDE];

static void *train_layer(void *argument)
{
    trained_layer *self = argument;
    const nm_norm_site site = {.width = WIDE, .groups = 4};
    nm_norm *norm = NULL;
    nm_error err;
    self->status =
        nm_norm_create(&norm, self->backend, self->type->name, settings_of(self->type), &site, &err);
    for (int step = 0; step < 4 && self->status == NM_OK; step++) {
        self->status = nm_norm_forward(norm, MANY_ROWS, many, self->y, &err);
        if (self->status == NM_OK)
            self->status = nm_norm_backward(norm, many_upstream, self->dx, &err);
    }
    nm_norm_free(norm);
    return NULL;
}

static void check_workers(const nm_norm_type *type)
{
    static trained_layer expected, layers[THREADS];
    const nm_backend_options options = {.name = "cpu", .threads = 1};
    pthread_t threads[THREADS];
    nm_error err;
    assert_int_equal(nm_backend_create(&expected.backend, &options, &err), NM_OK);
    expected.type = type;
    train_layer(&expected);
    assert_int_equal(expected.status, NM_OK);
    for (int i = 0; i < THREADS; i++) {
        layers[i].type = type;
        assert_int_equal(nm_backend_create_worker(&layers[i].backend, expected.backend, 1, &err), NM_OK);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train_layer, &layers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(layers[i].status, NM_OK);
        assert_memory_equal(layers[i].y, expected.y, sizeof expected.y);
        assert_memory_equal(layers[i].dx, expected.dx, sizeof expected.dx);
        nm_backend_free(layers[i].backend);
    }
    nm_backend_free(expected.backend);
}

static void test_layers_of_several_threads(void **unused)
{
    (void)unused;
    for (int i = 0; i < MANY_ROWS * WIDE; i++) {
        many[i] = (float)(i * 7919 % 1000) / 300 - 1;
        many_upstream[i] = (float)(i * 10473 % 997) / 500 - 1;
    }
    for_each_type(check_workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load),         cmocka_unit_test(test_files_that_do_not_fit),
        cmocka_unit_test(test_usage_errors),          cmocka_unit_test(test_fixed_scale),
        cmocka_unit_test(test_presets_of_batch),      cmocka_unit_test(test_centered_weights_of_mabn),
        cmocka_unit_test(test_pending_passes),        cmocka_unit_test(test_buffer_of_pending_passes_of_mabn),
        cmocka_unit_test(test_gradient_at_inference), cmocka_unit_test(test_gradient_of_the_penalty),
        cmocka_unit_test(test_names_of_vectors),      cmocka_unit_test(test_layers_of_several_threads),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
