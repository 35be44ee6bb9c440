/* Sorting and median of doubles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/sort.h"

static void test_median(void **unused)
{
    (void)unused;
    const double odd[] = {3, -1, 10}, even[] = {4, 1, 3, 2};
    assert_true(nm_median(odd, 3) == 3);
    assert_true(nm_median(even, 4) == 2.5);
    assert_true(even[0] == 4); /* not changed */
    assert_true(nm_median(odd, 1) == 3);
    assert_true(isnan(nm_median(NULL, 0)));
}

static void test_sort(void **unused)
{
    (void)unused;
    double values[] = {0.5, -INFINITY, 1e300, -2, 0.5};
    const double sorted[] = {-INFINITY, -2, 0.5, 0.5, 1e300};
    nm_sort_doubles(values, 5);
    for (int i = 0; i < 5; i++)
        assert_true(values[i] == sorted[i]);
    nm_sort_doubles(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_median), cmocka_unit_test(test_sort)};
    return cmocka_run_group_tests_name("sort", tests, NULL, NULL);
}
