/* Golden cases of family "metric", method "span_f1": spans of tags, and precision, recall and F1 over all
 * spans. The source program lowercases labels; Norma keeps their case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "golden.h"
#include "text/span_f1.h"

static golden_result read_tags(golden_case *test, const char *key, size_t s, const char ***tags, int32_t *n)
{
    const json_t *list = json_array_get(json_object_get(test->root, key), s);
    *n = (int32_t)json_array_size(list);
    *tags = nm_allocate(((size_t)*n + 1) * sizeof **tags);
    for (int32_t i = 0; i < *n; i++) {
        (*tags)[i] = json_string_value(json_array_get(list, (size_t)i));
        if (!(*tags)[i] || !nm_tag_valid((*tags)[i]))
            return golden_fail(test, "%s[%zu, %d]: no tag", key, s, i);
    }
    return GOLDEN_PASSED;
}

static golden_result compare_spans(golden_case *test, const char *key, size_t s, const char *const *tags,
                                   int32_t n)
{
    const json_t *want = json_array_get(json_object_get(test->root, key), s);
    nm_span *spans = nm_allocate(((size_t)n + 1) * sizeof *spans);
    int32_t found = nm_tag_spans(tags, n, spans);
    golden_result result = (size_t)found == json_array_size(want)
                               ? GOLDEN_PASSED
                               : golden_fail(test, "%s[%zu]: got %d spans", key, s, found);
    for (int32_t i = 0; result == GOLDEN_PASSED && i < found; i++) {
        const json_t *span = json_array_get(want, (size_t)i), *ends = json_array_get(span, 1);
        const char *label = json_string_value(json_array_get(span, 0));
        if (!label || strcasecmp(label, spans[i].label) ||
            json_integer_value(json_array_get(ends, 0)) != spans[i].first ||
            json_integer_value(json_array_get(ends, 1)) != spans[i].end)
            result = golden_fail(test, "%s[%zu, %d]: got %s %d to %d", key, s, i, spans[i].label,
                                 spans[i].first, spans[i].end);
    }
    free(spans);
    return result;
}

static golden_result run_sentence(golden_case *test, size_t s, nm_span_counts *sum)
{
    const char **gold = NULL, **predicted = NULL;
    int32_t n, same;
    golden_result result = read_tags(test, "gold_tags", s, &gold, &n);
    if (result == GOLDEN_PASSED)
        result = read_tags(test, "predicted_tags", s, &predicted, &same);
    if (result == GOLDEN_PASSED && n != same)
        result = golden_fail(test, "sentence %zu: lists of unequal length", s);
    if (result == GOLDEN_PASSED)
        result = compare_spans(test, "gold_spans", s, gold, n);
    if (result == GOLDEN_PASSED)
        result = compare_spans(test, "predicted_spans", s, predicted, n);
    if (result == GOLDEN_PASSED) {
        nm_span_counts one = nm_span_count(predicted, gold, n);
        sum->correct += one.correct;
        sum->predicted += one.predicted;
        sum->gold += one.gold;
    }
    free((void *)gold);
    free((void *)predicted);
    return result;
}

static golden_result compare_count(golden_case *test, const char *key, int64_t got)
{
    json_int_t want = json_integer_value(json_object_get(test->root, key));
    return want == got ? GOLDEN_PASSED : golden_fail(test, "%s: got %lld", key, (long long)got);
}

/* The program rounds to six places. */
static golden_result compare_value(golden_case *test, const char *key, double got)
{
    double want = json_number_value(json_object_get(test->root, key));
    return fabs(got - want) <= 5e-7 ? GOLDEN_PASSED : golden_fail(test, "%s: got %.9g", key, got);
}

golden_result golden_span_f1(golden_case *test)
{
    nm_span_counts sum = {0};
    size_t n = json_array_size(json_object_get(test->root, "gold_tags"));
    for (size_t s = 0; s < n; s++)
        GOLDEN_TRY(run_sentence(test, s, &sum));
    nm_span_score score = nm_span_compute(&sum);
    GOLDEN_TRY(compare_count(test, "tp", sum.correct));
    GOLDEN_TRY(compare_count(test, "fp", sum.predicted - sum.correct));
    GOLDEN_TRY(compare_count(test, "fn", sum.gold - sum.correct));
    GOLDEN_TRY(compare_value(test, "precision", score.precision));
    GOLDEN_TRY(compare_value(test, "recall", score.recall));
    return compare_value(test, "f1", score.f1);
}
