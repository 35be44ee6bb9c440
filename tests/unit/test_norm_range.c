/* Every norm on inputs of every magnitude that float has, in float, against the same in double: results that
 * float can represent are finite in training, backward pass and inference. They are also accurate, except
 * those of batch statistics whose squares float cannot represent (docs/norms.md, "Large inputs"). */
#include "norm_fixture.h"

#include <float.h>

enum { UPDATES = 3, TRAINING = 0, BACKWARD, INFERENCE, N_RESULTS };
static const char *const result_names[] = {"training", "backward", "inference"};
static const double magnitudes[] = {1e-30, 1e-20, 1, 1e18, 1e20, 1e30};
enum { N_MAGNITUDES = sizeof magnitudes / sizeof *magnitudes };

/* More settings than the defaults, with which other statistics are used. */
static const char *const variants[][2] = {{"rbn", "penalty=diff2 reference=before"},
                                          {"rbn", "penalty=reldiff"},
                                          {"renorm", "ramp_start=0 r_ramp_end=0 d_ramp_end=0"},
                                          {"renorm", "eps_mode=added"},
                                          {"progressive", "warmup=1 lambda_steps=3"},
                                          {"power", "warmup=0"},
                                          {"power", "scaling=group"},
                                          {"batch", "scaling=layer"},
                                          {"batch", "unbiased_running=true decay=0"},
                                          {"prms", "fraction=0.5"},
                                          {"mabn", "warmup=0"},
                                          {"un", "warmup=0"},
                                          {0}};

typedef struct outcome {
    double values[N_RESULTS][N];
} outcome;

static void compute(nm_backend *backend, const char *type, const char *settings, double magnitude,
                    outcome *out)
{
    nm_norm *norm;
    nm_error err = {0};
    float x[N], dy[N], narrow[N] = {0};
    double wide_x[N];
    bool is_float = backend->dtype == NM_F32;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(magnitude * input[i]);
        dy[i] = (float)upstream[i];
        wide_x[i] = x[i];
    }
    if (nm_norm_create(&norm, backend, type, settings, &place, &err) != NM_OK)
        fail_msg("%s", err.text);
    const void *in = is_float ? (const void *)x : wide_x, *up = is_float ? (const void *)dy : upstream;
    for (int call = 0; call < 2 * UPDATES + 1; call++) {
        int r = call == 2 * UPDATES ? INFERENCE : call % 2;
        void *to = is_float ? (void *)narrow : out->values[r];
        assert_int_equal(r == TRAINING   ? nm_norm_forward(norm, ROWS, in, to, &err)
                         : r == BACKWARD ? nm_norm_backward(norm, up, to, &err)
                                         : nm_norm_infer(norm, ROWS, in, to, &err),
                         NM_OK);
        for (int i = 0; i < N && is_float; i++)
            out->values[r][i] = (double)narrow[i];
    }
    nm_norm_free(norm);
}

/* Number of wrong values */
static int count_wrong(const double *exact, const double *actual, bool only_finite)
{
    double largest = 0;
    int wrong = 0;
    for (int i = 0; i < N; i++)
        largest = fmax(largest, fabs(exact[i]));
    for (int i = 0; i < N; i++)
        if (fabs(exact[i]) <= 0.99 * (double)FLT_MAX)
            wrong += only_finite ? !isfinite(actual[i])
                                 : !(fabs(actual[i] - exact[i]) <= 1e-4 * largest + 1e-37); /* of exp(-x^2) */
    return wrong;
}

static int check_type(nm_backend *backend, const nm_norm_type *type, const char *settings)
{
    static outcome exact, actual;
    int failures = 0;
    for (int m = 0; m < N_MAGNITUDES; m++) {
        bool squares_overflow = (type->traits & NM_HAS_STATE) && magnitudes[m] > 1e19;
        compute(ref, type->name, settings, magnitudes[m], &exact);
        compute(backend, type->name, settings, magnitudes[m], &actual);
        for (int r = 0; r < N_RESULTS; r++) {
            int wrong = count_wrong(exact.values[r], actual.values[r], squares_overflow);
            failures += wrong > 0;
            if (wrong)
                print_error(
                    "%s: %s %s, inputs of %g: %d of %d values of %s are wrong, for example %g, not %g\n",
                    backend->name, type->name, settings ? settings : "", magnitudes[m], wrong, N,
                    result_names[r], actual.values[r][0], exact.values[r][0]);
        }
    }
    return failures;
}

static void check_backend(const char *name)
{
    nm_backend *backend;
    nm_error err;
    int failures = 0;
    const nm_backend_options options = {.name = name, .dtype = NM_F32, .threads = 1};
    assert_int_equal(nm_backend_create(&backend, &options, &err), NM_OK);
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        failures += check_type(backend, *type, settings_of(*type));
    for (int v = 0; variants[v][0]; v++)
        failures += check_type(backend, nm_norm_type_find(variants[v][0]), variants[v][1]);
    nm_backend_free(backend);
    assert_int_equal(failures, 0);
}

static void test_reference(void **unused)
{
    (void)unused;
    check_backend("ref");
}

static void test_cpu(void **unused)
{
    (void)unused;
    check_backend("cpu");
}

static void test_emulated(void **unused)
{
    (void)unused;
    check_backend("emulated");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_emulated)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
