#include "text/classes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/utf8_cut.h"

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

static json_t *row_at(const void *user, size_t gold)
{
    const nm_confusion *confusion = user;
    return nm_json_counts(cell(confusion, (int32_t)gold, 0), (size_t)confusion->n);
}

json_t *nm_confusion_json(const nm_confusion *confusion)
{
    return nm_json_list((size_t)confusion->n, row_at, confusion);
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

/* In percent; 0 without classes that occur. */
static double mean_f1(double sum, int32_t n_classes)
{
    return n_classes ? 100 * sum / n_classes : 0;
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
    return mean_f1(sum, seen);
}

double nm_accuracy_of_counts(const int64_t *counts, const void *context)
{
    (void)context;
    return 100 * ratio(counts[0], counts[1]);
}

void nm_macro_f1_count(int64_t *row, int32_t n_classes, int32_t gold, int32_t predicted)
{
    memset(row, 0, nm_macro_f1_counts(n_classes) * sizeof *row);
    row[3 * gold] = gold == predicted;
    row[3 * gold + 1] = row[3 * predicted + 2] = 1;
    row[3 * n_classes] = -1;
}

double nm_macro_f1_of_counts(const int64_t *counts, const void *context)
{
    (void)context;
    double sum = 0;
    int32_t seen = 0;
    for (const int64_t *of_class = counts; *of_class >= 0; of_class += 3) {
        seen += of_class[1] || of_class[2];
        sum += ratio(2 * of_class[0], of_class[1] + of_class[2]);
    }
    return mean_f1(sum, seen);
}

/* Maximum number of classes of a printed matrix, and number of listed errors. */
enum { MATRIX_CLASSES = 20, NAMED_ERRORS = 10 };

/* Prints at most `width` characters of a name, aligned to the right or to the left of this width. */
static void print_name(const char *name, int width, bool right, FILE *out)
{
    int bytes = 0, n = 0;
    for (; name[bytes] && n < width; n++)
        bytes += (int)nm_utf8_length(name[bytes]);
    int padding = width - n;
    fprintf(out, "%*s%.*s%*s", right ? padding : 0, "", bytes, name, right ? 0 : padding, "");
}

/* Width of the longest name in characters, limited so that a row fits one line. */
static int name_width(const nm_confusion *confusion, const char *const *names)
{
    int width = (int)strlen("gold");
    for (int32_t k = 0; k < confusion->n; k++)
        width = nm_utf8_count(names[k]) > width ? nm_utf8_count(names[k]) : width;
    return width > 24 ? 24 : width;
}

static void print_score(const nm_class_score *score, FILE *out)
{
    fprintf(out, "  %9.2f %7.2f %7.2f\n", 100 * score->precision, 100 * score->recall, 100 * score->f1);
}

static void print_matrix(const nm_confusion *confusion, const char *const *names, int width, FILE *out)
{
    print_name("gold", width, false, out);
    for (int32_t k = 0; k < confusion->n; k++) {
        putc(' ', out);
        print_name(names[k], 8, true, out);
    }
    fprintf(out, "  precision  recall      F1\n");
    for (int32_t gold = 0; gold < confusion->n; gold++) {
        print_name(names[gold], width, false, out);
        for (int32_t predicted = 0; predicted < confusion->n; predicted++)
            fprintf(out, " %8" PRId64, *cell(confusion, gold, predicted));
        nm_class_score score = nm_confusion_class(confusion, gold);
        print_score(&score, out);
    }
}

/* The cells outside the diagonal with the largest numbers, in descending order. */
static void print_frequent_errors(const nm_confusion *confusion, const char *const *names, int width,
                                  FILE *out)
{
    int32_t top[NAMED_ERRORS + 1][2], n = 0;
    for (int32_t gold = 0; gold < confusion->n; gold++)
        for (int32_t predicted = 0; predicted < confusion->n; predicted++) {
            int64_t count = gold == predicted ? 0 : *cell(confusion, gold, predicted);
            int32_t at = n;
            if (!count)
                continue;
            for (; at > 0 && *cell(confusion, top[at - 1][0], top[at - 1][1]) < count; at--)
                memcpy(top[at], top[at - 1], sizeof *top);
            top[at][0] = gold;
            top[at][1] = predicted;
            n += n < NAMED_ERRORS;
        }
    if (!n)
        return;
    fprintf(out, "\nmost frequent errors\n");
    print_name("gold", width, false, out);
    putc(' ', out);
    print_name("predicted", width, false, out);
    fprintf(out, "   texts\n");
    for (int32_t i = 0; i < n; i++) {
        print_name(names[top[i][0]], width, false, out);
        putc(' ', out);
        print_name(names[top[i][1]], width, false, out);
        fprintf(out, " %7" PRId64 "\n", *cell(confusion, top[i][0], top[i][1]));
    }
}

static void print_classes(const nm_confusion *confusion, const char *const *names, int width, FILE *out)
{
    print_name("gold", width, false, out);
    fprintf(out, "    texts  precision  recall      F1\n");
    for (int32_t k = 0; k < confusion->n; k++) {
        nm_class_score score = nm_confusion_class(confusion, k);
        if (!score.gold && !score.predicted)
            continue;
        print_name(names[k], width, false, out);
        fprintf(out, " %8" PRId64, score.gold);
        print_score(&score, out);
    }
}

void nm_confusion_print(const nm_confusion *confusion, const char *const *names, FILE *out)
{
    int width = name_width(confusion, names);
    if (confusion->n <= MATRIX_CLASSES) {
        print_matrix(confusion, names, width, out);
        return;
    }
    print_classes(confusion, names, width > 9 ? width : 9, out);
    print_frequent_errors(confusion, names, width > 9 ? width : 9, out);
}
