/* Exact identities between types of norms: outputs, gradients of the input, and inference. */
#include "norm_fixture.h"

typedef struct outcome {
    double y[N], dx[N], inferred[N];
} outcome;

/* Parameters that are not the initial ones; those of the same name are the same for every type. */
static void vary_params(nm_norm *norm)
{
    for (int p = 0; p < norm->shape.n_params; p++) {
        const nm_norm_vector *vector = &norm->shape.params[p];
        uint32_t site = (uint32_t)vector->name[0];
        for (int i = 0; i < vector->length; i++) {
            nm_random_words words = nm_random4(9, NM_RANDOM_TEST, site, 0, (uint64_t)i);
            ((double *)norm->params[p])[i] += 0.5 * nm_random_normal(words.w[0], words.w[1]);
        }
    }
}

static void set_vector(nm_norm *norm, const char *name, double value)
{
    int32_t length = 0;
    double *vector = nm_norm_param(norm, name, &length);
    assert_non_null(vector);
    for (int32_t i = 0; i < length; i++)
        vector[i] = value;
}

static void copy_vector(nm_norm *to, const char *name, nm_norm *from, const char *from_name)
{
    int32_t length = 0;
    double *vector = nm_norm_param(to, name, &length);
    assert_non_null(vector);
    memcpy(vector, nm_norm_param(from, from_name, &length), (size_t)length * sizeof *vector);
}

/* One training step, and inference afterwards; frees the norm. */
static outcome run(nm_norm *norm)
{
    static outcome out;
    nm_error err;
    assert_int_equal(nm_norm_forward(norm, ROWS, input, out.y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(norm, upstream, out.dx, &err), NM_OK);
    assert_int_equal(nm_norm_infer(norm, ROWS, input, out.inferred, &err), NM_OK);
    nm_norm_free(norm);
    return out;
}

static void assert_same_values(const double *a, const double *b, double tolerance)
{
    for (int i = 0; i < N; i++)
        assert_near(a[i], b[i], tolerance);
}

static void assert_equal(const outcome *a, const outcome *b, double tolerance)
{
    assert_same_values(a->y, b->y, tolerance);
    assert_same_values(a->dx, b->dx, tolerance);
    assert_same_values(a->inferred, b->inferred, tolerance);
}

static void test_unit(void **unused)
{
    (void)unused;
    const outcome fix = run(create("fix", NULL)), zero = run(create("unit", "k=0"));
    const outcome rms = run(create("rms", "gain=false epsilon=0")), one = run(create("unit", "k=1"));
    outcome three = run(create("unit", "k=3"));
    assert_equal(&zero, &fix, 0);
    assert_equal(&one, &rms, 1e-14);
    for (int i = 0; i < N; i++) { /* d times that of k = 1 */
        three.y[i] /= WIDTH;
        three.dx[i] /= WIDTH;
        three.inferred[i] /= WIDTH;
    }
    assert_equal(&three, &one, 1e-14);
}

static void test_prms(void **unused)
{
    (void)unused;
    nm_norm *all = create("prms", "fraction=1 epsilon=0.01"), *rms = create("rms", "epsilon=0.01");
    vary_params(all);
    vary_params(rms);
    const outcome a = run(all), b = run(rms);
    assert_equal(&a, &b, 0);
    /* the features that are not used have no influence on the others, and are divided by the same number */
    const outcome part = run(create("prms", "fraction=0.5"));
    for (int r = 0; r < ROWS; r++) {
        double square = 0;
        for (int i = 0; i < WIDTH / 2; i++)
            square += input[r * WIDTH + i] * input[r * WIDTH + i] / (WIDTH / 2.0);
        for (int i = 0; i < WIDTH; i++)
            assert_near(part.y[r * WIDTH + i], input[r * WIDTH + i] / sqrt(square), 1e-7);
    }
    /* floor(fraction d), but at least one feature */
    const outcome one = run(create("prms", "fraction=0 epsilon=0")),
                  small = run(create("prms", "fraction=0.1 epsilon=0"));
    assert_equal(&one, &small, 0);
    assert_near(fabs(one.y[0]), 1, 1e-15);
}

/* With k = 0, and with the z of LayerNorm, the result is LayerNorm without weight; y = C (1 - k z) z. */
static void test_ada(void **unused)
{
    (void)unused;
    const outcome layer = run(create("layer", NULL)), zero = run(create("ada", "variant=paper k=0"));
    const outcome official = run(create("ada", "k=0 epsilon=0")),
                  unbiased = run(create("layer", "unbiased=true epsilon=0"));
    const outcome bent = run(create("ada", "variant=paper c=2 k=0.3"));
    assert_equal(&zero, &layer, 1e-14);
    assert_equal(&official, &unbiased, 1e-14);
    for (int i = 0; i < N; i++)
        assert_near(bent.y[i], 2 * (1 - 0.3 * layer.y[i]) * layer.y[i], 1e-14);
}

static void test_seed(void **unused)
{
    (void)unused;
    nm_norm *seed = create("seed", "epsilon=0.01"), *rms = create("rms", "epsilon_inside=true epsilon=0.01");
    vary_params(seed);
    set_vector(seed, "alpha", 0);
    copy_vector(rms, "scale", seed, "weight");
    const outcome a = run(seed), b = run(rms);
    assert_equal(&a, &b, 1e-14);
    /* an untrained layer is RMSNorm */
    const outcome fresh = run(create("seed", NULL)),
                  plain = run(create("rms", "epsilon_inside=true epsilon=1e-6"));
    assert_same_values(fresh.y, plain.y, 1e-14);
}

/* With alpha = 0 it is BatchNorm; otherwise inference is one affine function per feature, BatchNorm's plus
 * alpha x. */
static void test_repbn(void **unused)
{
    (void)unused;
    nm_norm *rep = create("repbn", NULL), *batch = create("batch", "preset=framework"),
            *skip = create("repbn", NULL);
    vary_params(rep);
    vary_params(batch);
    vary_params(skip);
    set_vector(rep, "alpha", 0);
    set_vector(skip, "alpha", 0.7);
    const outcome a = run(rep), b = run(batch);
    assert_equal(&a, &b, 1e-13);
    double scale[WIDTH], shift[WIDTH], y[N];
    nm_error err;
    assert_int_equal(nm_norm_forward(skip, ROWS, input, y, &err), NM_OK);
    for (int i = 0; i < N; i++)
        assert_near(y[i], b.y[i] + 0.7 * input[i], 1e-13);
    assert_true(skip->type->affine(skip, ref, scale, shift));
    assert_int_equal(nm_norm_infer(skip, ROWS, input, y, &err), NM_OK);
    for (int i = 0; i < N; i++) {
        assert_near(y[i], b.inferred[i] + 0.7 * input[i], 1e-13);
        assert_near(y[i], scale[i % WIDTH] * input[i] + shift[i % WIDTH], 1e-13);
    }
    nm_norm_free(skip);
}

static outcome first_calls(const char *settings, int n)
{
    nm_norm *norm = create("progressive", settings);
    double y[N];
    nm_error err;
    vary_params(norm);
    for (int i = 0; i < n; i++)
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y, &err), NM_OK);
    return run(norm);
}

