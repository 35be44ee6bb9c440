/* UTF-8 checking and decoding, lower case, properties, and the counter of words. */
#include "text_helper.h"

#include <string.h>

#include "text/counter.h"
#include "text/utf8.h"
#include "base/words.h"

static void invalid_bytes_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes, bad;
    } cases[] = {
        {"", 0, 0},
        {"plain", 5, 5},
        {"a\0b", 3, 3},
        {"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9, 9},
        {"ab\x80", 3, 2},           /* continuation without a lead */
        {"a\xC3", 2, 1},            /* cut off */
        {"a\xC3(", 3, 1},           /* not continued */
        {"\xC0\xAF", 2, 0},         /* overlong */
        {"x\xE0\x9F\xBF", 4, 1},    /* overlong */
        {"\xED\xA0\x80", 3, 0},     /* surrogate */
        {"\xF0\x8F\xBF\xBF", 4, 0}, /* overlong */
        {"\xF4\x8F\xBF\xBF", 4, 4}, /* U+10FFFF */
        {"\xF4\x90\x80\x80", 4, 0}, /* beyond */
        {"ok\xF0\x9F\x98", 5, 2},   /* cut off */
        {"\xFF\xFE", 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(nm_utf8_find_invalid(cases[i].text, cases[i].bytes), cases[i].bad);
}

static void invalid_bytes_are_found_at_every_place(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes <= 40; bytes++)
        for (size_t bad = 0; bad < bytes; bad++) {
            char text[40];
            memset(text, 'a', sizeof text);
            text[bad] = '\xFF';
            assert_int_equal(nm_utf8_find_invalid(text, bytes), bad);
            text[bad] = '\xC3';
            assert_int_equal(nm_utf8_find_invalid(text, bytes), bad);
            if (bad + 1 < bytes) {
                text[bad + 1] = '\xA4';
                assert_int_equal(nm_utf8_find_invalid(text, bytes), bytes);
            }
        }
}

static void every_code_point_survives(void **state)
{
    (void)state;
    nm_buffer text = {0};
    for (uint32_t point = 0; point < 0x110000; point++) {
        if (point >= 0xD800 && point < 0xE000)
            continue;
        nm_buffer_clear(&text);
        nm_utf8_append(&text, point);
        size_t at = 0;
        if (nm_utf8_find_invalid(text.data, text.bytes) != text.bytes ||
            nm_utf8_next(text.data, &at) != point || at != text.bytes)
            fail_msg("U+%04X does not survive", (unsigned)point);
    }
    nm_buffer_release(&text);
}

static void lower_case_is_that_of_perl(void **state)
{
    (void)state;
    static const char text[] =
        "STRASSE Stra\xC3\x9F\x65 \xC3\x84\xC3\x96\xC3\x9C \xC4\xB0 \xCE\xA3 \xD0\x96 \xE1\xBA\x9E 5";
    nm_buffer out = {0};
    nm_utf8_lowercase(text, strlen(text), &out);
    assert_buffer(&out,
                  "strasse stra\xC3\x9F\x65 \xC3\xA4\xC3\xB6\xC3\xBC i\xCC\x87 \xCF\x83 \xD0\xB6 \xC3\x9F 5");
    nm_buffer_release(&out);
}

static void properties_are_derived_ones(void **state)
{
    (void)state;
    assert_true(nm_unicode_is_alpha('z') && nm_unicode_is_alpha(0xE4) && nm_unicode_is_alpha(0x4E2D));
    assert_true(nm_unicode_is_alpha(0x2160)); /* roman numeral: category Nl */
    assert_true(nm_unicode_is_alpha(0x093E)); /* vowel sign: category Mc */
    assert_false(nm_unicode_is_alpha(0x0301) || nm_unicode_is_alpha('1') || nm_unicode_is_alpha('_'));
    assert_true(nm_unicode_is_alnum(0x0669) && !nm_unicode_is_alnum(0xB2));
    assert_true(nm_unicode_is_number(0xB2) && nm_unicode_is_number(0xBD) && !nm_unicode_is_number('x'));
    assert_true(nm_unicode_is_lower(0xDF) && nm_unicode_is_lower(0xAA) && !nm_unicode_is_lower('A'));
    assert_true(nm_unicode_is_lower_letter(0xDF) && !nm_unicode_is_lower_letter(0xAA));
    assert_true(nm_unicode_is_currency('$') && nm_unicode_is_currency(0x20AC) &&
                !nm_unicode_is_currency('%'));
    assert_true(nm_unicode_is_space(0xA0) && nm_unicode_is_space(0x85) && nm_unicode_is_space(0x3000));
    assert_true(nm_unicode_is_mark(0x094D) && nm_unicode_is_mark(0x0301) && nm_unicode_is_mark(0x200C));
    assert_false(nm_unicode_is_mark(0x200B) || nm_unicode_is_mark(0x0905) || nm_unicode_is_mark('x'));
    assert_true(nm_language_has_non_joiners("fa_IR") && !nm_language_has_non_joiners("fao"));
    assert_false(nm_unicode_is_space(0x200B) || nm_unicode_is_space('x') || nm_unicode_is_space(0));
}

static void scripts_without_spaces(void **state)
{
    (void)state;
    static const char *const with[] = {"a", "ß", "я", "한", "א", "अ", "1", " ", "\u3000"};
    static const char *const without[] = {"漢", "々", "か", "カ", "ｶ", "。", "，", "ไ", "ລ", "ខ", "မ", "𠀀"};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        size_t at = 0;
        assert_false(nm_unicode_is_unspaced(nm_utf8_next(with[i], &at)));
    }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        size_t at = 0;
        assert_true(nm_unicode_is_unspaced(nm_utf8_next(without[i], &at)));
    }
}

