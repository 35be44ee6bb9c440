/* Hash map: numbers are found by hash, all numbers with equal hashes are found, and a cleared map is
 * empty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash_map.h"

static uint32_t count_numbers(const nm_hash_map *map, uint32_t hash, uint32_t number)
{
    size_t probe = 0;
    uint32_t found = 0;
    for (uint32_t i; (i = nm_hash_map_next(map, hash, &probe)) != NM_HASH_NONE;)
        found += i == number;
    return found;
}

static void test_find_after_growth(void **unused)
{
    (void)unused;
    nm_hash_map map = {0};
    assert_int_equal(count_numbers(&map, 7, 0), 0);
    for (uint32_t i = 0; i < 5000; i++)
        nm_hash_map_add(&map, nm_hash_pair(i, 2 * i), i);
    assert_int_equal(map.n, 5000);
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(count_numbers(&map, nm_hash_pair(i, 2 * i), i), 1);
    assert_int_equal(count_numbers(&map, nm_hash_pair(5000, 10000), 5000), 0);
    nm_hash_map_release(&map);
}

static void test_equal_hashes(void **unused)
{
    (void)unused;
    nm_hash_map map = {0};
    for (uint32_t i = 0; i < 100; i++)
        nm_hash_map_add(&map, 0xFFFFFFFFu, i); /* wraps around the end of the slots */
    nm_hash_map_add(&map, 0xFFFFFFFEu, 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(count_numbers(&map, 0xFFFFFFFFu, i), 1);
    assert_int_equal(count_numbers(&map, 0xFFFFFFFEu, 100), 1);
    assert_int_equal(count_numbers(&map, 0xFFFFFFFEu, 5), 0);
    nm_hash_map_release(&map);
}

static void test_clear(void **unused)
{
    (void)unused;
    nm_hash_map map = {0};
    nm_hash_map_clear(&map);
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < 200; i++) {
            assert_int_equal(count_numbers(&map, nm_hash_pair(i, 1), i), 0);
            nm_hash_map_add(&map, nm_hash_pair(i, 1), i);
        }
        nm_hash_map_clear(&map);
    }
    /* The largest number uses up the 32 bits of a slot after two rounds. */
    for (int round = 0; round < 5; round++) {
        nm_hash_map_add(&map, 1, NM_HASH_MAX - 1);
        nm_hash_map_add(&map, 2, 0);
        assert_int_equal(count_numbers(&map, 1, NM_HASH_MAX - 1), 1);
        assert_int_equal(count_numbers(&map, 2, 0), 1);
        nm_hash_map_clear(&map);
        assert_int_equal(count_numbers(&map, 1, NM_HASH_MAX - 1), 0);
        assert_int_equal(count_numbers(&map, 2, 0), 0);
    }
    nm_hash_map_release(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_after_growth),
        cmocka_unit_test(test_equal_hashes),
        cmocka_unit_test(test_clear),
    };
    return cmocka_run_group_tests_name("hash map", tests, NULL, NULL);
}
