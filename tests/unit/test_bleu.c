/* BLEU: published examples, the printed lines, and empty, short and very long texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/bleu.h"

static const nm_bleu_config multi = {.variant = NM_BLEU_MULTI},
                            multi_lc = {.variant = NM_BLEU_MULTI, .lowercase = true},
                            sacre = {.variant = NM_BLEU_SACRE_13A};

static nm_bleu_stats count(const nm_bleu_config *config, const char *hypothesis, int n,
                           const char *const *references)
{
    nm_bleu *bleu = nm_bleu_create(config);
    nm_bleu_stats stats;
    nm_bleu_count(bleu, hypothesis, references, n, &stats);
    nm_bleu_free(bleu);
    return stats;
}

static nm_bleu_stats count_one(const nm_bleu_config *config, const char *hypothesis, const char *reference)
{
    return count(config, hypothesis, 1, &reference);
}

static void assert_close(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9))
        fail_msg("%.12g instead of %.12g", value, wanted);
}

static void assert_line(const nm_bleu_config *config, const nm_bleu_stats *stats, const char *wanted)
{
    nm_bleu_score score = nm_bleu_compute(config, stats);
    char *line = nm_bleu_line(config, &score, 1);
    assert_string_equal(line, wanted);
    free(line);
}

/* Papineni et al. 2002, examples 1 and 2, with the precisions printed there. */
static const char *const guide[] = {
    "It is a guide to action that ensures that the military will forever heed Party commands",
    ("It is the guiding principle which guarantees the military forces always being under the command of "
     "the Party"),
    "It is the practical guide for the army always to heed the directions of the party"};

static void published_precisions(void **state)
{
    (void)state;
    nm_bleu_stats good = count(&multi_lc,
                               "It is a guide to action which ensures that the military always obeys the "
                               "commands of the party",
                               3, guide);
    assert_int_equal(good.matches[0], 17);
    assert_int_equal(good.totals[0], 18);
    assert_int_equal(good.matches[1], 10);
    assert_int_equal(good.totals[1], 17);
    assert_int_equal(good.ref_len, 18);
    nm_bleu_stats bad = count(
        &multi_lc, "It is to insure the troops forever hearing the activity guidebook that party direct", 3,
        guide);
    assert_int_equal(bad.matches[0], 8);
    assert_int_equal(bad.totals[0], 14);
    assert_int_equal(bad.matches[1], 1);
    assert_int_equal(bad.totals[1], 13);
    nm_bleu_stats clipped = count(&multi_lc, "the the the the the the the", 2,
                                  (const char *[]){"The cat is on the mat", "There is a cat on the mat"});
    assert_int_equal(clipped.matches[0], 2);
    assert_int_equal(clipped.totals[0], 7);
}

/* The published PowerNorm checkpoint: 126196 words against 131156 in 6750 segments. */
static void published_brevity(void **state)
{
    (void)state;
    static const double precisions[] = {0.695, 0.442, 0.301, 0.209};
    nm_bleu_stats sum = {.hyp_len = 126196, .ref_len = 131156};
    for (int n = 0; n < NM_BLEU_ORDER; n++) {
        sum.totals[n] = 126196 - 6750 * n;
        sum.matches[n] = (int64_t)(precisions[n] * (double)sum.totals[n] + 0.5);
    }
    nm_bleu_score score = nm_bleu_compute(&multi, &sum);
    assert_true(fabs(score.brevity_penalty - 0.961) < 0.0005);
    assert_true(fabs(score.bleu - 35.87) < 0.1); /* the precisions are rounded */
}

