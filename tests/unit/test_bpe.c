/* BPE: the published example, subword-nmt's corner cases, both code formats, restriction to a vocabulary,
 * removal, and hostile inputs. The golden cases cover more. */
#include "text_helper.h"

#include <string.h>

#include "text/bpe.h"

static nm_bpe *learn(const char *text, nm_bpe_learn_options options)
{
    nm_counter words = {0};
    nm_bpe *bpe;
    nm_error err;
    nm_counter_add_line(&words, text, strlen(text));
    assert_int_equal(nm_bpe_learn(&words, &options, &bpe, &err), NM_OK);
    nm_counter_release(&words);
    return bpe;
}

static nm_bpe *parse(const char *codes)
{
    nm_bpe *bpe;
    nm_error err;
    assert_int_equal(nm_bpe_parse(codes, strlen(codes), "codes", &bpe, &err), NM_OK);
    return bpe;
}

static void assert_codes(const nm_bpe *bpe, nm_bpe_format format, const char *expected)
{
    nm_buffer text = {0};
    nm_bpe_format_text(bpe, format, &text);
    assert_buffer(&text, expected);
    nm_buffer_release(&text);
}

static void assert_segmented(const nm_bpe *bpe, const nm_counter *vocabulary, int64_t threshold,
                             const char *line, const char *expected)
{
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, vocabulary, threshold);
    nm_buffer out = {0};
    for (int again = 0; again < 2; again++) { /* the second time from the cache */
        nm_bpe_apply_line(applier, line, strlen(line), &out);
        assert_buffer(&out, expected);
    }
    nm_buffer_release(&out);
    nm_bpe_applier_free(applier);
}

/* The words of Sennrich et al. (2016), section 3.2. */
#define PUBLISHED                                                                                            \
    "low low low low low lower lower newest newest newest newest newest newest widest widest widest"

static void published_example(void **state)
{
    (void)state;
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    options.n_merges = 10;
    nm_bpe *bpe = learn(PUBLISHED, options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2,
                 "#version: 0.2\ns t</w>\ne st</w>\nl o\nw est</w>\nn e\nne west</w>\nlo w</w>\nw i\nwi "
                 "d\nwid est</w>\n");
    assert_segmented(bpe, NULL, 0, "lowest newest widest low slow", "lo@@ west newest widest low s@@ low");
    nm_bpe_free(bpe);
    options.n_merges = 2;
    bpe = learn(PUBLISHED, options);
    assert_codes(bpe, NM_BPE_FASTBPE, "s t</w> 9\ne st</w> 9\n");
    nm_bpe_free(bpe);
}

static void limits_of_learning(void **state)
{
    (void)state;
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    nm_bpe *bpe = learn("ab ab ab cd cd e", options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, "#version: 0.2\na b</w>\nc d</w>\n");
    nm_bpe_free(bpe);
    options.min_frequency = 3;
    bpe = learn("ab ab ab cd cd e", options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, "#version: 0.2\na b</w>\n");
    nm_bpe_free(bpe);
    options.min_frequency = 1;
    options.total_symbols = true;
    options.n_merges = 6; /* a c, b</w> d</w> e</w> leave one */
    bpe = learn("ab ab ab cd cd e", options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, "#version: 0.2\na b</w>\n");
    nm_bpe_free(bpe);
    options = nm_bpe_learn_options_default();
    options.max_word_bytes = 3;
    bpe = learn("abcd abcd xyz xyz", options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, "#version: 0.2\ny z</w>\nx yz</w>\n");
    nm_bpe_free(bpe);
    bpe = learn("", options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, "#version: 0.2\n");
    assert_segmented(bpe, NULL, 0, "ab c", "a@@ b c");
    nm_bpe_free(bpe);
}

static void ties_go_to_the_greatest_code_points(void **state)
{
    (void)state;
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    options.n_merges = 1;
    nm_bpe *bpe = learn("\xEF\xBC\xA1"
                        "a \xEF\xBC\xA1"
                        "a \xF0\x9F\x98\x80"
                        "a \xF0\x9F\x98\x80"
                        "a zz zz",
                        options);
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, "#version: 0.2\n\xF0\x9F\x98\x80 a</w>\n");
    nm_bpe_free(bpe);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    nm_counter words = {0};
    nm_bpe *bpe;
    nm_error err;
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    options.n_merges = -1;
    assert_int_equal(nm_bpe_learn(&words, &options, &bpe, &err), NM_USAGE);
    options = nm_bpe_learn_options_default();
    options.min_frequency = 0;
    assert_int_equal(nm_bpe_learn(&words, &options, &bpe, &err), NM_USAGE);
    nm_counter_add(&words, "a\xFF", 2, 1);
    options = nm_bpe_learn_options_default();
    assert_int_equal(nm_bpe_learn(&words, &options, &bpe, &err), NM_FORMAT);
    assert_null(bpe);
    nm_counter_release(&words);
}

