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
    } cases[] = {
        {"Das Haus, rot.", "das ha@@ us , rot .", 6, {0, 1, 1, 1, 2, 2}},
        {"\"It's\" R&D", "&quot; it &apos;s &quot; r &amp; d", 7, {0, 0, 0, 0, 1, 1, 1}},
        {"Ünter uns", "▁ün ter ▁ u ns", 5, {0, 0, 0, 1, 1}},
        {"ﬁn de", "fin de", 2, {0, 1}}, /* normalized */
        {"a <unk> b", "a <unk> b", 3, {0, 1, 2}},
        {"a b c", "a x@@ y b c", 5, {0, 0, 0, 1, 2}}, /* not in the text */
        {"", "a b", 2, {-1, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_word_span *spans;
        int32_t words[9];
        size_t n = nm_word_spans(cases[i].text, strlen(cases[i].text), &spans);
        nm_word_spans_of_subwords(cases[i].text, spans, n, cases[i].subwords, strlen(cases[i].subwords),
                                  cases[i].n, words);
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
    nm_word_spans_of_subwords(text, spans, n, text, 2 * N, N, words);
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
