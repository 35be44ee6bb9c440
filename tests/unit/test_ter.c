/* TER: expected scores are those of sacreBLEU 2.6.0. */
#include "text/ter.h"

#include <stdlib.h>

#include "text_helper.h"
/* after cmocka.h */
#include "near.h"

static const nm_ter_config configs[] = {{0},
                                        {.normalized = true},
                                        {.no_punctuation = true, .case_sensitive = true},
                                        {.normalized = true, .no_punctuation = true, .asian = true},
                                        {.normalized = true, .asian = true}};
enum { CONFIGS = sizeof configs / sizeof *configs };

static const struct {
    const char *hypothesis, *references[2]; /* the second one may be NULL */
    double scores[CONFIGS];
} cases[] = {
    {"the cat sat on the mat",
     {"on the mat the cat sat", NULL},
     {16.666666666666664, 16.666666666666664, 16.666666666666664, 16.666666666666664, 16.666666666666664}},
    {"a b c d e f g", {"e f g a b c d", "a b c"}, {20.0, 20.0, 20.0, 20.0, 20.0}},
    {"", {"a b", NULL}, {100.0, 100.0, 100.0, 100.0, 100.0}},
    {"a b", {"", NULL}, {100.0, 100.0, 100.0, 100.0, 100.0}},
    {"", {"", NULL}, {0.0, 0.0, 0.0, 0.0, 0.0}},
    {"A saw, he said, isn't x-y 3.5",
     {"a saw he said isn 't 3.5 x y", NULL},
     {66.66666666666666, 66.66666666666666, 55.55555555555556, 44.44444444444444, 66.66666666666666}},
    {"the white house is big and the house of my uncle is small and white",
     {"my uncle 's small white house and the big house is the white house", NULL},
     {57.14285714285714, 57.14285714285714, 57.14285714285714, 57.14285714285714, 57.14285714285714}},
    {"x x y y x x z x x y",
     {"y x x z x x y x x y y z", "z z x x y"},
     {35.294117647058826, 35.294117647058826, 35.294117647058826, 35.294117647058826, 35.294117647058826}},
    {"d c c b a a a b",
     {"b b c a d a a", NULL},
     {71.42857142857143, 71.42857142857143, 71.42857142857143, 71.42857142857143, 71.42857142857143}},
    {"a d c d b c b",
     {"d b a b c a d", NULL},
     {42.857142857142854, 42.857142857142854, 42.857142857142854, 42.857142857142854, 42.857142857142854}},
    {"c c d b c d a", {"d c c c a b d b", NULL}, {50.0, 50.0, 50.0, 50.0, 50.0}},
    {"東京は 大きい。 町",
     {"町 東京 は大きい 。", NULL},
     {100.0, 100.0, 100.0, 16.666666666666664, 14.285714285714285}},
    {"0 7 14 21 5 12 19 3 10 17 1 8 15 22 6 13 20 4 11 18 2 9 16 0 7 14 21 5 12 19 3 10 17 1 8 15 22 6 13 20 "
     "4 11 18 2 9 16 0 7 14 21 5 12 19 3 10 17 1 8 15 22",
     {"3 8 13 18 0 5 10 15 20 2 7 12 17 22 4 9 14 19 1 6 11 16 21 3 8 13 18 0 5 10 15 20 2 7 12 17 22 4 9 14 "
      "19 1 6 11 16 21 3 8 13 18 0 5",
      NULL},
     {101.92307692307692, 101.92307692307692, 101.92307692307692, 101.92307692307692, 101.92307692307692}},
    {"0 1 2 3 4 5 6 7 8 0 1 2",
     {"0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 "
      "6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5 0 4 8 3 7 2 6 1 5",
      NULL},
     {86.66666666666667, 86.66666666666667, 86.66666666666667, 86.66666666666667, 86.66666666666667}},
};
/* Of all cases with one reference. */
static const double corpus[CONFIGS] = {83.41708542713567, 83.41708542713567, 82.91457286432161,
                                       80.09950248756219, 80.6930693069307};

static void test_scores(void **state)
{
    (void)state;
    for (size_t k = 0; k < CONFIGS; k++) {
        nm_ter *ter = nm_ter_create(&configs[k]);
        int64_t sum[NM_TER_COUNTS] = {0};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            int64_t counts[NM_TER_COUNTS];
            int n = cases[i].references[1] ? 2 : 1;
            nm_ter_count(ter, cases[i].hypothesis, cases[i].references, n, counts);
            assert_near(nm_ter_of_counts(counts, NULL), cases[i].scores[k], 1e-10);
            for (int c = 0; n == 1 && c < NM_TER_COUNTS; c++)
                sum[c] += counts[c];
        }
        assert_near(nm_ter_of_counts(sum, NULL), corpus[k], 1e-10);
        nm_ter_free(ter);
    }
}

static void test_signature(void **state)
{
    (void)state;
    char *line = nm_ter_line(&configs[0], 50, 1);
    assert_non_null(strstr(line, "TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:norma-"));
    assert_non_null(strstr(line, " = 50.0"));
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores), cmocka_unit_test(test_signature)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