static void margins_of_a_line_stay(void **state)
{
    (void)state;
    nm_bpe *bpe = parse("#version: 0.2\na b\n");
    assert_segmented(bpe, NULL, 0, "  abc  x \r\n", "  ab@@ c x \r\n");
    assert_segmented(bpe, NULL, 0, "   ", "   ");
    assert_segmented(bpe, NULL, 0, "", "");
    assert_segmented(bpe, NULL, 0, "ababab", "ab@@ ab@@ a@@ b");
    nm_bpe_free(bpe);
}

static void versions_differ_at_the_end_of_a_word(void **state)
{
    (void)state;
    nm_bpe *bpe = parse("a b\nab </w>\nc d\n");
    assert_int_equal(bpe->format, NM_BPE_SUBWORD_NMT_0_1);
    assert_segmented(bpe, NULL, 0, "ab xab cd x", "ab x@@ ab cd x");
    nm_bpe_free(bpe);
    bpe = parse("#version: 0.1\nc d\n");
    assert_int_equal(bpe->format, NM_BPE_SUBWORD_NMT_0_1);
    nm_bpe_free(bpe);
    bpe = parse("#version: 0.2\r\nc d\r\nc d</w>\r\n");
    assert_segmented(bpe, NULL, 0, "cd cdx", "cd cd@@ x");
    nm_bpe_free(bpe);
    bpe = parse("c d 7\na b</w> 5");
    assert_int_equal(bpe->format, NM_BPE_FASTBPE);
    assert_segmented(bpe, NULL, 0, "ab cd", "ab c@@ d");
    assert_codes(bpe, NM_BPE_FASTBPE, "c d 7\na b</w> 5\n");
    nm_bpe_free(bpe);
}

static void vocabulary_takes_units_apart(void **state)
{
    (void)state;
    nm_bpe *bpe = parse("#version: 0.2\na b\nab c</w>\nab ab\na b\n");
    nm_counter vocabulary = {0};
    assert_segmented(bpe, &vocabulary, 5, "abc abab", "abc ab@@ a@@ b"); /* empty: no restriction */
    nm_counter_add(&vocabulary, "abc", 3, 4);
    nm_counter_add(&vocabulary, "ab@@", 4, 9);
    nm_counter_add(&vocabulary, "abab@@", 6, 4);
    assert_segmented(bpe, &vocabulary, 4, "abc ababx q", "abc abab@@ x q");
    assert_segmented(bpe, &vocabulary, 5, "abc ababx q", "ab@@ c ab@@ ab@@ x q");
    assert_segmented(bpe, &vocabulary, 9, "abx", "ab@@ x");
    nm_counter_add(&vocabulary, "z", 1, 99);
    assert_segmented(bpe, &vocabulary, 10, "abx", "a@@ b@@ x");
    nm_counter_release(&vocabulary);
    nm_bpe_free(bpe);
}

static void bad_codes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *codes;
        size_t bytes;
        const char *message;
    } cases[] = {
        {"", 0, "c: empty"},
        {"\n\n", 2, "c: empty"},
        {"#version: 0.3\na b\n", 18, "c:1: unknown version"},
        {"#version:\na b\n", 14, "c:1: unknown version"},
        {"#version: 0.2\na b\nabc\n", 22, "c:3: expected two symbols"},
        {"#version: 0.2\na b 5\n", 20, "c:2: expected two symbols"},
        {"a b\na  b\n", 9, "c:2: expected two symbols"},
        {"a b\n\nc d\n", 9, "c:2: expected two symbols"},
        {"a b 1\nc d\n", 10, "c:2: expected \"left right count\""},
        {"a b 1\nc d x\n", 12, "c:2: the third field is not a count"},
        {"a b c d\n", 8, "c:1: expected two symbols"},
        {"a b\n\xC3 b\n", 8, "c:2: not UTF-8"},
        {"a b\na\0 b\n", 9, "c:2: contains a zero byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nm_bpe *bpe;
        nm_error err;
        assert_int_equal(nm_bpe_parse(cases[i].codes, cases[i].bytes, "c", &bpe, &err), NM_FORMAT);
        assert_null(bpe);
        assert_int_equal(strncmp(err.text, cases[i].message, strlen(cases[i].message)), 0);
    }
    nm_bpe *bpe;
    nm_error err;
    assert_int_equal(nm_bpe_read("/nowhere/codes", &bpe, &err), NM_IO);
}

