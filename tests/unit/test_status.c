/* Messages: one line of whole UTF-8 characters, whatever they quote and wherever they are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8_cut.h"
#include "text/utf8.h"

/* Texts of 1 to 4 bytes per character, shifted by 0 to 3 bytes; heap. */
static char *long_text(size_t bytes, const char *character, size_t shift)
{
    size_t length = strlen(character);
    char *text = nm_allocate(shift + bytes + length + 1);
    memset(text, '.', shift);
    for (size_t at = shift; at < shift + bytes; at += length)
        memcpy(text + at, character, length);
    return text;
}

static void assert_whole(const nm_error *err)
{
    size_t bytes = strlen(err->text);
    assert_true(bytes < sizeof err->text);
    assert_int_equal(nm_utf8_find_invalid(err->text, bytes), bytes);
    assert_null(strchr(err->text, '?'));
}

static const char *const characters[] = {"x", "\u00e4", "\u4e2d", "\U0001F600"};

static void long_messages_are_cut_between_characters(void **state)
{
    (void)state;
    nm_error err;
    for (size_t i = 0; i < 16; i++) {
        char *text = long_text(3000, characters[i / 4], i % 4);
        assert_int_equal(nm_fail(&err, NM_FORMAT, "%s: not valid", text), NM_FORMAT);
        assert_whole(&err);
        assert_non_null(strstr(err.text, " ... "));
        assert_non_null(strstr(err.text, ": not valid"));
        assert_true(strlen(err.text) > sizeof err.text - 12);

        char *inner = long_text(900, characters[i / 4], i % 4),
             *context = long_text(200, characters[i / 4], 1);
        nm_fail(&err, NM_FORMAT, "%s", inner);
        assert_int_equal(nm_error_prefix(&err, "%s", context), NM_FORMAT);
        assert_whole(&err);
        nm_fail(&err, NM_FORMAT, "inner");
        nm_error_prefix(&err, "%s", text); /* longer than a context */
        assert_whole(&err);
        assert_non_null(strstr(err.text, ": inner"));
        free(text);
        free(inner);
        free(context);
    }
}

static void other_bytes_are_replaced(void **state)
{
    (void)state;
    nm_error err;
    nm_fail(&err, NM_IO, "%s: %.2s", "a\nb\033c\177", "x\u00e4");
    assert_string_equal(err.text, "a?b?c?: x?");
    nm_fail(&err, NM_IO,
            "B\xE4"
            "cker \x80 Gr\u00fc\u00dfe \xE4\xB8");
    assert_string_equal(err.text, "B?cker ? Gr\u00fc\u00dfe ??");
}

static void trim_removes_incomplete_characters(void **state)
{
    (void)state;
    static const char whole[] = "a\u00e4\u4e2d\U0001F600"; /* characters end at bytes 1, 3, 6, 10 */
    static const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
    for (size_t n = 0; n < sizeof whole; n++) {
        char text[sizeof whole] = "";
        memcpy(text, whole, n);
        nm_utf8_trim(text);
        assert_int_equal(strlen(text), ends[n]);
    }
    char latin[] = "B\x80\x80\x80\x80"; /* not UTF-8: nothing is removed */
    nm_utf8_trim(latin);
    assert_int_equal(strlen(latin), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_messages_are_cut_between_characters),
                                       cmocka_unit_test(other_bytes_are_replaced),
                                       cmocka_unit_test(trim_removes_incomplete_characters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
