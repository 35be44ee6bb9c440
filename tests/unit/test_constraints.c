/* Lexical constraints: states of hypotheses against a search for the phrases in the whole sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "base/random.h"
#include "model/constraints.h"

enum { LENGTH = 40 };

static bool occurs(const nm_phrase *phrase, const int32_t *ids, int32_t n)
{
    for (int32_t first = 0; first + phrase->n <= n; first++)
        if (!memcmp(ids + first, phrase->ids, (size_t)phrase->n * sizeof *ids))
            return true;
    return false;
}

static nm_constraint_state state_after(const nm_constraints *constraints, const int32_t *ids, int32_t n)
{
    nm_constraint_state state = {0};
    for (int32_t i = 0; i < n; i++)
        state = nm_constraints_advance(constraints, state, ids[i]);
    return state;
}

static void test_overlaps(void **state)
{
    (void)state;
    static const int32_t aab[] = {1, 1, 2}, red_house[] = {5, 6}, red_car[] = {5, 7}, red[] = {5};
    const nm_constraints one = {(const nm_phrase[]){{.ids = aab, .n = 3}}, 1, NULL};
    const nm_constraints two = {(const nm_phrase[]){{.ids = red_house, .n = 2}, {.ids = red_car, .n = 2}}, 2,
                                NULL};
    const nm_constraints part = {(const nm_phrase[]){{.ids = red, .n = 1}, {.ids = red_car, .n = 2}}, 2,
                                 NULL};
    int32_t next[NM_PHRASES_MAX];
    /* a suffix of the broken phrase begins it again */
    assert_true(nm_constraints_are_met(&one, state_after(&one, (int32_t[]){1, 1, 1, 2}, 4)));
    assert_int_equal(state_after(&one, (int32_t[]){1, 1, 3}, 3).n_met, 0);
    /* phrases with the same first token, in both orders */
    assert_true(nm_constraints_are_met(&two, state_after(&two, (int32_t[]){5, 7, 5, 6}, 4)));
    assert_true(nm_constraints_are_met(&two, state_after(&two, (int32_t[]){5, 6, 5, 7}, 4)));
    assert_false(nm_constraints_are_met(&two, state_after(&two, (int32_t[]){5, 6, 7}, 3)));
    assert_int_equal(nm_constraints_next(&two, (nm_constraint_state){0}, next), 1);
    /* no phrase begins within a word: token 8 is joined with the next one */
    static const bool joined[] = {[8] = true, [9] = false};
    const nm_constraints whole = {(const nm_phrase[]){{.ids = red, .n = 1}}, 1, joined};
    assert_false(nm_constraints_are_met(&whole, state_after(&whole, (int32_t[]){8, 5}, 2)));
    assert_int_equal(nm_constraints_next(&whole, state_after(&whole, (int32_t[]){8}, 1), next), 0);
    assert_true(nm_constraints_are_met(&whole, state_after(&whole, (int32_t[]){8, 4, 5}, 3)));
    /* equal phrases are met one after the other */
    const nm_constraints twice = {(const nm_phrase[]){{.ids = red_car, .n = 2}, {.ids = red_car, .n = 2}}, 2,
                                  NULL};
    assert_int_equal(state_after(&twice, (int32_t[]){5, 7}, 2).n_met, 2);
    assert_false(nm_constraints_are_met(&twice, state_after(&twice, (int32_t[]){5, 7}, 2)));
    assert_true(nm_constraints_are_met(&twice, state_after(&twice, (int32_t[]){5, 7, 4, 5, 7}, 5)));
    /* a phrase within another one */
    assert_true(nm_constraints_are_met(&part, state_after(&part, (int32_t[]){5, 7}, 2)));
    assert_int_equal(state_after(&part, (int32_t[]){5, 7}, 2).n_met, nm_constraints_tokens(&part));
}

/* Two forms of a phrase of a script without spaces, SentencePiece: [9] begins with U+2581, [1, 2] does
 * not. */
