/* Max pooling: of equal values the first row counts, which gets the gradient. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_levels.h"

enum { ROWS = 5, COLS = 2, SEQS = 2 };

static void check(nm_backend_options options)
{
    static const float values[ROWS * COLS] = {1, -2, 1, -1, 0, -1, 3, 5, 3, 4};
    static const int32_t offsets[] = {0, 3, ROWS}, expected[SEQS * COLS] = {0, 1, 3, 3};
    nm_packing packing = {SEQS, ROWS, 3, offsets, NULL};
    nm_backend *b = level_create(options);
    void *x, *out, *where;
    int32_t found[SEQS * COLS];
    float pooled[SEQS * COLS];
    nm_error err;
    assert_int_equal(nm_backend_alloc(b, sizeof values, &x, &err), NM_OK);
    assert_int_equal(nm_backend_alloc(b, sizeof pooled, &out, &err), NM_OK);
    assert_int_equal(nm_backend_alloc(b, sizeof found, &where, &err), NM_OK);
    nm_backend_upload(b, x, values, sizeof values);
    NM_CALL(b, pool_max, .x = nm_mat_of(x, ROWS, COLS), .packing = &packing,
            .out = nm_mat_of(out, SEQS, COLS), .where = where);
    nm_backend_download(b, found, where, sizeof found);
    nm_backend_download(b, pooled, out, sizeof pooled);
    assert_memory_equal(found, expected, sizeof found);
    for (int i = 0; i < SEQS * COLS; i++)
        assert_true(pooled[i] == values[expected[i] * COLS + i % COLS]);
    nm_backend_dealloc(b, x);
    nm_backend_dealloc(b, out);
    nm_backend_dealloc(b, where);
    nm_backend_free(b);
}

static void test_first_of_equal_values(void **state)
{
    (void)state;
    check((nm_backend_options){.name = "ref", .dtype = NM_F32});
    check((nm_backend_options){.name = "cpu", .isa = "auto", .threads = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_of_equal_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
