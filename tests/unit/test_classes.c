/* Accuracy, F1 of classes and the confusion matrix, against figures computed manually. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/classes.h"

/* gold a: 3 predicted a, 1 predicted b; gold b: 2 predicted b; gold c: 1 predicted a; d is neither gold nor
 * predicted */
static nm_confusion example(void)
{
    nm_confusion confusion = nm_confusion_create(4);
    static const int32_t pairs[][2] = {{0, 0}, {0, 0}, {0, 1}, {0, 0}, {1, 1}, {2, 0}, {1, 1}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        nm_confusion_add(&confusion, pairs[i][0], pairs[i][1]);
    return confusion;
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-12))
        fail_msg("got %.15g instead of %.15g", got, wanted);
}

static void figures(void **state)
{
    (void)state;
    nm_confusion confusion = example();
    near(nm_confusion_accuracy(&confusion), 100 * 5 / 7.0);
    nm_class_score a = nm_confusion_class(&confusion, 0), c = nm_confusion_class(&confusion, 2);
    near(a.precision, 0.75);
    near(a.recall, 0.75);
    near(a.f1, 0.75);
    near(nm_confusion_class(&confusion, 1).f1, 0.8);
    near(c.precision, 0);
    near(c.f1, 0);
    assert_int_equal(a.gold, 4);
    assert_int_equal(c.gold, 1);
    assert_int_equal(c.predicted, 0);
    near(nm_confusion_macro_f1(&confusion), 100 * (0.75 + 0.8 + 0) / 3); /* d doesn't count */
    nm_confusion_release(&confusion);
    nm_confusion empty = nm_confusion_create(2);
    near(nm_confusion_accuracy(&empty), 0);
    near(nm_confusion_macro_f1(&empty), 0);
    nm_confusion_release(&empty);
}

/* A class that is predicted only counts as one that occurs, as in scikit-learn 1.9:
 * f1_score([0, 0, 1, 1, 1], [0, 2, 1, 1, 0], average="macro"), whose three classes have F1 1/2, 4/5 and 0. */
static void macro_f1_of_a_predicted_class(void **state)
{
    (void)state;
    static const int32_t pairs[][2] = {{0, 0}, {0, 2}, {1, 1}, {1, 1}, {1, 0}};
    nm_confusion confusion = nm_confusion_create(4);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        nm_confusion_add(&confusion, pairs[i][0], pairs[i][1]);
    near(nm_confusion_macro_f1(&confusion), 43.0 + 1.0 / 3);
    nm_confusion_release(&confusion);
}

/* The sums of rows per example are those of the matrix, in any order. */
static void macro_f1_of_counts(void **state)
{
    (void)state;
    enum { CLASSES = 4, ROW = 3 * CLASSES + 1 };
    static const int32_t pairs[][2] = {{2, 0}, {0, 0}, {0, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}};
    int64_t sum[ROW] = {0}, row[ROW];
    assert_int_equal(nm_macro_f1_counts(CLASSES), ROW);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        nm_macro_f1_count(row, CLASSES, pairs[i][0], pairs[i][1]);
        for (int k = 0; k < ROW; k++)
            sum[k] += row[k];
    }
    nm_confusion confusion = example();
    assert_true(nm_macro_f1_of_counts(sum, NULL) == nm_confusion_macro_f1(&confusion));
    near(nm_macro_f1_of_counts(sum, NULL), 100 * (0.75 + 0.8 + 0) / 3);
    nm_confusion_release(&confusion);
}

static void assert_printed(const nm_confusion *confusion, const char *const *names, const char *wanted)
{
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    nm_confusion_print(confusion, names, memory);
    fclose(memory);
    assert_string_equal(text, wanted);
    free(text);
}

/* Widths are in characters: the second name has three of two bytes. */
static void printed(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "Übergröße", "somewhat longer", "d"};
    static const char wanted[] =
        "gold                   a Übergröß somewhat        d  precision  recall      F1\n"
        "a                      3        1        0        0      75.00   75.00   75.00\n"
        "Übergröße              0        2        0        0      66.67  100.00   80.00\n"
        "somewhat longer        1        0        0        0       0.00    0.00    0.00\n"
        "d                      0        0        0        0       0.00    0.00    0.00\n";
    nm_confusion confusion = example();
    assert_printed(&confusion, names, wanted);
    nm_confusion_release(&confusion);
}

/* Many classes have no matrix, but a line each, if they occur, and the ten most frequent errors. */
static void printed_with_many_classes(void **state)
{
    (void)state;
    enum { CLASSES = 30 };
    static const char wanted[] = "gold         texts  precision  recall      F1\n"
                                 "k10              3     100.00   66.67   80.00\n"
                                 "k11             13       0.00    0.00    0.00\n"
                                 "k12              0       0.00    0.00    0.00\n"
                                 "k13              0       0.00    0.00    0.00\n"
                                 "k14              0       0.00    0.00    0.00\n"
                                 "k15              0       0.00    0.00    0.00\n"
                                 "k16              0       0.00    0.00    0.00\n"
                                 "k17              0       0.00    0.00    0.00\n"
                                 "k18              0       0.00    0.00    0.00\n"
                                 "k19              0       0.00    0.00    0.00\n"
                                 "k20              0       0.00    0.00    0.00\n"
                                 "k21              0       0.00    0.00    0.00\n"
                                 "k22              0       0.00    0.00    0.00\n"
                                 "\n"
                                 "most frequent errors\n"
                                 "gold      predicted   texts\n"
                                 "k11       k22             3\n"
                                 "k10       k12             1\n"
                                 "k11       k12             1\n"
                                 "k11       k13             1\n"
                                 "k11       k14             1\n"
                                 "k11       k15             1\n"
                                 "k11       k16             1\n"
                                 "k11       k17             1\n"
                                 "k11       k18             1\n"
                                 "k11       k19             1\n";
    char text[CLASSES][8];
    const char *names[CLASSES];
    nm_confusion confusion = nm_confusion_create(CLASSES);
    for (int k = 0; k < CLASSES; k++) {
        snprintf(text[k], sizeof text[k], "k%d", k + 10);
        names[k] = text[k];
    }
    nm_confusion_add(&confusion, 0, 0);
    nm_confusion_add(&confusion, 0, 0);
    nm_confusion_add(&confusion, 0, 2);
    for (int32_t k = 2; k <= 11; k++)
        nm_confusion_add(&confusion, 1, k);
    for (int i = 0; i < 3; i++)
        nm_confusion_add(&confusion, 1, 12);
    assert_printed(&confusion, names, wanted);
    nm_confusion_release(&confusion);
}

static void paired_test_of_equal_systems(void **state)
{
    (void)state;
    static const int64_t right[] = {1, 1, 0, 1, 1, 1, 0, 1};
    const nm_counts counts = {right, 4, NM_ACCURACY_COUNTS};
    nm_bootstrap_config config = nm_bootstrap_default();
    nm_paired paired = nm_bootstrap_paired(counts, counts, nm_accuracy_of_counts, NULL, &config);
    near(paired.score_a, 50);
    near(paired.difference.high, 0);
    near(paired.p, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(figures),
                                       cmocka_unit_test(macro_f1_of_a_predicted_class),
                                       cmocka_unit_test(macro_f1_of_counts),
                                       cmocka_unit_test(printed),
                                       cmocka_unit_test(printed_with_many_classes),
                                       cmocka_unit_test(paired_test_of_equal_systems)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
