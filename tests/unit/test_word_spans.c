/* text/word_spans.h: words of a text, and the words of its subwords. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "text/word_spans.h"

static void words_are_separated_by_white_space(void **state)
{
    (void)state;
    nm_word_span *spans;
    const char *text = "  für  uns\t\u2028x ";
    assert_int_equal(nm_word_spans(text, strlen(text), &spans), 3);
    assert_memory_equal(text + spans[0].begin, "für", spans[0].end - spans[0].begin);
    assert_int_equal(spans[0].begin, 2);
    assert_int_equal(spans[1].end, 11);
    assert_int_equal(spans[2].end - spans[2].begin, 1);
    free(spans);
    assert_int_equal(nm_word_spans(" ", 1, &spans), 0);
    assert_null(spans);
}

static void subwords_belong_to_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *subwords;
        int32_t n, words[9];
        bool byte_level;
    } cases[] = {
        {"Das Haus, rot.", "das ha@@ us , rot .", 6, {0, 1, 1, 1, 2, 2}, false},
        {"\"It's\" R&D", "&quot; it &apos;s &quot; r &amp; d", 7, {0, 0, 0, 0, 1, 1, 1}, false},
        {"Ünter uns", "▁ün ter ▁ u ns", 5, {0, 0, 0, 1, 1}, false},
        {"ﬁn de", "fin de", 2, {0, 1}, false}, /* normalized */
        {"a <unk> b", "a <unk> b", 3, {0, 1, 2}, false},
        {"a b c", "a x@@ y b c", 5, {0, 0, 0, 1, 2}, false}, /* not in the text */
        {"", "a b", 2, {-1, -1}, false},
        {"Für uns!", "F Ã ¼r Ġun s !", 6, {0, 0, 0, 1, 1, 1}, true}, /* two bytes of a character */
        {"a  ü", "a Ġ ĠÃ ¼", 4, {0, 0, 1, 1}, true},
        {"a b", "a Ã b", 3, {0, 0, 1}, true}, /* an incomplete character */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_word_span *spans;
        int32_t words[9];
        size_t n = nm_word_spans(cases[i].text, strlen(cases[i].text), &spans);
        const nm_subword_line line = {cases[i].subwords, strlen(cases[i].subwords), cases[i].n,
                                      cases[i].byte_level};
        nm_word_spans_of_subwords(cases[i].text, spans, n, &line, words);
        for (int32_t k = 0; k < cases[i].n; k++)
            if (words[k] != cases[i].words[k])
                fail_msg("%s: subword %d belongs to word %d", cases[i].text, k, words[k]);
        free(spans);
    }
}

/* No quadratic memory. */
static void long_texts_are_divided_evenly(void **state)
{
    (void)state;
    enum { N = 30000 };
    char *text = nm_allocate(2 * N + 1);
    int32_t *words = nm_allocate(N * sizeof *words);
    for (int i = 0; i < N; i++)
        memcpy(text + 2 * i, "x ", 2);
    nm_word_span *spans;
    size_t n = nm_word_spans(text, 2 * N, &spans);
    assert_int_equal(n, N);
    nm_word_spans_of_subwords(text, spans, n, &(nm_subword_line){.text = text, .bytes = 2 * N, .n = N},
                              words);
    for (int i = 0; i < N; i++)
        assert_int_equal(words[i], i);
    free(spans);
    free(words);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_separated_by_white_space),
                                       cmocka_unit_test(subwords_belong_to_words),
                                       cmocka_unit_test(long_texts_are_divided_evenly)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