/* The per-token norm of `progressive` with its parameters. */
static nm_norm *token_norm_of(const char *type, const char *settings)
{
    nm_norm *norm = create(type, settings), *progressive = create("progressive", NULL);
    vary_params(progressive);
    copy_vector(norm, strcmp(type, "rms") ? "weight" : "scale", progressive, "token_weight");
    if (strcmp(type, "rms"))
        copy_vector(norm, "bias", progressive, "token_bias");
    nm_norm_free(progressive);
    return norm;
}

static nm_norm *varied(const char *type, const char *settings)
{
    nm_norm *norm = create(type, settings);
    vary_params(norm);
    return norm;
}

static void test_progressive(void **unused)
{
    (void)unused;
    const outcome layer = run(token_norm_of("layer", NULL)),
                  rms = run(token_norm_of("rms", "epsilon_inside=true epsilon=1e-5"));
    const outcome repbn = run(varied("repbn", NULL));
    const outcome warm = first_calls("warmup=2 lambda_steps=4", 0),
                  last_warm = first_calls("warmup=2 lambda_steps=4", 1);
    const outcome begin = first_calls("warmup=2 lambda_steps=4", 2),
                  half = first_calls("warmup=2 lambda_steps=4", 4);
    const outcome end = first_calls("lambda_steps=1", 1),
                  warm_rms = first_calls("warmup=1 token_norm=rms", 0);
    /* during the warm-up, and at lambda = 1: the per-token norm */
    assert_same_values(warm.y, layer.y, 0);
    assert_same_values(warm.dx, layer.dx, 0);
    assert_same_values(last_warm.y, layer.y, 0);
    assert_same_values(begin.y, layer.y, 0);
    assert_same_values(begin.dx, layer.dx, 0);
    assert_same_values(warm_rms.y, rms.y, 0);
    assert_same_values(warm_rms.dx, rms.dx, 0);
    /* the mean of both, then RepBN */
    for (int i = 0; i < N; i++) {
        assert_near(half.y[i], (layer.y[i] + repbn.y[i]) / 2, 1e-13);
        assert_near(half.dx[i], (layer.dx[i] + repbn.dx[i]) / 2, 1e-13);
    }
    assert_same_values(end.y, repbn.y, 1e-13);
    assert_same_values(end.dx, repbn.dx, 1e-13);
    /* inference: RepBN alone. Running statistics begin to change after the warm-up. */
    assert_same_values(begin.inferred, repbn.inferred, 1e-13);
    nm_norm *untouched = varied("repbn", NULL);
    double y[N];
    nm_error err;
    assert_int_equal(nm_norm_infer(untouched, ROWS, input, y, &err), NM_OK);
    assert_same_values(warm.inferred, y, 1e-13);
    nm_norm_free(untouched);
}

