/* Gradients of every registered norm whose backward is the derivative, against central differences in double:
 * dx and every learned parameter, with several settings per type. A new type is included when it is
 * registered. The backend `emulated` has float only, in which differences would be too inaccurate: its
 * results and gradients, of all norms, are compared with those of ref in double.
 *
 * The objective is sum(weights y) + penalty. Values that are constants in the backward pass are constant
 * here: state and counters are restored before every evaluation, and settings make them independent of the
 * batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "norma/norm_type.h"

enum { ROWS = 7, WIDTH = 12, HEADS = 3, N = ROWS * WIDTH, MAX_SETTINGS = 8 };

static const double STEP = 1e-5, TOLERANCE = 1e-6, FLOAT_TOLERANCE = 1e-5;

/* Settings in addition to the defaults. RBN is compared with the running values before the update, which do
 * not depend on the batch; r and d of renorm are at their limits, where they are constants. */
static const struct {
    const char *type, *settings[MAX_SETTINGS];
} variants[] = {
    {"layer", {"unbiased=true"}},
    {"rms", {"epsilon_inside=true epsilon=0.1", "groups=4", "gain=false groups=3", "epsilon=0.3"}},
    {"scale", {"trainable=false"}},
    {"group", {"groups=4", "unbiased=true"}},
    {"batch", {"preset=pn", "preset=rbn", "scaling=group", "preset=rbn epsilon=0.9", "preset=paper"}},
    {"pnv", {"preset=rbn", "scaling=layer", "preset=rbn epsilon=1"}},
    {"rbn",
     {"reference=before penalty=diff2 lambda=0.7 nu=0.5",
      "reference=before penalty=reldiff lambda=0.3 nu=0.6", "reference=before penalty=diff lambda=0.2 nu=0.4",
      "reference=before penalty=diff2 nu=2 scaling=group", "reference=before clamp=false nu=1 penalty=diff2",
      "reference=before penalty=diff2 nu=1 epsilon=0.9"}},
    {"renorm",
     {"scaling=layer", "r_max=1 d_max=0 ramp_start=0 r_ramp_end=0 d_ramp_end=0",
      "r_max=1.0001 d_max=1e-3 ramp_start=0 r_ramp_end=0 d_ramp_end=0", "eps_mode=added epsilon=0.05"}},
    {"derf", {"alpha_init=0.3 shift_init=0.4"}},
    {"unit", {"k=0", "k=0.5", "k=1.5 epsilon=1"}},
    {"prms", {"fraction=0.5 epsilon=0.3", "fraction=1", "fraction=0.25 offset=true"}},
    {"seed", {"epsilon=0.3 alpha_init=0"}},
    {"repbn", {"preset=llama", "alpha_init=-0.5"}},
    {"progressive",
     {"lambda_steps=10", "lambda_steps=10 token_norm=rms lambda_init=0.3", "lambda_steps=2", "warmup=20"}},
    /* batch statistics only */
    {"un", {"window_forward=1", "decay=0 window_forward=20 window_backward=20"}},
};

static double random_normal(uint32_t site, uint64_t index)
{
    nm_random_words words = nm_random4(7, NM_RANDOM_TEST, site, 0, index);
    return nm_random_normal(words.w[0], words.w[1]);
}

typedef struct subject {
    nm_norm *norm;
    double x[N], y[N], weights[N], dx[N];
    nm_norm_shape shape;
    double *state[NM_NORM_CAPACITY]; /* before the tested call */
    int64_t counters[NM_NORM_CAPACITY];
} subject;

static void keep_state(subject *s)
{
    for (int i = 0; i < s->shape.n_state; i++) {
        size_t bytes = (size_t)s->shape.state[i].length * sizeof(double);
        s->state[i] = nm_allocate(bytes);
        memcpy(s->state[i], s->norm->state[i], bytes);
    }
    memcpy(s->counters, s->norm->counters, sizeof s->counters);
}

static void restore_state(subject *s)
{
    for (int i = 0; i < s->shape.n_state; i++)
        memcpy(s->norm->state[i], s->state[i], (size_t)s->shape.state[i].length * sizeof(double));
    memcpy(s->norm->counters, s->counters, sizeof s->counters);
}

static double objective(subject *s)
{
    nm_error err;
    restore_state(s);
    assert_int_equal(nm_norm_forward(s->norm, ROWS, s->x, s->y, &err), NM_OK);
    double sum = nm_norm_penalty(s->norm);
    for (int i = 0; i < N; i++)
        sum += s->weights[i] * s->y[i];
    return sum;
}

