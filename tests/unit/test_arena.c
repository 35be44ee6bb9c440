/* Arenas: regions of a counted source within the limit, alignment, exhaustion and reset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct source {
    size_t bytes, most, regions;
} source;

static void *take(void *user, size_t bytes)
{
    source *self = user;
    self->bytes += bytes;
    self->most = self->bytes > self->most ? self->bytes : self->most;
    self->regions++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void give_back(void *user, void *region, size_t bytes)
{
    source *self = user;
    self->bytes -= bytes;
    self->regions--;
    free(region);
}

/* Small allocations use the whole limit and no byte more, one that does not fit fails, and so do all others
 * until reset. Whatever the limit: a multiple of the smallest region or not. */
static void test_limit(void **state)
{
    (void)state;
    static const size_t limits[] = {(size_t)1 << 20, 1000000, 300000, 100000};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        source counts = {0};
        nm_arena arena;
        nm_arena_init_source(&arena, &(nm_arena_source){take, give_back, &counts}, limits[l]);
        for (int round = 0; round < 2; round++) {
            size_t got = 0;
            for (char *at; (at = nm_arena_alloc(&arena, 1000)) != NULL; got++) {
                assert_int_equal((uintptr_t)at % 64, 0);
                memset(at, (int)got, 1000);
            }
            assert_true(counts.most <= limits[l]);
            assert_true(got >= limits[l] / 1024 * 9 / 10 && got <= limits[l] / 1000);
            assert_true(arena.exhausted);
            assert_null(nm_arena_alloc(&arena, 1));
            nm_arena_reset(&arena);
            assert_int_equal(counts.regions, 1);
        }
        assert_null(nm_arena_alloc(&arena, limits[l] + 1));
        assert_true(counts.most <= limits[l]);
        nm_arena_release(&arena);
        assert_int_equal(counts.bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