static void test_second_form(void **state)
{
    (void)state;
    static const int32_t marked[] = {9}, plain[] = {1, 2}, other[] = {3};
    const nm_phrase phrases[] = {{.ids = marked, .n = 1, .initial = true},
                                 {.ids = plain, .n = 2, .n_seconds = 1},
                                 {.ids = other, .n = 1, .n_seconds = 1}};
    const nm_constraints constraints = {phrases, 3, NULL};
    int32_t next[NM_PHRASES_MAX];
    assert_int_equal(nm_constraints_tokens(&constraints), 3);
    nm_constraint_state first = state_after(&constraints, (int32_t[]){9}, 1),
                        second = state_after(&constraints, (int32_t[]){5, 1, 2}, 3);
    /* either form is enough, and counts as the longer one */
    assert_int_equal(first.n_met, 2);
    assert_int_equal(second.n_met, 2);
    assert_false(nm_constraints_are_met(&constraints, first));
    assert_true(nm_constraints_are_met(&constraints, nm_constraints_advance(&constraints, first, 3)));
    assert_true(nm_constraints_are_met(&constraints, nm_constraints_advance(&constraints, second, 3)));
    /* the met phrase is not suggested again, in neither form */
    assert_int_equal(nm_constraints_next(&constraints, second, next), 1);
    assert_int_equal(next[0], 3);
    /* the form with a space is suggested for the beginning only */
    assert_int_equal(nm_constraints_next(&constraints, (nm_constraint_state){0}, next), 3);
    assert_int_equal(nm_constraints_next(&constraints, state_after(&constraints, (int32_t[]){5}, 1), next),
                     2);
    assert_int_equal(next[0], 1);
}

/* BPE: a phrase of such a script begins after "x@@" (8), too, a phrase of another one does not. */
static void test_phrase_inside_a_word(void **state)
{
    (void)state;
    static const int32_t within[] = {1, 2}, other[] = {1, 3};
    static const bool joined[] = {[8] = true, [9] = false};
    const nm_phrase phrases[] = {{.ids = within, .n = 2, .inside = true}, {.ids = other, .n = 2}};
    const nm_constraints constraints = {phrases, 2, joined}, only = {phrases + 1, 1, joined};
    int32_t next[NM_PHRASES_MAX];
    assert_int_equal(state_after(&constraints, (int32_t[]){8, 1, 2}, 3).met, 1);
    assert_int_equal(state_after(&only, (int32_t[]){8, 1, 3}, 3).met, 0);
    assert_int_equal(state_after(&constraints, (int32_t[]){4, 1, 3}, 3).met, 2);
    /* the beginning that both share is within a word: the second phrase does not continue it */
    assert_int_equal(state_after(&constraints, (int32_t[]){8, 1, 3}, 3).met, 0);
    assert_int_equal(nm_constraints_next(&constraints, state_after(&constraints, (int32_t[]){8}, 1), next),
                     1);
    assert_int_equal(nm_constraints_next(&only, state_after(&only, (int32_t[]){8}, 1), next), 0);
}

/* Random sequences of three tokens and random phrases: every phrase that is met occurs, n_met is in range,
 * and the suggested next tokens meet all phrases in as many steps as they have tokens. */
static void test_random_sequences(void **state)
{
    (void)state;
    int32_t n_all_met = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        int32_t ids[LENGTH], tokens[12], next[NM_PHRASES_MAX];
        nm_phrase phrases[4];
        for (uint64_t i = 0; i < LENGTH + 12; i++) {
            int32_t id = (int32_t)(nm_random4(round, NM_RANDOM_TEST, 0, 0, i).w[0] % 3);
            *(i < LENGTH ? &ids[i] : &tokens[i - LENGTH]) = id;
        }
        nm_constraints constraints = {phrases, 1 + (int32_t)(round % 4), NULL};
        for (int32_t p = 0; p < constraints.n; p++)
            phrases[p] =
                (nm_phrase){.ids = tokens + 3 * p, .n = 1 + (int32_t)((round / 4 + (uint64_t)p) % 3)};
        const int32_t total = nm_constraints_tokens(&constraints);
        nm_constraint_state now = {0};
        for (int32_t i = 0; i < LENGTH; i++) {
            nm_constraint_state follow = now;
            int32_t steps = 0;
            for (; !nm_constraints_are_met(&constraints, follow) && steps <= total; steps++) {
                assert_true(nm_constraints_next(&constraints, follow, next) > 0);
                follow = nm_constraints_advance(&constraints, follow, next[0]);
            }
            assert_true(steps <= total);
            now = nm_constraints_advance(&constraints, now, ids[i]);
            assert_true(now.n_met >= 0 && now.n_met <= total);
            for (int32_t p = 0; p < constraints.n; p++)
                assert_true(!(now.met >> p & 1) || occurs(&phrases[p], ids, i + 1));
        }
        n_all_met += nm_constraints_are_met(&constraints, now);
    }
    assert_true(n_all_met > 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_overlaps), cmocka_unit_test(test_second_form),
                                       cmocka_unit_test(test_phrase_inside_a_word),
                                       cmocka_unit_test(test_random_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
