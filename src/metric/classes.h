/* How well classes are found: accuracy, F1 of each class and their mean, the confusion matrix; by names, so that model,
 * files and tables speak of the same thing. Accuracy is a function of summed counts per example, so that bootstrap and
 * paired test (metric/bootstrap.h) take it like BLEU. */
#ifndef NM_CLASSES_H
#define NM_CLASSES_H

#include <stdio.h>
#include "metric/bootstrap.h"

/* matrix[wanted * n + found]: examples of class `wanted` that were taken for `found`. */
typedef struct nm_confusion {
    int32_t n;
    int64_t *matrix;
} nm_confusion;

nm_confusion nm_confusion_create(int32_t n_classes);
void nm_confusion_release(nm_confusion *confusion);
void nm_confusion_add(nm_confusion *confusion, int32_t wanted, int32_t found);

typedef struct nm_class_score { /* shares from 0 to 1; 0 where nothing could be right */
    double precision, recall, f1;
    int64_t wanted, found, right;
} nm_class_score;

nm_class_score nm_confusion_class(const nm_confusion *confusion, int32_t k);
/* Right examples of all, in percent. */
double nm_confusion_accuracy(const nm_confusion *confusion);
/* Mean of the classes' F1, in percent, over classes that were wanted or found (scikit-learn's "macro"). */
double nm_confusion_macro_f1(const nm_confusion *confusion);
/* The matrix as text, wanted in rows, found in columns, with precision, recall and F1 of each class behind. */
void nm_confusion_print(const nm_confusion *confusion, const char *const *names, FILE *out);

/* One row of counts per example, for nm_counts: right (0 or 1), and 1. */
enum { NM_ACCURACY_COUNTS = 2 };
/* Accuracy in percent of summed rows; context is not looked at. */
double nm_accuracy_of_counts(const int64_t *counts, const void *context);

#endif
