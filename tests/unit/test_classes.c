/* Accuracy, F1 of classes and the confusion matrix, against figures computed manually. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "metric/classes.h"

/* gold a: 3 predicted a, 1 predicted b; gold b: 2 predicted b; gold c: 1 predicted a; d is neither gold nor predicted */
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

static void printed(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "somewhat longer", "d"};
    static const char wanted[] =
        "gold                   a        b somewhat        d  precision  recall      F1\n"
        "a                      3        1        0        0      75.00   75.00   75.00\n"
        "b                      0        2        0        0      66.67  100.00   80.00\n"
        "somewhat longer        1        0        0        0       0.00    0.00    0.00\n"
        "d                      0        0        0        0       0.00    0.00    0.00\n";
    nm_confusion confusion = example();
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    nm_confusion_print(&confusion, names, memory);
    fclose(memory);
    assert_string_equal(text, wanted);
    free(text);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(figures), cmocka_unit_test(printed),
                                       cmocka_unit_test(paired_test_of_equal_systems)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