static void by_hand(void **state)
{
    (void)state;
    nm_bleu_stats sum = count_one(&multi, "a b c d", "a b c d e");
    nm_bleu_score score = nm_bleu_compute(&multi, &sum);
    assert_close(score.bleu, 100 * exp(1 - 5.0 / 4));
    nm_bleu_stats more = count_one(&multi, "a b c d x", "a b c d e");
    nm_bleu_add(&sum, &more);
    score = nm_bleu_compute(&multi, &sum);
    assert_close(score.bleu, 100 * exp(1 - 10.0 / 9) * pow(8.0 / 9 * 6 / 7 * 4 / 5 * 2 / 3, 0.25));
    assert_close(nm_bleu_of_counts((const int64_t *)&sum, &multi), score.bleu);
    assert_line(&multi, &sum,
                "BLEU = 71.44, 88.9/85.7/80.0/66.7 (BP=0.895, ratio=0.900, hyp_len=9, ref_len=10)");
}

static void closest_reference(void **state)
{
    (void)state;
    assert_int_equal(count(&multi, "a b c d", 2, (const char *[]){"a b c d e f", "a b c"}).ref_len, 3);
    assert_int_equal(count(&multi, "a b c d", 2, (const char *[]){"a b c d e", "a b c"}).ref_len, 3);
    assert_int_equal(count(&multi, "a b c d", 2, (const char *[]){"a b c", "a b c d e"}).ref_len, 3);
    assert_int_equal(count(&multi, "", 2, (const char *[]){"a b", "a"}).ref_len, 1);
}

static void empty_texts(void **state)
{
    (void)state;
    nm_bleu_stats nothing = count_one(&multi, "", "");
    assert_line(&multi, &nothing, "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)");
    nm_bleu_stats silent = count_one(&multi, "  \t ", "a b");
    assert_line(&multi, &silent,
                "BLEU = 0.00, 0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=2)");
    silent = count_one(&sacre, " ", "");
    assert_line(&sacre, &silent,
                "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:norma-" NORMA_VERSION
                " = 0.0 0.0/0.0/0.0/0.0 (BP = 1.000 ratio = 0.000 hyp_len = 0 ref_len = 0)");
    nm_bleu_stats sum = count_one(&multi, "a b c d", "a b c d"), none = count_one(&multi, "", "e");
    nm_bleu_add(&sum, &none);
    assert_close(nm_bleu_compute(&multi, &sum).bleu, 100 * exp(1 - 5.0 / 4));
}

static void short_texts(void **state)
{
    (void)state;
    nm_bleu_stats word = count_one(&multi, "Katze", "Katze");
    assert_line(&multi, &word,
                "BLEU = 0.00, 100.0/0.0/0.0/0.0 (BP=1.000, ratio=1.000, hyp_len=1, ref_len=1)");
    assert_close(nm_bleu_compute(&sacre, &word).bleu, 0);
    nm_bleu_config single = {.variant = NM_BLEU_SACRE_13A, .effective_order = true};
    assert_close(nm_bleu_compute(&single, &word).bleu, 100);
    nm_bleu_stats three = count_one(&sacre, "a b x c", "a b y c"); /* matches 3, 1, 0, 0 of 4, 3, 2, 1 */
    assert_close(nm_bleu_compute(&sacre, &three).bleu,
                 100 * pow(3.0 / 4 * 1 / 3 * 1 / (2 * 2) * 1 / (4 * 1), 0.25));
    assert_close(nm_bleu_compute(&multi, &three).bleu, 0);
    nm_bleu_stats wrong = count_one(&sacre, "a b c d e", "v w x y z"); /* no match: 0 despite smoothing */
    assert_close(nm_bleu_compute(&sacre, &wrong).bleu, 0);
}

static void lower_case(void **state)
{
    (void)state;
    assert_int_equal(count_one(&multi, "The CAT", "the cat").matches[0], 0);
    assert_int_equal(count_one(&multi_lc, "The CAT", "the cat").matches[0], 2);
    /* the Perl script compares bytes, sacreBLEU characters */
    nm_bleu_config sacre_lc = {.variant = NM_BLEU_SACRE_13A, .lowercase = true};
    assert_int_equal(count_one(&multi_lc,
                               "\xc3\x9c"
                               "BER",
                               "\xc3\xbc"
                               "ber")
                         .matches[0],
                     0);
    assert_int_equal(count_one(&sacre_lc,
                               "\xc3\x9c"
                               "BER",
                               "\xc3\xbc"
                               "ber")
                         .matches[0],
                     1);
}