static double difference(subject *s, double *value)
{
    double kept = *value;
    *value = kept + STEP;
    double above = objective(s);
    *value = kept - STEP;
    double below = objective(s);
    *value = kept;
    return (above - below) / (2 * STEP);
}

static void compare(const subject *s, const char *settings, const char *what, int index, double got,
                    double want)
{
    if (fabs(got - want) <= TOLERANCE * (1 + fabs(want)))
        return;
    print_error("%s (%s): %s[%d]: backward %.12g, differences %.12g\n", s->norm->type->name,
                settings ? settings : "defaults", what, index, got, want);
    fail();
}

static void create_subject(subject *s, nm_backend *backend, const char *type, const char *settings)
{
    const nm_norm_site place = {
        .name = "test", .width = WIDTH, .groups = HEADS, .plan = {.warmup_updates = 4}};
    nm_error err = {0};
    nm_status status = nm_norm_create(&s->norm, backend, type, settings, &place, &err);
    if (status != NM_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, NM_OK);
    s->shape = s->norm->shape;
    for (int i = 0; i < N; i++) {
        /* Deviations from 0.4 to 4.25: the first feature is below the epsilon of a clamped variance. */
        s->x[i] = 0.3 + (0.4 + 0.35 * (i % WIDTH)) * random_normal(1, (uint64_t)i);
        s->weights[i] = random_normal(2, (uint64_t)i);
    }
    for (int p = 0; p < s->shape.n_params; p++)
        for (int i = 0; i < s->shape.params[p].length; i++)
            ((double *)s->norm->params[p])[i] += 0.4 * random_normal(3, (uint64_t)(100 * p + i));
    for (int i = 0; i < 3; i++) { /* running values of earlier batches */
        assert_int_equal(nm_norm_forward(s->norm, ROWS, s->weights, s->y, &err), NM_OK);
    }
}

static void check(nm_backend *backend, const char *type, const char *settings)
{
    subject s = {0};
    nm_error err;
    create_subject(&s, backend, type, settings);
    keep_state(&s);
    objective(&s);
    nm_norm_zero_grads(s.norm);
    assert_int_equal(nm_norm_backward(s.norm, s.weights, s.dx, &err), NM_OK);
    for (int i = 0; i < N; i++)
        compare(&s, settings, "dx", i, s.dx[i], difference(&s, &s.x[i]));
    for (int p = 0; p < s.shape.n_params; p++)
        for (int i = 0; s.norm->param_grads[p] && i < s.shape.params[p].length; i++)
            compare(&s, settings, s.shape.params[p].name, i, ((double *)s.norm->param_grads[p])[i],
                    difference(&s, &((double *)s.norm->params[p])[i]));
    for (int i = 0; i < s.shape.n_state; i++)
        free(s.state[i]);
    nm_norm_free(s.norm);
}

static nm_backend *open_backend_in(const char *name, nm_dtype dtype)
{
    nm_backend *backend;
    nm_error err;
    assert_int_equal(
        nm_backend_create(&backend, &(nm_backend_options){.name = name, .dtype = dtype, .threads = 1}, &err),
        NM_OK);
    return backend;
}

static nm_backend *open_backend(void)
{
    return open_backend_in("ref", NM_F64);
}

static void round_to_float(double *values, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        values[i] = (double)(float)values[i];
}

/* The subject with parameters and running values that float has. The memory of `emulated` is that of the
 * host. */
typedef struct float_subject {
    nm_norm *norm;
    float x[N], y[N], weights[N], dx[N];
} float_subject;

static void create_float_subject(float_subject *f, subject *s, nm_backend *backend, const char *settings)
{
    nm_error err;
    assert_int_equal(nm_norm_create(&f->norm, backend, s->norm->type->name, settings, &s->norm->site, &err),
                     NM_OK);
    round_to_float(s->x, N);
    round_to_float(s->weights, N);
    for (int i = 0; i < N; i++) {
        f->x[i] = (float)s->x[i];
        f->weights[i] = (float)s->weights[i];
    }
    for (int p = 0; p < s->shape.n_params; p++) {
        round_to_float(s->norm->params[p], s->shape.params[p].length);
        nm_backend_write(backend, f->norm->params[p], s->norm->params[p], (size_t)s->shape.params[p].length);
    }
    for (int i = 0; i < s->shape.n_state; i++) {
        round_to_float(s->norm->state[i], s->shape.state[i].length);
        nm_backend_write(backend, f->norm->state[i], s->norm->state[i], (size_t)s->shape.state[i].length);
    }
    memcpy(f->norm->counters, s->norm->counters, sizeof s->norm->counters);
}

