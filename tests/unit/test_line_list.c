/* Lists of lines: added lines are returned unchanged. Edit distance between names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/edit_distance.h"
#include "base/line_list.h"

static void keeps_lines(void **state)
{
    (void)state;
    nm_line_list list = {0};
    const char *const lines[] = {"one", "", "a\0b", "last"};
    const size_t lengths[] = {3, 0, 3, 4};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 4; i++)
            nm_line_list_add(&list, lines[i], lengths[i]);
        assert_int_equal(list.n, 4);
        for (size_t i = 0; i < 4; i++) {
            size_t bytes;
            const char *line = nm_line_list_get(&list, i, &bytes);
            assert_int_equal(bytes, lengths[i]);
            assert_memory_equal(line, lines[i], bytes);
        }
        nm_line_list_clear(&list);
        assert_int_equal(list.n, 0);
    }
    nm_line_list_release(&list);
}

static void measures_names(void **state)
{
    (void)state;
    assert_int_equal(nm_edit_distance("", ""), 0);
    assert_int_equal(nm_edit_distance("train", "train"), 0);
    assert_int_equal(nm_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(nm_edit_distance("", "abc"), 3);
    assert_int_equal(nm_edit_distance("abc", ""), 3);
    assert_true(nm_edit_distance_is_near(2, "prepear"));
    assert_false(nm_edit_distance_is_near(3, "tag"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_lines),
        cmocka_unit_test(measures_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
