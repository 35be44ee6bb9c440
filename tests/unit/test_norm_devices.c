/* Every norm on backends whose memory the host cannot access: `ref` in fenced mode, and `cuda` on the stub of
 * NVIDIA's libraries (support/cuda_stub.h), whose device addresses are no host addresses and whose calls are
 * executed when the host waits. Forward and backward passes, gradients, running state and inference are those
 * of `ref`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "norma/norm_type.h"

enum { ROWS = 37, WIDTH = 24, N = ROWS * WIDTH, PASSES = 3, CAPACITY = 64 * N };

typedef struct results {
    size_t n;
    double values[CAPACITY];
} results;

static nm_backend *create(nm_backend_options options)
{
    nm_backend *backend;
    nm_error err;
    if (nm_backend_create(&backend, &options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

/* Normally distributed numbers, in device memory that belongs to the backend */
static void *numbers(nm_backend *backend, size_t n, uint64_t seed, double mean)
{
    void *memory;
    nm_error err;
    double values[N];
    for (size_t i = 0; i < n; i++) {
        const nm_random_words words = nm_random4(seed, NM_RANDOM_TEST, 0, 0, (uint64_t)i);
        values[i] = (double)(float)(mean + nm_random_normal(words.w[0], words.w[1]));
    }
    assert_int_equal(nm_backend_alloc(backend, N * sizeof(double), &memory, &err), NM_OK);
    nm_backend_write(backend, memory, values, n);
    return memory;
}

static void keep(results *out, nm_backend *backend, const void *memory, size_t n)
{
    assert_true(out->n + n <= CAPACITY);
    nm_backend_read(backend, out->values + out->n, memory, n);
    out->n += n;
}

/* Three updates, of which each has other inputs, then inference */
static void run(const nm_norm_type *type, nm_backend *backend, results *out)
{
    const nm_norm_site site = {.name = "test", .width = WIDTH, .groups = 3, .plan = {.warmup_updates = 2}};
    nm_norm *norm;
    nm_error err;
    *out = (results){0};
    if (nm_norm_create(&norm, backend, type->name, NULL, &site, &err) != NM_OK)
        fail_msg("%s", err.text);
    for (int p = 0; p < norm->shape.n_params; p++) {
        const int32_t length = norm->shape.params[p].length;
        double values[N];
        nm_backend_read(backend, values, norm->params[p], (size_t)length);
        for (int i = 0; i < length; i++)
            values[i] += 0.1 * (i % 7 - 3);
        nm_backend_write(backend, norm->params[p], values, (size_t)length);
    }
    void *y = numbers(backend, N, 1, 0), *dx = numbers(backend, N, 2, 0);
    for (uint64_t pass = 0; pass <= PASSES; pass++) {
        void *x = numbers(backend, N, 3 + pass, 0.2), *dy = numbers(backend, N, 13 + pass, 0);
        if (pass == PASSES) {
            assert_int_equal(nm_norm_infer(norm, ROWS, x, y, &err), NM_OK);
            keep(out, backend, y, N);
            continue;
        }
        assert_int_equal(nm_norm_forward(norm, ROWS, x, y, &err), NM_OK);
        assert_int_equal(nm_norm_backward(norm, dy, dx, &err), NM_OK);
        keep(out, backend, y, N);
        keep(out, backend, dx, N);
        out->values[out->n++] = nm_norm_penalty(norm);
    }
    for (int p = 0; p < norm->shape.n_params; p++)
        if (norm->param_grads[p])
            keep(out, backend, norm->param_grads[p], (size_t)norm->shape.params[p].length);
    for (int s = 0; s < norm->shape.n_state; s++)
        keep(out, backend, norm->state[s], (size_t)norm->shape.state[s].length);
    nm_norm_free(norm);
}

static results *run_on(const nm_norm_type *type, nm_backend_options options)
{
    results *out = nm_allocate(sizeof *out);
    nm_backend *backend = create(options);
    run(type, backend, out);
    nm_backend_free(backend);
    return out;
}

static void compare(const nm_norm_type *type, const char *mode, const results *actual,
                    const results *expected, double tolerance)
{
    assert_true(actual->n == expected->n && actual->n > 0);
    for (size_t i = 0; i < actual->n; i++)
        if (!(fabs(actual->values[i] - expected->values[i]) <=
              tolerance * fmax(1, fabs(expected->values[i]))))
            fail_msg("%s, %s: result %zu is %.9g instead of %.9g", type->name, mode, i, actual->values[i],
                     expected->values[i]);
}

static const nm_backend_options plain = {.name = "ref"};

static void test_fenced(void **state)
{
    (void)state;
    int n = 0;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++, n++) {
        nm_backend_options options = plain;
        options.fenced = true;
        results *expected = run_on(*type, plain), *actual = run_on(*type, options);
        compare(*type, "fenced", actual, expected, 0);
        free(expected);
        free(actual);
    }
    print_message("%d norms in fenced mode have the bits of ref\n", n);
    assert_true(n >= 21);
}

static void test_separate_and_deferred(void **state)
{
    (void)state;
    int n = 0;
    if (!dlopen(STUB_FOLDER "/libcuda.so.1", RTLD_NOW) || !dlopen(STUB_FOLDER "/libnvrtc.so.13", RTLD_NOW))
        fail_msg("%s", dlerror());
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++, n++) {
        results *expected = run_on(*type, plain);
        results *emulated = run_on(*type, (nm_backend_options){.name = "emulated"});
        results *cuda = run_on(*type, (nm_backend_options){.name = "cuda", .own_gemm = true});
        compare(*type, "emulated", emulated, expected, 2e-5);
        compare(*type, "separate addresses, deferred execution", cuda, emulated, 0);
        free(expected);
        free(emulated);
        free(cuda);
    }
    print_message("%d norms with separate addresses and deferred execution have the bits of emulated\n", n);
    assert_true(n >= 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fenced),
                                       cmocka_unit_test(test_separate_and_deferred)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
