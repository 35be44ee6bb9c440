/* chrF: small cases computed manually, and empty, short and several references. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "text/chrf.h"

static double score(const nm_chrf_config *config, const char *hypothesis, int n,
                    const char *const *references)
{
    int64_t counts[NM_CHRF_MAX_COUNTS];
    nm_chrf *chrf = nm_chrf_create(config);
    nm_chrf_count(chrf, hypothesis, references, n, counts);
    nm_chrf_free(chrf);
    return nm_chrf_of_counts(counts, config);
}

static double score_one(const nm_chrf_config *config, const char *hypothesis, const char *reference)
{
    return score(config, hypothesis, 1, &reference);
}

static void assert_close(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9))
        fail_msg("%.12g instead of %.12g", value, wanted);
}

static void characters(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    assert_close(score_one(&config, "abc", "abd"), 100 * (2.0 / 3 + 1.0 / 2 + 0) / 3);
    /* P = 1, R = (2/4 + 1/3) / 2 = 5/12; F2 = 5 P R / (4 P + R) */
    assert_close(score_one(&config, "ab", "abcd"), 100 * 25.0 / 53);
    config.beta = 1;
    assert_close(score_one(&config, "ab", "abcd"), 100 * 10.0 / 17);
    config.char_order = 1;
    assert_close(score_one(&config, "ab", "abcd"), 100 * 2.0 / 3);
}

static void spaces_and_letters(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    assert_close(score_one(&config,
                           "a b\xc2\xa0"
                           "cd",
                           " abc d "),
                 100);
    /* one letter of two bytes is one character */
    assert_close(score_one(&config, "\xc3\xa4\xc3\xb6\xc3\xbc", "\xc3\xa4\xc3\xb6x"),
                 100 * (2.0 / 3 + 1.0 / 2) / 3);
    assert_close(score_one(&config, "AB", "ab"), 0);
    config.lowercase = true;
    assert_close(score_one(&config, "AB", "ab"), 100);
}

/* ASCII punctuation is a separate word at both ends of a word, every other character is a part of it. */
static void punctuation(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    config.word_order = 2;
    for (char c = '!'; c <= '~'; c++) {
        const char ends[][6] = {{'a', 'b', c}, {'a', 'b', ' ', c}, {c, 'a', 'b'}, {c, ' ', 'a', 'b'},
                                {'a', c},      {'a', ' ', c},      {c, 'a'},      {c, ' ', 'a'}};
        bool mark = strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c);
        for (int i = 0; i < 8; i += 2)
            if ((score_one(&config, ends[i], ends[i + 1]) > 99.9) != mark)
                fail_msg("%s is %sone word", ends[i], mark ? "" : "not ");
    }
}

static void words(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    config.word_order = 2;
    config.char_order = 1;
    /* words "(hi" ")" "you" against "(hi" ")" "me": 2/3 and 1/2; characters 4 of 7 and 4 of 6 */
    double precision = (4.0 / 7 + 2.0 / 3 + 1.0 / 2) / 3, recall = (4.0 / 6 + 2.0 / 3 + 1.0 / 2) / 3;
    assert_close(score_one(&config, "(hi) you", "(hi) me"),
                 100 * 5 * precision * recall / (4 * precision + recall));
    /* a mark at the end of a word of one side only: sacreBLEU 2.6.0, CHRF(word_order=2) */
    nm_chrf_config plus = nm_chrf_default();
    plus.word_order = 2;
    assert_close(score_one(&plus, "stop, now!", "stop , then !"), 38.81523729571127);
    assert_close(score_one(&plus, "(yes) well, he said", "( yes) well , she said."), 63.79356482628624);
    /* a leading punctuation mark is split off as well: "(ab" is "(" "ab"; a single one is kept */
    assert_close(score_one(&config, "! (ab cd", "! ( ab cd"), 100);
}

static void references(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    assert_close(score(&config, "abc", 3, (const char *[]){"xyz", "abd", "ab"}),
                 fmax(score_one(&config, "abc", "abd"), score_one(&config, "abc", "ab")));
}

static void empty(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    config.word_order = 2;
    assert_close(score_one(&config, "", ""), 0);
    assert_close(score_one(&config, "abc", ""), 0);
    assert_close(score_one(&config, "", "abc"), 0);
    assert_close(score(&config, "", 2, (const char *[]){"", "abc"}), 0);
    assert_close(score_one(&config, "x", "x"), 100);
    assert_close(score_one(&config, "\xff\xc3", "\xff\xc3"), 100);
}

/* n-grams of a hypothesis whose reference is too short to have any of that order do not lower the precision
 * of the corpus. */
static void short_references(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    nm_chrf *chrf = nm_chrf_create(&config);
    int64_t first[NM_CHRF_MAX_COUNTS], second[NM_CHRF_MAX_COUNTS];
    nm_chrf_count(chrf, "abcdefgh", (const char *[]){"ab"}, 1, first);
    nm_chrf_count(chrf, "abcdefgh", (const char *[]){"abcdefgh"}, 1, second);
    for (int order = 3; order <= config.char_order; order++) {
        assert_int_equal(first[3 * (order - 1)], 0);
        assert_int_equal(second[3 * (order - 1)], 9 - order);
    }
    nm_chrf_free(chrf);
}

static void line(void **state)
{
    (void)state;
    nm_chrf_config config = nm_chrf_default();
    config.word_order = 2;
    char *text = nm_chrf_line(&config, 57.25001, 2);
    assert_string_equal(
        text, "chrF2++|nrefs:2|case:mixed|eff:yes|nc:6|nw:2|space:no|version:norma-" NORMA_VERSION " = 57.3");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters), cmocka_unit_test(spaces_and_letters), cmocka_unit_test(punctuation),
        cmocka_unit_test(words),      cmocka_unit_test(references),         cmocka_unit_test(empty),
        cmocka_unit_test(line),       cmocka_unit_test(short_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