static void spaces(void **state)
{
    (void)state;
    assert_int_equal(count_one(&multi,
                               "a\xc2\xa0"
                               "b\tc",
                               "x")
                         .hyp_len,
                     2); /* no-break space */
    assert_int_equal(count_one(&sacre,
                               "a\xc2\xa0"
                               "b\tc",
                               "x")
                         .hyp_len,
                     3);
}

static void compounds(void **state)
{
    (void)state;
    nm_bleu_config atat = {.variant = NM_BLEU_MULTI, .split_compounds = true};
    nm_bleu_stats stats = count_one(&atat, "well-known -- well-", "well-known");
    assert_int_equal(stats.hyp_len, 5);
    assert_int_equal(stats.ref_len, 3);
    assert_int_equal(stats.matches[2], 1);
}

static void token_ids(void **state)
{
    (void)state;
    static const int32_t hypothesis[] = {1, 1, 5, 3, 6, 7, 8, 2, 1},
                         reference[] = {5, 3, 6, 7, 8, 9, 2, 2, 1};
    nm_bleu *bleu = nm_bleu_create(&multi);
    nm_bleu_stats stats;
    nm_bleu_count_ids(bleu, (nm_bleu_marks){.pad = 1, .eos = 2, .unk = 3}, hypothesis, 9, reference, 9,
                      &stats);
    assert_int_equal(stats.hyp_len, 5);
    assert_int_equal(stats.ref_len, 6);
    assert_int_equal(stats.matches[0], 4); /* all but the unknown word */
    assert_int_equal(stats.matches[1], 2);
    assert_int_equal(stats.matches[2], 1);
    assert_int_equal(stats.matches[3], 0);
    nm_bleu_count_ids(bleu, (nm_bleu_marks){.pad = 1, .eos = 2, .unk = 3}, NULL, 0, NULL, 0, &stats);
    assert_int_equal(stats.hyp_len + stats.ref_len + stats.totals[0], 0);
    nm_bleu_free(bleu);
}

/* 400,000 words, 1,000 of them different: the counts are known, and the counter can be used for the next
 * segment. */
static void huge_line(void **state)
{
    (void)state;
    enum { n_words = 400000 };
    char *text = nm_allocate(n_words * 5 + 1);
    for (int i = 0; i < n_words; i++) {
        int word = (int)((int64_t)i * i % 1000);
        char digits[] = {'w', (char)('0' + word / 100), (char)('0' + word / 10 % 10), (char)('0' + word % 10),
                         ' '};
        memcpy(text + (ptrdiff_t)5 * i, digits, 5);
    }
    nm_bleu *bleu = nm_bleu_create(&sacre);
    nm_bleu_stats stats;
    nm_bleu_count(bleu, text, (const char *[]){text}, 1, &stats);
    assert_int_equal(stats.hyp_len, n_words);
    for (int n = 0; n < NM_BLEU_ORDER; n++) {
        assert_int_equal(stats.totals[n], n_words - n);
        assert_int_equal(stats.matches[n], n_words - n);
    }
    nm_bleu_count(bleu, "w001 x", (const char *[]){"w001 y"}, 1, &stats);
    assert_int_equal(stats.matches[0], 1);
    assert_int_equal(stats.matches[1], 0);
    nm_bleu_free(bleu);
    free(text);
}

static void broken_text(void **state)
{
    (void)state;
    assert_int_equal(count_one(&sacre, "a \xff\xc3 \xe2\x82", "a \xff\xc3 \xe2\x82").matches[0], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_precisions),
        cmocka_unit_test(published_brevity),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(closest_reference),
        cmocka_unit_test(empty_texts),
        cmocka_unit_test(short_texts),
        cmocka_unit_test(lower_case),
        cmocka_unit_test(spaces),
        cmocka_unit_test(compounds),
        cmocka_unit_test(token_ids),
        cmocka_unit_test(huge_line),
        cmocka_unit_test(broken_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