static void removal_undoes_application(void **state)
{
    (void)state;
    nm_buffer out = {0};
    static const char *const pairs[][2] = {{"lo@@ west new@@ est", "lowest newest"},
                                           {"cut o@@", "cut o"},
                                           {"a@@b @@@ c @@", "a@@b @c "},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        nm_bpe_remove(pairs[i][0], strlen(pairs[i][0]), &out);
        assert_buffer(&out, pairs[i][1]);
    }
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    options.n_merges = 6;
    nm_bpe *bpe = learn(PUBLISHED, options);
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    uint32_t random = 7;
    nm_buffer line = {0}, split = {0};
    for (int i = 0; i < 2000; i++) {
        nm_buffer_clear(&line);
        nm_buffer_clear(&split);
        for (int j = 0; j < 20; j++) {
            random = random * 1664525u + 1013904223u;
            static const char *const letters[] = {"l", "o", "w", "e", "r",       "s",
                                                  "t", "n", "i", "d", "\xC3\xA4"};
            const char *letter = letters[(random >> 16) % 11];
            nm_buffer_append(&line, letter, strlen(letter));
            if ((random >> 24) % 5 == 0 && j < 19)
                nm_buffer_append_byte(&line, ' ');
        }
        nm_bpe_apply_line(applier, line.data, line.bytes, &split);
        nm_bpe_remove(split.data, split.bytes, &out);
        assert_buffer(&out, line.data);
    }
    nm_buffer_release(&line);
    nm_buffer_release(&split);
    nm_buffer_release(&out);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
}

static void a_huge_word_is_segmented(void **state)
{
    (void)state;
    size_t bytes = (size_t)2 << 20;
    char *word = nm_allocate(bytes + 1);
    memset(word, 'a', bytes);
    nm_bpe *bpe = parse("#version: 0.2\na a\naa aa\naaaa aaaa\n");
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_buffer out = {0}, back = {0};
    nm_bpe_apply_line(applier, word, bytes, &out);
    assert_int_equal(strncmp(out.data, "aaaaaaaa@@ aaaaaaaa@@ ", 22), 0);
    nm_bpe_remove(out.data, out.bytes, &back);
    assert_int_equal(back.bytes, bytes);
    nm_buffer_release(&out);
    nm_buffer_release(&back);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
    free(word);
}

/* "a a" joins pairs from the left, but the last a is another symbol. */
static void expect_pairs(size_t n, nm_buffer *out)
{
    nm_buffer_clear(out);
    for (size_t i = 0; i < (n - 1) / 2; i++)
        nm_buffer_append(out, "aa@@ ", 5);
    if (n % 2 == 0)
        nm_buffer_append(out, "a@@ ", 4);
    nm_buffer_append_byte(out, 'a');
}

/* Shorter words are cached, longer words are segmented each time: the results are equal. */
static void words_around_the_longest_kept(void **state)
{
    (void)state;
    nm_bpe *bpe = parse("#version: 0.2\na a\n");
    nm_buffer expected = {0};
    char word[NM_BPE_CACHE_MAX_WORD + 8];
    for (size_t n = NM_BPE_CACHE_MAX_WORD - 3; n <= NM_BPE_CACHE_MAX_WORD + 3; n++) {
        memset(word, 'a', n);
        word[n] = 0;
        expect_pairs(n, &expected);
        assert_segmented(bpe, NULL, 0, word, expected.data);
        memcpy(word + n - 3, "\xE2\x82\xAC", 3); /* the euro sign across the edge */
        expect_pairs(n - 2, &expected);
        expected.bytes--; /* the sign stands for the last a */
        nm_buffer_append(&expected, "\xE2\x82\xAC", 3);
        assert_segmented(bpe, NULL, 0, word, expected.data);
    }
    nm_buffer_release(&expected);
    nm_bpe_free(bpe);
}