/* Relative to the largest number of the vector, or to 1 */
static void compare_floats(const subject *s, const char *settings, const char *what, int32_t n,
                           const float *got, const double *want)
{
    double size = 1;
    for (int32_t i = 0; i < n; i++)
        size = fmax(size, fabs(want[i]));
    for (int32_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= FLOAT_TOLERANCE * size))
            fail_msg("%s (%s): %s[%d] is %.9g on emulated, %.9g on ref", s->norm->type->name,
                     settings ? settings : "defaults", what, (int)i, (double)got[i], want[i]);
}

static void check_emulated(nm_backend *reference, nm_backend *emulated, const char *type,
                           const char *settings)
{
    subject s = {0};
    float_subject f = {0};
    nm_error err;
    create_subject(&s, reference, type, settings);
    create_float_subject(&f, &s, emulated, settings);
    nm_norm_zero_grads(s.norm);
    nm_norm_zero_grads(f.norm);
    assert_int_equal(nm_norm_forward(s.norm, ROWS, s.x, s.y, &err), NM_OK);
    assert_int_equal(nm_norm_forward(f.norm, ROWS, f.x, f.y, &err), NM_OK);
    const double penalty = nm_norm_penalty(s.norm);
    compare_floats(&s, settings, "penalty", 1, &(float){(float)nm_norm_penalty(f.norm)}, &penalty);
    assert_int_equal(nm_norm_backward(s.norm, s.weights, s.dx, &err), NM_OK);
    assert_int_equal(nm_norm_backward(f.norm, f.weights, f.dx, &err), NM_OK);
    compare_floats(&s, settings, "y", N, f.y, s.y);
    compare_floats(&s, settings, "dx", N, f.dx, s.dx);
    for (int p = 0; p < s.shape.n_params; p++)
        if (s.norm->param_grads[p])
            compare_floats(&s, settings, s.shape.params[p].name, s.shape.params[p].length,
                           f.norm->param_grads[p], s.norm->param_grads[p]);
    for (int i = 0; i < s.shape.n_state; i++)
        compare_floats(&s, settings, s.shape.state[i].name, s.shape.state[i].length, f.norm->state[i],
                       s.norm->state[i]);
    nm_norm_free(s.norm);
    nm_norm_free(f.norm);
}

/* The defaults, with two exceptions. RBN compares with running values after the update, which depend on the
 * batch. Partial RMSNorm would use a single one of the 12 features, and differences are inaccurate where it
 * is near 0. */
static const char *settings_of(const nm_norm_type *type)
{
    if (!strcmp(type->name, "prms"))
        return "fraction=0.5";
    return type->traits & NM_HAS_PENALTY ? "lambda=0 nu=0" : NULL;
}

static void test_default_settings(void **unused)
{
    (void)unused;
    nm_backend *backend = open_backend();
    int checked = 0;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        if ((*type)->traits & NM_APPROX_GRAD)
            continue;
        check(backend, (*type)->name, settings_of(*type));
        checked++;
    }
    assert_true(checked >= 8);
    nm_backend_free(backend);
}

static void test_further_settings(void **unused)
{
    (void)unused;
    nm_backend *backend = open_backend();
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        for (int i = 0; i < MAX_SETTINGS && variants[v].settings[i]; i++)
            check(backend, variants[v].type, variants[v].settings[i]);
    nm_backend_free(backend);
}

/* Until its windows are full MABN uses batch statistics only, and its backward is the derivative. */
static void test_mabn_before_its_windows_are_full(void **unused)
{
    (void)unused;
    nm_backend *backend = open_backend();
    check(backend, "mabn", "window=20");
    check(backend, "mabn", "window=20 scaling=group");
    check(backend, "mabn", "window=20 center_weights=true");
    nm_backend_free(backend);
}

static void test_emulated(void **unused)
{
    (void)unused;
    nm_backend *reference = open_backend(), *emulated = open_backend_in("emulated", NM_F32);
    int checked = 0;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++, checked++)
        check_emulated(reference, emulated, (*type)->name, settings_of(*type));
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        for (int i = 0; i < MAX_SETTINGS && variants[v].settings[i]; i++)
            check_emulated(reference, emulated, variants[v].type, variants[v].settings[i]);
    assert_true(checked >= 21);
    nm_backend_free(reference);
    nm_backend_free(emulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_settings),
        cmocka_unit_test(test_further_settings),
        cmocka_unit_test(test_mabn_before_its_windows_are_full),
        cmocka_unit_test(test_emulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
