/* Blocks divided between threads: each is computed once, by its own thread if that thread is not late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <omp.h>

#include "backend/cpu/shares.h"

enum { MOST_THREADS = 5, MOST_BLOCKS = 23, ROUNDS = 1000 };

typedef struct fixture {
    nm_backend *backend;
    nm_shares shares;
} fixture;

static fixture divided(int32_t threads, int32_t blocks)
{
    fixture f = {0};
    nm_error err;
    assert_int_equal(
        nm_backend_create(&f.backend, &(nm_backend_options){.name = "cpu", .threads = threads}, &err), NM_OK);
    f.shares = nm_shares_of(f.backend, threads);
    nm_shares_divide(&f.shares, blocks);
    return f;
}

/* A thread whose team has not started, as in a forked process, gets the blocks of all. */
static void one_thread_gets_all_blocks(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= MOST_THREADS; threads++)
        for (int32_t blocks = 0; blocks <= MOST_BLOCKS; blocks++) {
            fixture f = divided(threads, blocks);
            int32_t taken[MOST_BLOCKS] = {0}, n = 0;
            for (int32_t i; (i = nm_shares_take(&f.shares, threads - 1)) >= 0; n++) {
                assert_in_range(i, 0, blocks - 1);
                taken[i]++;
            }
            assert_int_equal(n, blocks);
            for (int32_t i = 0; i < blocks; i++)
                assert_int_equal(taken[i], 1);
            assert_int_equal(nm_shares_take(&f.shares, 0), -1);
            nm_backend_free(f.backend);
        }
}

/* Threads that take turns get their own contiguous shares in order; sizes differ by at most one block. */
static void each_thread_gets_its_share_first(void **state)
{
    (void)state;
    fixture f = divided(3, 10);
    static const int32_t expected[][3] = {{0, 3, 6}, {1, 4, 7}, {2, 5, 8}};
    for (size_t turn = 0; turn < sizeof expected / sizeof *expected; turn++)
        for (int32_t thread = 0; thread < 3; thread++)
            assert_int_equal(nm_shares_take(&f.shares, thread), expected[turn][thread]);
    assert_int_equal(nm_shares_take(&f.shares, 1), 9); /* the rest of another share */
    for (int32_t thread = 0; thread < 3; thread++)
        assert_int_equal(nm_shares_take(&f.shares, thread), -1);
    nm_backend_free(f.backend);
}

static void concurrent_threads_get_each_block_once(void **state)
{
    (void)state;
    for (int32_t threads = 2; threads <= MOST_THREADS; threads++) {
        fixture f = divided(threads, 0);
        for (int32_t round = 0; round < ROUNDS; round++) {
            int32_t taken[MOST_BLOCKS] = {0}, blocks = round % (MOST_BLOCKS + 1);
            nm_shares_divide(&f.shares, blocks);
#pragma omp parallel num_threads(threads)
            for (int32_t i; (i = nm_shares_take(&f.shares, omp_get_thread_num())) >= 0;) {
#pragma omp atomic
                taken[i]++;
            }
            for (int32_t i = 0; i < MOST_BLOCKS; i++)
                assert_int_equal(taken[i], i < blocks);
        }
        nm_backend_free(f.backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_thread_gets_all_blocks),
                                       cmocka_unit_test(each_thread_gets_its_share_first),
                                       cmocka_unit_test(concurrent_threads_get_each_block_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