/* Where the scripts without spaces begin, and the first point after each. */
static void edges_of_scripts_without_spaces(void **state)
{
    (void)state;
    static const uint32_t edges[] = {0x0E00, 0x0F00, 0x1000,  0x10A0,  0x1780,  0x1800, 0x19E0, 0x1A00,
                                     0x2E80, 0x2FE0, 0x3001,  0x3100,  0x31C0,  0x3200, 0x3400, 0x4DC0,
                                     0x4E00, 0xA000, 0xA9E0,  0xAA00,  0xAA60,  0xAA80, 0xF900, 0xFB00,
                                     0xFF01, 0xFFA0, 0x1AFF0, 0x1B170, 0x20000, 0x323B0};
    enum { N = sizeof edges / sizeof *edges };
    size_t n = 0;
    for (uint32_t point = 1; point < 0x110000; point++)
        if (nm_unicode_is_unspaced(point) != nm_unicode_is_unspaced(point - 1)) {
            assert_in_range(n, 0, N - 1);
            assert_int_equal(point, edges[n++]);
        }
    assert_int_equal(n, N);
}

static void words_are_counted(void **state)
{
    (void)state;
    nm_counter counter = {0};
    nm_counter_add_line(&counter, "  b a  b\tc a b \r\n", 17);
    assert_int_equal(counter.n, 3);
    assert_int_equal(nm_counter_get(&counter, "b", 1), 2);
    assert_int_equal(nm_counter_get(&counter, "b\tc", 3), 1);
    assert_int_equal(nm_counter_get(&counter, "c", 1), 0);
    nm_counter_add(&counter, "d\0e", 3, 2);
    uint32_t *order = nm_counter_sort(&counter, NM_COUNT_THEN_FIRST);
    static const uint32_t first[] = {0, 1, 3, 2};
    assert_memory_equal(order, first, sizeof first);
    free(order);
    order = nm_counter_sort(&counter, NM_COUNT_THEN_BYTES);
    static const uint32_t bytes[] = {1, 0, 3, 2};
    assert_memory_equal(order, bytes, sizeof bytes);
    free(order);
    assert_int_equal(nm_counter_get(&counter, "d\0e", 3), 2);
    nm_counter_release(&counter);
}

static void many_words_keep_their_counts(void **state)
{
    (void)state;
    nm_counter one = {0}, other = {0};
    char word[32];
    for (int i = 0; i < 60000; i++) {
        int bytes = snprintf(word, sizeof word, "w%d", i % 20000);
        nm_counter_add(i % 2 ? &one : &other, word, (size_t)bytes, i);
    }
    nm_counter_merge(&one, &other);
    assert_int_equal(one.n, 20000);
    for (int i = 0; i < 20000; i++) {
        int bytes = snprintf(word, sizeof word, "w%d", i);
        assert_int_equal(nm_counter_get(&one, word, (size_t)bytes), 3 * i + 60000);
    }
    nm_counter_release(&one);
    nm_counter_release(&other);
}

