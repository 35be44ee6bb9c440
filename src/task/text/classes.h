/* Metrics of classification: accuracy, F1 of each class, macro F1, confusion matrix. Accuracy and macro F1
 * are functions of summed counts per example, for bootstrap and paired test (base/bootstrap.h). */
#pragma once

#include <jansson.h>
#include <stdio.h>
#include "base/bootstrap.h"

/* Number of examples by gold and predicted class, matrix [n, n]. */
typedef struct nm_confusion {
    int32_t n;
    int64_t *matrix;
} nm_confusion;

nm_confusion nm_confusion_create(int32_t n_classes);
void nm_confusion_release(nm_confusion *confusion);
void nm_confusion_add(nm_confusion *confusion, int32_t gold, int32_t predicted);

typedef struct nm_class_score { /* from 0 to 1; 0 where the denominator is 0 */
    double precision, recall, f1;
    int64_t gold, predicted, correct; /* numbers of examples */
} nm_class_score;

nm_class_score nm_confusion_class(const nm_confusion *confusion, int32_t k);
/* Accuracy in percent. */
double nm_confusion_accuracy(const nm_confusion *confusion);
/* Macro F1 in percent over the classes that occur as gold or predicted class (scikit-learn's "macro"). */
double nm_confusion_macro_f1(const nm_confusion *confusion);
/* The matrix as a list of rows, each of a gold class. */
json_t *nm_confusion_json(const nm_confusion *confusion);
/* Prints the matrix, gold classes in rows, predicted classes in columns, then precision, recall and F1 of
 * each class. With more than 20 classes: the number of texts, precision, recall and F1 of each class that
 * occurs, then the most frequent errors. */
void nm_confusion_print(const nm_confusion *confusion, const char *const *names, FILE *out);

/* One row of counts per example, for nm_counts: correct (0 or 1), and 1. */
enum { NM_ACCURACY_COUNTS = 2 };
/* Accuracy in percent of summed rows; context is unused. */
double nm_accuracy_of_counts(const int64_t *counts, const void *context);

/* Length of the row of an example for macro F1: three columns of each class, whether it is the class of a
 * correct prediction, the gold class, and the predicted class; and -1, which ends the row, also after
 * summation. */
static inline size_t nm_macro_f1_counts(int32_t n_classes)
{
    return 3 * (size_t)n_classes + 1;
}
/* Writes the row of an example. */
void nm_macro_f1_count(int64_t *row, int32_t n_classes, int32_t gold, int32_t predicted);
/* Macro F1 in percent of summed rows, as nm_confusion_macro_f1; context is unused. */
double nm_macro_f1_of_counts(const int64_t *counts, const void *context);
