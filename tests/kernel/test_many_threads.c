/* Kernels that divide their work in another way if there are many threads, and products of several spans:
 * results are bitwise identical to those of one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/memory.h"
#include "kernel_levels.h"

enum { TOKENS = 1609, WIDTH = 72, WORDS = 2303, MANY_THREADS = 40 };

/* Operands, and results after two calls, which add to the gradients. */
typedef struct loss_case {
    float hidden[TOKENS * WIDTH], weight[WORDS * WIDTH], bias[WORDS];
    int32_t targets[TOKENS];
    float d_hidden[TOKENS * WIDTH], d_weight[WORDS * WIDTH], d_bias[WORDS], d_column[WIDTH];
    double sums[2];
} loss_case;

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
}

static loss_case *run(nm_backend *b)
{
    loss_case *c = nm_allocate(sizeof *c);
    assert_non_null(c);
    memset(c, 0, sizeof *c);
    fill(c->hidden, TOKENS * WIDTH, 1);
    fill(c->weight, WORDS * WIDTH, 2);
    fill(c->bias, WORDS, 3);
    for (int32_t i = 0; i < TOKENS; i++)
        c->targets[i] = i % 37 ? i * 7 % WORDS : NM_TARGET_IGNORED;
    const nm_mat hidden = nm_mat_of(c->hidden, TOKENS, WIDTH);
    for (int i = 0; i < 2; i++) {
        NM_CALL(b, softmax_loss, .hidden = hidden, .weight = nm_mat_of(c->weight, WORDS, WIDTH),
                .bias = c->bias, .targets = c->targets, .eps = 0.1, .grad_scale = 0.3, .sums = c->sums,
                .d_hidden = c->d_hidden, .d_weight = c->d_weight, .d_bias = c->d_bias);
        NM_CALL(b, linear_grad_weight, .dy = hidden, .db = c->d_column);
    }
    return c;
}

static void results_do_not_depend_on_many_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_CPU_LEVELS; i++) {
        nm_backend_options options = {
            .name = "cpu", .isa = cpu_levels[i / 2], .threads = 1, .bf16 = i % 2 == 1};
        nm_backend *one = level_create(options);
        if (!one)
            continue;
        options.threads = MANY_THREADS;
        nm_backend *many = level_create(options);
        loss_case *expected = run(one), *actual = run(many);
        assert_true(expected->sums[0] > 0 && expected->d_bias[5] != 0 && expected->d_column[5] != 0);
        assert_memory_equal(expected, actual, sizeof *expected);
        free(expected);
        free(actual);
        nm_backend_free(one);
        nm_backend_free(many);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_do_not_depend_on_many_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
