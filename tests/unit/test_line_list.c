/* Lists of lines: what goes in comes out, and mapping keeps the order for any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/nearest.h"
#include "data/line_list.h"

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

/* Says the line twice and counts calls; every second line gives nothing. */
static void say_twice(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    ++*(int *)state;
    if (line[bytes - 1] % 2)
        return;
    nm_buffer_append(out, line, bytes);
    nm_buffer_append(out, line, bytes);
}

static void maps_in_order(void **state)
{
    (void)state;
    enum { LINES = 3001, THREADS = 3 };
    nm_line_list in = {0};
    for (int i = 0; i < LINES; i++) {
        char text[16];
        nm_line_list_add(&in, text, (size_t)snprintf(text, sizeof text, "%d", i));
    }
    for (int threads = 1; threads <= THREADS; threads++) {
        nm_line_list out = {0};
        int counts[THREADS] = {0};
        void *const states[THREADS] = {&counts[0], &counts[1], &counts[2]};
        nm_line_list_map(&in, say_twice, states, threads, &out);
        assert_int_equal(out.n, LINES);
        assert_int_equal(counts[0] + counts[1] + counts[2], LINES);
        for (int i = 0; i < LINES; i++) {
            char wanted[32];
            size_t length = i % 2 ? 0 : (size_t)snprintf(wanted, sizeof wanted, "%d%d", i, i), bytes;
            const char *got = nm_line_list_get(&out, (size_t)i, &bytes);
            assert_int_equal(bytes, length);
            assert_memory_equal(got, wanted, bytes);
        }
        nm_line_list_release(&out);
    }
    nm_line_list_release(&in);
}

static void maps_nothing(void **state)
{
    (void)state;
    nm_line_list in = {0}, out = {0};
    int count = 0;
    void *const states[1] = {&count};
    nm_line_list_map(&in, say_twice, states, 1, &out);
    assert_int_equal(out.n, 0);
    assert_int_equal(count, 0);
    nm_line_list_release(&out);
}

static void measures_names(void **state)
{
    (void)state;
    assert_int_equal(nm_edit_distance("", ""), 0);
    assert_int_equal(nm_edit_distance("train", "train"), 0);
    assert_int_equal(nm_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(nm_edit_distance("", "abc"), 3);
    assert_int_equal(nm_edit_distance("abc", ""), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_lines),
        cmocka_unit_test(maps_in_order),
        cmocka_unit_test(maps_nothing),
        cmocka_unit_test(measures_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