/* More words than the cache can store: it is cleared, and the results do not change. */
static void a_full_cache_starts_anew(void **state)
{
    (void)state;
    enum { WORDS = 60000, BYTES = NM_BPE_CACHE_MAX_WORD };
    nm_bpe *bpe = parse("#version: 0.2\n0 1\n");
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_buffer out = {0}, back = {0};
    char word[BYTES + 1];
    for (int i = 0; i < WORDS + 10; i++) {
        snprintf(word, sizeof word, "%0*d", BYTES, i % WORDS);
        nm_bpe_apply_line(applier, word, BYTES, &out);
        nm_bpe_remove(out.data, out.bytes, &back);
        assert_buffer(&back, word);
        nm_buffer_clear(&out);
    }
    nm_buffer_release(&out);
    nm_buffer_release(&back);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
}

/* Merges that form long chains, and symbols that resemble the end-of-word mark. */
static void forged_codes_end(void **state)
{
    (void)state;
    nm_buffer codes = {0};
    nm_buffer_append(&codes, "#version: 0.2\n", 14);
    char *chain = nm_allocate(2001);
    memset(chain, 'a', 2000);
    for (int i = 1; i < 2000; i++) {
        nm_buffer_append(&codes, chain, (size_t)i);
        nm_buffer_append(&codes, " a\n", 3);
    }
    nm_buffer_append(&codes, "< /w>\nb </w>\n/ w>\n", 18);
    nm_bpe *bpe = parse(codes.data);
    nm_counter vocabulary = {0};
    nm_counter_add(&vocabulary, "z", 1, 1);
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, &vocabulary, 1);
    nm_buffer out = {0}, back = {0};
    nm_bpe_apply_line(applier, chain, 2000, &out);
    nm_bpe_apply_line(applier, " b</w> </w>", 11, &out);
    nm_bpe_remove(out.data, out.bytes, &back);
    assert_int_equal(strncmp(out.data, "a@@ a@@ ", 8), 0);
    assert_int_equal(strncmp(back.data, chain, 2000), 0);
    assert_string_equal(back.data + 2000, " b</w> </w>");
    nm_buffer_release(&codes);
    nm_buffer_release(&out);
    nm_buffer_release(&back);
    nm_counter_release(&vocabulary);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
    free(chain);
}

/* Words that are kept whole are not split, and are not part of the codes. */
static void kept_words_are_whole(void **state)
{
    (void)state;
    static const char codes[] = "#version: 0.2\nl o\nlo w</w>\n";
    nm_bpe *bpe = parse(codes);
    nm_counter words = {0};
    nm_counter_add(&words, "lower", 5, 0);
    nm_bpe_keep_whole(bpe, &words);
    nm_counter_release(&words);
    assert_segmented(bpe, NULL, 0, "lower low slower", "lower low s@@ lo@@ w@@ e@@ r");
    assert_codes(bpe, NM_BPE_SUBWORD_NMT_0_2, codes);
    nm_bpe_free(bpe);
}

static void symbols_of_the_merges(void **state)
{
    (void)state;
    nm_bpe *bpe = parse("#version: 0.2\nl o\ne r</w>\n");
    assert_true(nm_bpe_has_symbol(bpe, "lo", 2, false));
    assert_false(nm_bpe_has_symbol(bpe, "lo", 2, true));
    assert_true(nm_bpe_has_symbol(bpe, "er", 2, true));
    assert_false(nm_bpe_has_symbol(bpe, "er", 2, false));
    assert_false(nm_bpe_has_symbol(bpe, "or", 2, true));
    nm_bpe_free(bpe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_example),
        cmocka_unit_test(limits_of_learning),
        cmocka_unit_test(ties_go_to_the_greatest_code_points),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(margins_of_a_line_stay),
        cmocka_unit_test(versions_differ_at_the_end_of_a_word),
        cmocka_unit_test(vocabulary_takes_units_apart),
        cmocka_unit_test(bad_codes_are_named),
        cmocka_unit_test(removal_undoes_application),
        cmocka_unit_test(a_huge_word_is_segmented),
        cmocka_unit_test(words_around_the_longest_kept),
        cmocka_unit_test(a_full_cache_starts_anew),
        cmocka_unit_test(forged_codes_end),
        cmocka_unit_test(kept_words_are_whole),
        cmocka_unit_test(symbols_of_the_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