/* The transition takes half of a short run; lambda changes every `interval` updates. */
static void test_length_of_the_transition(void **unused)
{
    (void)unused;
    const outcome repbn = run(varied("repbn", NULL)), layer = run(token_norm_of("layer", NULL));
    nm_norm_site planned = place;
    planned.plan.updates = 8;
    double y[5][N];
    nm_error err;
    nm_norm *norm;
    assert_int_equal(nm_norm_create(&norm, ref, "progressive", NULL, &planned, &err), NM_OK);
    vary_params(norm);
    for (int i = 0; i < 5; i++)
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y[i], &err), NM_OK);
    nm_norm_free(norm);
    for (int i = 0; i < N; i++)
        assert_near(y[1][i], 0.75 * layer.y[i] + 0.25 * repbn.y[i], 1e-13);
    assert_same_values(y[4], repbn.y, 1e-13);
    norm = varied("progressive", "lambda_steps=2 interval=3");
    for (int i = 0; i < 5; i++)
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y[i], &err), NM_OK);
    nm_norm_free(norm);
    assert_same_values(y[0], layer.y, 0);
    for (int i = 0; i < N; i++)
        assert_near(y[3][i], (layer.y[i] + repbn.y[i]) / 2, 1e-13);
    assert_same_values(y[4], repbn.y, 1e-13);
}

/* With windows of one update, and in the first updates, the output is that of PN-V. */
static void test_un(void **unused)
{
    (void)unused;
    const outcome pnv = run(varied("pnv", "scaling=none decay=0.9"));
    const outcome one = run(varied("un", "window_forward=1 window_backward=1")),
                  first = run(varied("un", NULL));
    assert_equal(&one, &pnv, 1e-13);
    assert_same_values(first.y, pnv.y, 0);
}

/* The buffer receives the running value instead of an outlier, however large the outlier is. */
static void test_outlier_of_un(void **unused)
{
    (void)unused;
    enum { WINDOW = 2, OUTLIER = 3 };
    nm_norm *norm = create("un", "window_forward=2 warmup=3 outlier_filtration=true");
    double x[N], y[N], dx[N], running[WIDTH];
    nm_error err;
    for (int update = 1; update <= OUTLIER; update++) {
        for (int i = 0; i < N; i++)
            x[i] = (update == OUTLIER ? 1e12 : 1) * input[i];
        memcpy(running, nm_norm_state(norm, "running_var", NULL), sizeof running);
        assert_int_equal(nm_norm_forward(norm, ROWS, x, y, &err), NM_OK);
        assert_int_equal(nm_norm_backward(norm, upstream, dx, &err), NM_OK);
    }
    assert_true(*nm_norm_counter(norm, "skip_counter") == 1);
    const double *slot = (const double *)nm_norm_state(norm, "buffer_x2", NULL) + OUTLIER % WINDOW * WIDTH;
    for (int i = 0; i < WIDTH; i++)
        assert_true(slot[i] == running[i]);
    nm_norm_free(norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unit),
        cmocka_unit_test(test_prms),
        cmocka_unit_test(test_ada),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_repbn),
        cmocka_unit_test(test_progressive),
        cmocka_unit_test(test_length_of_the_transition),
        cmocka_unit_test(test_un),
        cmocka_unit_test(test_outlier_of_un),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
