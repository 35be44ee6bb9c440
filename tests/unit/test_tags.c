/* Tag schemes: spans as defined by conlleval, valid transitions, conversion between schemes and back, and F1;
 * the best path of a chain compared with all paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "task/tag_chain.h"
#include "text/span_f1.h"

enum { MOST = 32 };

/* Splits "O B-X I-X" at spaces. */
static int32_t cut(const char *line, char *copy, const char **tags)
{
    int32_t n = 0;
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        tags[n++] = word;
    return n;
}

static void check_spans(const char *line, const char *wanted)
{
    char copy[256], text[256] = "";
    const char *tags[MOST];
    nm_span spans[MOST];
    int32_t n = cut(line, copy, tags), found = nm_tag_spans(tags, n, spans);
    for (int32_t i = 0; i < found; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%d-%d", i ? " " : "", spans[i].label,
                 spans[i].first, spans[i].end);
    assert_string_equal(text, wanted);
}

static void reads_spans(void **state)
{
    (void)state;
    check_spans("", "");
    check_spans("O O", "");
    check_spans("B-X I-X O B-Y", "X:0-2 Y:3-4");
    check_spans("B-X B-X", "X:0-1 X:1-2");
    check_spans("I-X I-X B-X I-Y", "X:0-2 X:2-3 Y:3-4"); /* IOB1 */
    check_spans("B-X I-X E-X S-X S-Y", "X:0-3 X:3-4 Y:4-5");
    check_spans("B-X M-X E-X E-X", "X:0-3 X:3-4"); /* malformed: an E after an E starts a span */
    check_spans("S-X I-X O E-X", "X:0-1 X:1-2 X:3-4");
    check_spans("B-X I-Y E-X", "X:0-1 Y:1-2 X:2-3");
}

static void check_convert(nm_tag_scheme scheme, const char *line, const char *wanted)
{
    char copy[256], text[256] = "", *made[MOST];
    const char *tags[MOST];
    int32_t n = cut(line, copy, tags);
    nm_tags_convert(scheme, tags, n, made);
    for (int32_t i = 0; i < n; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", made[i]);
        free(made[i]);
    }
    assert_string_equal(text, wanted);
}

static void converts(void **state)
{
    (void)state;
    const char *bio = "B-X I-X B-X O B-Y B-X I-X I-X";
    check_convert(NM_TAGS_IOB1, bio, "I-X I-X B-X O I-Y I-X I-X I-X");
    check_convert(NM_TAGS_BIOES, bio, "B-X E-X S-X O S-Y B-X I-X E-X");
    check_convert(NM_TAGS_BMESO, bio, "B-X E-X S-X O S-Y B-X M-X E-X");
    check_convert(NM_TAGS_BILOU, bio, "B-X L-X U-X O U-Y B-X I-X L-X");
    check_convert(NM_TAGS_BIO, "B-X L-X U-X O U-Y B-X I-X L-X", bio);
    check_convert(NM_TAGS_BIO, "I-X I-X B-X O I-Y I-X I-X I-X", bio);
    check_convert(NM_TAGS_BIO, "B-X E-X S-X O S-Y B-X M-X E-X", bio);
}

static int32_t first_bad(nm_tag_scheme scheme, const char *line)
{
    char copy[256];
    const char *tags[MOST];
    int32_t n = cut(line, copy, tags), bad = nm_tags_check(scheme, tags, n);
    return bad == n ? -1 : bad;
}

