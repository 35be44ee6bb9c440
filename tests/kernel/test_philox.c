/* Philox4x32-10 against the published known answers (Random123, kat_vectors), and the dropout masks
 * derived from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"

static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint64_t key = (uint64_t)answers[i].key[1] << 32 | answers[i].key[0];
        nm_random_words words = nm_philox(answers[i].counter, key);
        assert_memory_equal(words.w, answers[i].words, sizeof words.w);
    }
}

/* The rate is rounded to 1/65536; the mask drops that fraction within five standard deviations. */
static void test_dropout_rate(void **state)
{
    (void)state;
    enum { ROWS = 300, COLS = 300 };
    static const double rates[] = {0, 0.1, 0.5, 0.9};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        nm_dropout drop = {rates[i], 12345678901234u, 3, 4};
        double dropped = 0, n = ROWS * COLS;
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t c = 0; c < COLS; c++)
                dropped += !nm_dropout_keeps(&drop, r, c);
        assert_true(fabs(dropped - n * rates[i]) <= 5 * sqrt(n * rates[i] * (1 - rates[i])) + n / 65536);
    }
    assert_true(nm_dropout_scale(0) == 1 && nm_dropout_scale(0.5) == 2);
}

/* A different row, site, step or seed gives a different mask. */
static void test_dropout_depends(void **state)
{
    (void)state;
    const nm_dropout base = {0.5, 1, 2, 3}, others[] = {{0.5, 2, 2, 3}, {0.5, 1, 3, 3}, {0.5, 1, 2, 4}};
    for (int i = 0; i < 4; i++) {
        int differ = 0;
        for (uint32_t c = 0; c < 256; c++)
            differ += nm_dropout_keeps(&base, 1, c) !=
                      (i < 3 ? nm_dropout_keeps(&others[i], 1, c) : nm_dropout_keeps(&base, 0, c));
        assert_true(differ > 80 && differ < 176);
    }
}

/* All 128 columns of a block have different 16-bit numbers: every half word is used once. */
static void test_dropout_columns_differ(void **state)
{
    (void)state;
    for (uint32_t a = 0; a < 130; a++)
        for (uint32_t c = a + 1; c < 130; c++) {
            int differ = 0;
            for (uint32_t row = 0; row < 64; row++) {
                const nm_dropout drop = {0.5, 1, 2, 3};
                differ += nm_dropout_keeps(&drop, row, a) != nm_dropout_keeps(&drop, row, c);
            }
            assert_true(differ > 4 && differ < 60);
        }
}

static void test_below(void **state)
{
    (void)state;
    assert_int_equal(nm_random_below(0, 10), 0);
    assert_int_equal(nm_random_below(0xffffffff, 10), 9);
    assert_int_equal(nm_random_below(0x80000000, 10), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_dropout_rate),
        cmocka_unit_test(test_dropout_depends), cmocka_unit_test(test_dropout_columns_differ),
        cmocka_unit_test(test_below)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
