/* GEMMs of several blocks of rows and columns, with few and many threads: each block is computed once, in the
 * right place, also the last one, which can be higher than the others. The operands are small integers, so
 * the results are exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/memory.h"
#include "kernel_levels.h"

enum { DEPTH = 3 };
static const int32_t threads[] = {1, 2, 3, 5, 40};

typedef struct gemm_case {
    int32_t rows, cols;
    bool ta, tb;
    float *a, *b, *c;
} gemm_case;

static int value_a(int32_t row, int32_t k)
{
    return (int)((7 * (int64_t)row + 3 * k) % 11) - 5;
}

static int value_b(int32_t k, int32_t col)
{
    return (int)((5 * (int64_t)col + 4 * k) % 13) - 6;
}

static gemm_case case_create(int32_t rows, int32_t cols, bool ta, bool tb)
{
    gemm_case g = {.rows = rows, .cols = cols, .ta = ta, .tb = tb};
    g.a = nm_allocate((size_t)rows * DEPTH * sizeof(float));
    g.b = nm_allocate((size_t)cols * DEPTH * sizeof(float));
    g.c = nm_allocate((size_t)rows * (size_t)cols * sizeof(float));
    assert_true(g.a && g.b && g.c);
    for (int32_t k = 0; k < DEPTH; k++) {
        for (int32_t i = 0; i < rows; i++)
            g.a[ta ? k * rows + i : i * DEPTH + k] = (float)value_a(i, k);
        for (int32_t j = 0; j < cols; j++)
            g.b[tb ? j * DEPTH + k : k * cols + j] = (float)value_b(k, j);
    }
    return g;
}

static void case_free(gemm_case *g)
{
    free(g->a);
    free(g->b);
    free(g->c);
}

/* c = 1 + a b, so that a block that is computed twice is noticed */
static void check_case(const gemm_case *g, nm_backend *backend, const char *level)
{
    for (size_t i = 0; i < (size_t)g->rows * (size_t)g->cols; i++)
        g->c[i] = 1;
    NM_CALL(backend, gemm, .ta = g->ta, .tb = g->tb, .alpha = 1,
            .a = nm_mat_of(g->a, g->ta ? DEPTH : g->rows, g->ta ? g->rows : DEPTH),
            .b = nm_mat_of(g->b, g->tb ? g->cols : DEPTH, g->tb ? DEPTH : g->cols), .beta = 1,
            .c = nm_mat_of(g->c, g->rows, g->cols));
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->cols; j++) {
            int expected = 1;
            for (int32_t k = 0; k < DEPTH; k++)
                expected += value_a(i, k) * value_b(k, j);
            if (g->c[(size_t)i * (size_t)g->cols + (size_t)j] != (float)expected)
                fail_msg("%s, %d threads, [%d, %d]: element (%d, %d) is %g, not %d", level,
                         (int)backend->threads, (int)g->rows, (int)g->cols, (int)i, (int)j,
                         (double)g->c[(size_t)i * (size_t)g->cols + (size_t)j], expected);
        }
}

static void check_cases(nm_backend *backend, const char *level)
{
    for (int32_t cols = 33; cols <= 3000; cols += 1107) /* up to three blocks of columns */
        for (int32_t rows = 90; rows <= 1000; rows += 301) {
            gemm_case g = case_create(rows, cols, rows & 1, cols & 1);
            check_case(&g, backend, level);
            case_free(&g);
        }
    /* The height of the last block depends on the number of rows. */
    for (int32_t rows = 1500; rows < 2300; rows += 37) {
        gemm_case g = case_create(rows, 33, false, true);
        check_case(&g, backend, level);
        case_free(&g);
    }
}

static void gemms_of_several_blocks_are_exact(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t i = 0; i < N_CPU_LEVELS; i++)
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
                nm_backend *b = level_create((nm_backend_options){
                    .name = "cpu", .isa = cpu_levels[i], .threads = threads[t], .bf16 = bf16 != 0});
                if (!b)
                    break;
                check_cases(b, cpu_levels[i]);
                nm_backend_free(b);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gemms_of_several_blocks_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