static void knows_what_is_legal(void **state)
{
    (void)state;
    assert_int_equal(first_bad(NM_TAGS_BIO, "O B-X I-X B-X"), -1);
    assert_int_equal(first_bad(NM_TAGS_BIO, "O I-X"), 1);
    assert_int_equal(first_bad(NM_TAGS_BIO, "B-X I-Y"), 1);
    assert_int_equal(first_bad(NM_TAGS_BIO, "B-X E-X"), 1);
    assert_int_equal(first_bad(NM_TAGS_IOB1, "O I-X B-X I-X I-Y"), -1);
    assert_int_equal(first_bad(NM_TAGS_IOB1, "O B-X"), 1);
    assert_int_equal(first_bad(NM_TAGS_BIOES, "B-X I-X E-X S-Y O"), -1);
    assert_int_equal(first_bad(NM_TAGS_BIOES, "O B-X"), 1); /* must not end there */
    assert_int_equal(first_bad(NM_TAGS_BIOES, "B-X O"), 1);
    assert_int_equal(first_bad(NM_TAGS_BIOES, "E-X"), 0);
    assert_int_equal(first_bad(NM_TAGS_BMESO, "B-X M-X E-X"), -1);
    assert_int_equal(first_bad(NM_TAGS_BMESO, "B-X I-X E-X"), 1);
    assert_int_equal(first_bad(NM_TAGS_BILOU, "B-X I-X L-X U-X U-X O B-X L-X B-X L-X"), -1);
    assert_int_equal(first_bad(NM_TAGS_BILOU, "B-X U-X"), 1);
    assert_int_equal(first_bad(NM_TAGS_BILOU, "U-X L-X"), 1);
    assert_int_equal(first_bad(NM_TAGS_BILOU, "B-X I-X O"), 2);
    assert_int_equal(first_bad(NM_TAGS_BILOU, "B-X I-X E-X"), 2);
    static const char *const good[] = {"O", "B-X", "S-a-b", "E-\xc3\xa9"}, *const bad[] = {
                                                                               "",    "X",  "o",
                                                                               "B",   "B-", "BX-1",
                                                                               "O-X", "-X", "B_X"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(nm_tag_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(nm_tag_valid(bad[i]));
}

static nm_tag_scheme guessed(const char *line)
{
    char copy[256];
    const char *tags[MOST];
    nm_tag_guess guess = {0};
    nm_tag_guess_add(&guess, tags, cut(line, copy, tags));
    return nm_tag_guess_scheme(&guess);
}

static void guesses_schemes(void **state)
{
    (void)state;
    assert_int_equal(guessed("O B-X I-X"), NM_TAGS_BIO);
    assert_int_equal(guessed("O I-X I-X B-X"), NM_TAGS_IOB1);
    assert_int_equal(guessed("B-X I-X E-X"), NM_TAGS_BIOES);
    assert_int_equal(guessed("O S-X"), NM_TAGS_BIOES);
    assert_int_equal(guessed("B-X M-X E-X"), NM_TAGS_BMESO);
    /* single wrong tags */
    assert_int_equal(guessed("I-X O B-X I-X O B-Y B-X O"), NM_TAGS_BIO);
    assert_int_equal(guessed("B-X O I-X I-X O I-Y"), NM_TAGS_IOB1);
    assert_int_equal(guessed("B-X I-X O B-X O E-X O B-Y I-Y I-Y O"), NM_TAGS_BIO);
    assert_int_equal(guessed("B-X M-X O S-X B-Y E-Y O B-X M-X E-X"), NM_TAGS_BMESO);
    assert_int_equal(guessed("B-X I-X L-X O U-Y"), NM_TAGS_BILOU);
    assert_int_equal(guessed("O U-X"), NM_TAGS_BILOU);
    assert_int_equal(guessed("O O"), NM_TAGS_BIO);
    /* without labels or marks */
    assert_int_equal(guessed("S S B E S"), NM_TAGS_BMESO);
    assert_int_equal(guessed("S B I E S"), NM_TAGS_BIOES);
    assert_int_equal(guessed("B I B B I I"), NM_TAGS_BIO);
    assert_int_equal(guessed("O B I O"), NM_TAGS_BIO);
    assert_int_equal(guessed("O O O Country"), NM_TAGS_IO);
    assert_int_equal(guessed("DT NN VBD"), NM_TAGS_NONE);
    assert_int_equal(guessed("N O V D N V P D N ,"), NM_TAGS_NONE); /* O is a rare class */
    assert_int_equal(guessed("NN VV M-x NN VV"), NM_TAGS_NONE);
    /* mistakes and other notations are not another scheme */
    assert_int_equal(guessed("O B-X I-X O BX O"), NM_TAGS_BIO);
    assert_int_equal(guessed("O B_X I_X O"), NM_TAGS_BIO);
    assert_int_equal(guessed("O X-B X-I O"), NM_TAGS_BIO);
    assert_int_equal(guessed("O Q-X"), NM_TAGS_BIO);
}

/* From the tags of a file to span tags and back. */
static void reads_and_writes_tags(void **state)
{
    (void)state;
    static const struct {
        nm_tag_scheme scheme;
        const char *text, *tag;
    } cases[] = {{NM_TAGS_BIO, "B-X", "B-X"},
                 {NM_TAGS_BIO, "O", "O"},
                 {NM_TAGS_BMESO, "M", "M"},
                 {NM_TAGS_BIO, "DT", NULL},
                 {NM_TAGS_BIO, "", NULL},
                 {NM_TAGS_IO, "O", "O"},
                 {NM_TAGS_IO, "Country", "I-Country"},
                 {NM_TAGS_IO, "I", "I-I"},
                 {NM_TAGS_NONE, "DT", "S-DT"},
                 {NM_TAGS_NONE, "O", "S-O"},
                 {NM_TAGS_NONE, "-", "S--"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *tag = nm_tag_read(cases[i].scheme, cases[i].text);
        if (!cases[i].tag) {
            assert_null(tag);
            continue;
        }
        assert_string_equal(tag, cases[i].tag);
        char *text = nm_tag_written(cases[i].scheme, tag);
        assert_string_equal(text, cases[i].text);
        free(text);
        free(tag);
    }
    check_spans("B E S B M M E", ":0-2 :2-3 :3-7");
    check_spans("I-A I-A I-B O I-B", "A:0-2 B:2-3 B:4-5");
    check_convert(NM_TAGS_BIOES, "B I B O", "B E S O");
    check_convert(NM_TAGS_BMESO, "B I I B", "B M E S");
    check_convert(NM_TAGS_IO, "B-A E-A S-A O S-B", "I-A I-A I-A O I-B");
    check_convert(NM_TAGS_NONE, "S-DT S-NN", "S-DT S-NN");
    assert_int_equal(first_bad(NM_TAGS_NONE, "S-DT S-NN"), -1);
    assert_int_equal(first_bad(NM_TAGS_IO, "I-A I-B O I-A"), -1);
    assert_int_equal(first_bad(NM_TAGS_BMESO, "B S"), 1);
}

static void counts_spans(void **state)
{
    (void)state;
    char a[256], b[256];
    const char *found[MOST], *gold[MOST];
    int32_t n = cut("B-X I-X O B-Y I-Y B-Z", a, found);
    assert_int_equal(cut("B-X I-X O B-Y O B-X", b, gold), n);
    nm_span_counts counts = nm_span_count(found, gold, n);
    assert_int_equal(counts.correct, 1);
    assert_int_equal(counts.predicted, 3);
    assert_int_equal(counts.gold, 3);
    nm_counter labels = {0};
    nm_span_counts each[3] = {{0}};
    for (const char *label = "XYZ"; *label; label++)
        nm_counter_add(&labels, label, 1, 1);
    nm_span_count_labels(found, gold, n, &labels, each);
    nm_span_count_labels(gold, gold, n, &labels, each);
    const nm_span_counts wanted[] = {{3, 3, 4}, {1, 2, 2}, {0, 1, 0}};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(each[k].correct, wanted[k].correct);
        assert_int_equal(each[k].predicted, wanted[k].predicted);
        assert_int_equal(each[k].gold, wanted[k].gold);
    }
    nm_counter_release(&labels);
    const nm_span_counts uneven = {2, 4, 8}, none = {0, 0, 0};
    nm_span_score score = nm_span_compute(&uneven);
    assert_true(fabs(score.precision - 0.5) < 1e-15 && fabs(score.recall - 0.25) < 1e-15);
    assert_true(fabs(score.f1 - 1.0 / 3) < 1e-15);
    assert_true(nm_span_compute(&none).f1 == 0);
}

/* The best path, by exhaustive search. */
static double best_by_trying(const nm_chain *chain, const double *emissions, int32_t n, int32_t *best)
{
    double most = -INFINITY;
    int32_t path[8], total = 1;
    for (int32_t i = 0; i < n; i++)
        total *= chain->tags;
    for (int32_t code = 0; code < total; code++) {
        int32_t rest = code;
        for (int32_t i = 0; i < n; i++, rest /= chain->tags)
            path[i] = rest % chain->tags;
        double score = chain->start[path[0]] + chain->end[path[n - 1]];
        for (int32_t i = 0; i < n; i++)
            score += emissions[i * chain->tags + path[i]] +
                     (i ? chain->transitions[path[i - 1] * chain->tags + path[i]] : 0);
        if (score > most) {
            most = score;
            memcpy(best, path, (size_t)n * sizeof *path);
        }
    }
    return most;
}

static double normal(uint32_t site, uint64_t index)
{
    nm_random_words words = nm_random4(3, NM_RANDOM_TEST, site, 0, index);
    return nm_random_normal(words.w[0], words.w[1]);
}

static void finds_the_best_path(void **state)
{
    (void)state;
    enum { TAGS = 5 };
    static const char *const names[TAGS] = {"O", "B-X", "I-X", "E-X", "S-X"};
    for (int32_t n = 1; n <= 5; n++)
        for (int forbid = 0; forbid < 2; forbid++) {
            nm_chain chain;
            double emissions[5 * TAGS];
            int32_t found[5], wanted[5];
            const char *tags[5];
            nm_chain_init(&chain, TAGS);
            for (size_t i = 0; i < TAGS * TAGS + 2 * TAGS; i++)
                chain.transitions[i] = normal((uint32_t)n, i);
            for (size_t i = 0; i < 5 * TAGS; i++)
                emissions[i] = 3 * normal((uint32_t)n + 100, i);
            if (forbid)
                nm_chain_forbid(&chain, NM_TAGS_BIOES, names);
            double score = nm_viterbi(&chain, emissions, n, found);
            assert_true(fabs(score - best_by_trying(&chain, emissions, n, wanted)) < 1e-9);
            assert_memory_equal(found, wanted, (size_t)n * sizeof *found);
            for (int32_t i = 0; i < n; i++)
                tags[i] = names[found[i]];
            if (forbid)
                assert_int_equal(nm_tags_check(NM_TAGS_BIOES, tags, n), n);
            nm_chain_release(&chain);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_spans),          cmocka_unit_test(converts),
        cmocka_unit_test(knows_what_is_legal),  cmocka_unit_test(guesses_schemes),
        cmocka_unit_test(counts_spans),         cmocka_unit_test(finds_the_best_path),
        cmocka_unit_test(reads_and_writes_tags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
