#include "metric/classes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

nm_confusion nm_confusion_create(int32_t n_classes)
{
    size_t n = (size_t)n_classes;
    return (nm_confusion){n_classes, nm_allocate(n * n * sizeof(int64_t))};
}

void nm_confusion_release(nm_confusion *confusion)
{
    free(confusion->matrix);
    *confusion = (nm_confusion){0};
}

static int64_t *cell(const nm_confusion *confusion, int32_t gold, int32_t predicted)
{
    NM_ASSERT(gold >= 0 && gold < confusion->n && predicted >= 0 && predicted < confusion->n);
    return &confusion->matrix[(size_t)gold * (size_t)confusion->n + (size_t)predicted];
}

void nm_confusion_add(nm_confusion *confusion, int32_t gold, int32_t predicted)
{
    ++*cell(confusion, gold, predicted);
}

static double ratio(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

nm_class_score nm_confusion_class(const nm_confusion *confusion, int32_t k)
{
    nm_class_score score = {.correct = *cell(confusion, k, k)};
    for (int32_t other = 0; other < confusion->n; other++) {
        score.gold += *cell(confusion, k, other);
        score.predicted += *cell(confusion, other, k);
    }
    score.precision = ratio(score.correct, score.predicted);
    score.recall = ratio(score.correct, score.gold);
    score.f1 = ratio(2 * score.correct, score.gold + score.predicted);
    return score;
}

double nm_confusion_accuracy(const nm_confusion *confusion)
{
    int64_t sums[NM_ACCURACY_COUNTS] = {0};
    for (int32_t gold = 0; gold < confusion->n; gold++)
        for (int32_t predicted = 0; predicted < confusion->n; predicted++) {
            sums[0] += gold == predicted ? *cell(confusion, gold, predicted) : 0;
            sums[1] += *cell(confusion, gold, predicted);
        }
    return nm_accuracy_of_counts(sums, NULL);
}

double nm_confusion_macro_f1(const nm_confusion *confusion)
{
    double sum = 0;
    int32_t seen = 0;
    for (int32_t k = 0; k < confusion->n; k++) {
        nm_class_score score = nm_confusion_class(confusion, k);
        seen += score.gold || score.predicted;
        sum += score.f1;
    }
    return seen ? 100 * sum / seen : 0;
}

double nm_accuracy_of_counts(const int64_t *counts, const void *context)
{
    (void)context;
    return 100 * ratio(counts[0], counts[1]);
}

/* Width of the longest name in bytes, limited so that a row fits one line. */
static int name_width(const nm_confusion *confusion, const char *const *names)
{
    size_t width = strlen("gold");
    for (int32_t k = 0; k < confusion->n; k++)
        width = strlen(names[k]) > width ? strlen(names[k]) : width;
    return width > 24 ? 24 : (int)width;
}

void nm_confusion_print(const nm_confusion *confusion, const char *const *names, FILE *out)
{
    int width = name_width(confusion, names);
    fprintf(out, "%-*s", width, "gold");
    for (int32_t k = 0; k < confusion->n; k++)
        fprintf(out, " %8.8s", names[k]);
    fprintf(out, "  precision  recall      F1\n");
    for (int32_t gold = 0; gold < confusion->n; gold++) {
        fprintf(out, "%-*.*s", width, width, names[gold]);
        for (int32_t predicted = 0; predicted < confusion->n; predicted++)
            fprintf(out, " %8" PRId64, *cell(confusion, gold, predicted));
        nm_class_score score = nm_confusion_class(confusion, gold);
        fprintf(out, "  %9.2f %7.2f %7.2f\n", 100 * score.precision, 100 * score.recall, 100 * score.f1);
    }
}