static void counters_join_by_number(void **state)
{
    (void)state;
    nm_counter all = {0}, part = {0};
    uint32_t numbers[3];
    nm_counter_add_line(&all, "a b", 3);
    nm_counter_add_line(&part, "c b c d", 7);
    nm_counter_add_scaled(&all, &part, 0, numbers);
    static const uint32_t expected[] = {2, 1, 3};
    assert_memory_equal(numbers, expected, sizeof expected);
    assert_int_equal(nm_counter_get(&all, "c", 1), 0);
    nm_counter_add_scaled(&all, &part, 3, numbers);
    assert_memory_equal(numbers, expected, sizeof expected);
    assert_int_equal(nm_counter_get(&all, "c", 1), 6);
    assert_int_equal(nm_counter_get(&all, "b", 1), 4);
    nm_counter_release(&all);
    nm_counter_release(&part);
}

/* A cleared counter is empty, whether its memory was reset or, if it was much too large, released. */
static void cleared_counters_are_empty(void **state)
{
    (void)state;
    nm_counter counter = {0};
    char word[32];
    nm_counter_clear(&counter);
    for (int round = 0; round < 6; round++) {
        int words = round % 2 ? 3 : 5000;
        for (int i = 0; i < words; i++) {
            int bytes = snprintf(word, sizeof word, "w%d", i);
            assert_int_equal(nm_counter_add(&counter, word, (size_t)bytes, round + 1), i);
        }
        assert_int_equal(counter.n, words);
        assert_int_equal(nm_counter_get(&counter, "w2", 2), round + 1);
        nm_counter_clear(&counter);
        assert_int_equal(counter.n, 0);
        assert_true(nm_counter_find(&counter, "w2", 2) == SIZE_MAX);
    }
    nm_counter_release(&counter);
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    nm_counter counter = {0};
    nm_error err;
    static const char text[] = "fine here\nnot \xC3( here\n";
    char *path = write_temporary(text, sizeof text - 1);
    assert_int_equal(nm_counter_add_file(&counter, path, NULL, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, ":2: not UTF-8: byte 0xc3 at position 5"));
    remove_temporary(path);
    assert_int_equal(nm_counter_add_file(&counter, "/nowhere/at/all", NULL, &err), NM_IO);
    nm_counter_release(&counter);
}

static void a_long_line_is_a_line(void **state)
{
    (void)state;
    size_t bytes = (size_t)10 << 20;
    char *line = nm_allocate(bytes);
    memset(line, 'x', bytes);
    line[5] = ' ';
    char *path = write_temporary(line, bytes);
    nm_counter counter = {0};
    nm_error err;
    int64_t n_lines = 0;
    assert_int_equal(nm_counter_add_file(&counter, path, &n_lines, &err), NM_OK);
    assert_int_equal(n_lines, 1);
    assert_int_equal(counter.n, 2);
    assert_int_equal(counter.items[1].bytes, bytes - 6);
    nm_counter_release(&counter);
    remove_temporary(path);
    free(line);
}

static void counts_are_parsed(void **state)
{
    (void)state;
    size_t bytes;
    int64_t count;
    assert_true(nm_count_parse("b@@ 9223372036854775807", 23, ' ', &bytes, &count));
    assert_int_equal(bytes, 3);
    assert_int_equal(count, INT64_MAX);
    assert_true(nm_count_parse("c d 0", 5, ' ', &bytes, &count));
    assert_int_equal(bytes, 3);
    assert_int_equal(count, 0);
    static const char *const bad[] = {"", "a", "b x", " 2", "b -1", "b 9223372036854775808", "b ", "b 1 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(nm_count_parse(bad[i], strlen(bad[i]), ' ', &bytes, &count));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_bytes_are_found),
        cmocka_unit_test(invalid_bytes_are_found_at_every_place),
        cmocka_unit_test(every_code_point_survives),
        cmocka_unit_test(lower_case_is_that_of_perl),
        cmocka_unit_test(properties_are_derived_ones),
        cmocka_unit_test(scripts_without_spaces),
        cmocka_unit_test(edges_of_scripts_without_spaces),
        cmocka_unit_test(words_are_counted),
        cmocka_unit_test(many_words_keep_their_counts),
        cmocka_unit_test(counters_join_by_number),
        cmocka_unit_test(cleared_counters_are_empty),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(a_long_line_is_a_line),
        cmocka_unit_test(counts_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
