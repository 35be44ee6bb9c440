/* Golden cases of family "metric": BLEU as multi-bleu, sacreBLEU and fairseq compute it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "text/bleu.h"
#include "text/metric_tokenizer.h"

enum { MAX_REFERENCES = 16 };

static golden_result compare_count(golden_case *test, const char *key, int64_t got, const json_t *want)
{
    if (json_is_integer(want) && json_integer_value(want) == got)
        return GOLDEN_PASSED;
    return golden_fail(test, "%s: got %lld, expected %lld", key, (long long)got,
                       (long long)json_integer_value(want));
}

static golden_result compare_value(golden_case *test, const char *key, double got)
{
    const json_t *expected = json_object_get(test->root, key);
    if (!json_is_number(expected))
        return GOLDEN_PASSED;
    double want = json_number_value(expected);
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
        return golden_fail(test, "%s: got %.12g, expected %.12g", key, got, want);
    return GOLDEN_PASSED;
}

static golden_result compare_line(golden_case *test, const nm_bleu_config *config, const nm_bleu_score *score,
                                  int n_references)
{
    const char *want = json_string_value(json_object_get(test->root, "printed_line"));
    if (!want)
        return GOLDEN_PASSED;
    char *got = nm_bleu_line(config, score, n_references);
    golden_result result = strcmp(got, want)
                               ? golden_fail(test, "printed_line: got '%s', expected '%.150s'", got, want)
                               : GOLDEN_PASSED;
    free(got);
    return result;
}

static golden_result compare_all(golden_case *test, const nm_bleu_config *config, const nm_bleu_stats *sum,
                                 int n_references)
{
    const nm_bleu_score score = nm_bleu_compute(config, sum);
    const json_t *precisions = json_object_get(test->root, "precisions"),
                 *percents = json_object_get(test->root, "precisions_percent");
    for (int i = 0; i < NM_BLEU_ORDER; i++) {
        size_t at = (size_t)i;
        GOLDEN_TRY(compare_count(test, "matches", sum->matches[i],
                                 json_array_get(json_object_get(test->root, "matches"), at)));
        GOLDEN_TRY(compare_count(test, "totals", sum->totals[i],
                                 json_array_get(json_object_get(test->root, "totals"), at)));
        const json_t *precision = json_array_get(precisions, at);
        if (json_is_number(precision) &&
            fabs(score.precisions[i] - 100 * json_number_value(precision)) > 1e-7)
            return golden_fail(test, "precisions[%d]: got %.10g", i, score.precisions[i] / 100);
        const json_t *percent = json_array_get(percents, at);
        if (json_is_number(percent) && sum->matches[i] &&
            fabs(score.precisions[i] - json_number_value(percent)) > 1e-7)
            return golden_fail(test, "precisions_percent[%d]: got %.10g", i, score.precisions[i]);
    }
    GOLDEN_TRY(compare_count(test, "hyp_len", sum->hyp_len, json_object_get(test->root, "hyp_len")));
    GOLDEN_TRY(compare_count(test, "ref_len", sum->ref_len, json_object_get(test->root, "ref_len")));
    GOLDEN_TRY(compare_value(test, "brevity_penalty", score.brevity_penalty));
    GOLDEN_TRY(compare_value(test, "bleu", score.bleu));
    return compare_line(test, config, &score, n_references);
}

static golden_result count_texts(golden_case *test, nm_bleu *bleu, nm_bleu_stats *sum, int *n_references)
{
    const json_t *hypotheses = json_object_get(test->root, "hypotheses");
    const json_t *references = json_object_get(test->root, "references");
    const char *texts[MAX_REFERENCES];
    *n_references = (int)json_array_size(references);
    if (*n_references < 1 || *n_references > MAX_REFERENCES)
        return golden_fail(test, "references: not 1 to %d streams", MAX_REFERENCES);
    for (size_t i = 0; i < json_array_size(hypotheses); i++) {
        nm_bleu_stats one;
        const char *hypothesis = json_string_value(json_array_get(hypotheses, i));
        for (int r = 0; r < *n_references; r++) {
            texts[r] = json_string_value(json_array_get(json_array_get(references, (size_t)r), i));
            if (!texts[r] || !hypothesis)
                return golden_fail(test, "segment %zu: a text is missing", i);
        }
        nm_bleu_count(bleu, hypothesis, texts, *n_references, &one);
        nm_bleu_add(sum, &one);
    }
    return GOLDEN_PASSED;
}

static golden_result read_ids(golden_case *test, const json_t *list, int32_t **ids, size_t *count)
{
    *count = json_array_size(list);
    *ids = nm_allocate((*count + 1) * sizeof **ids);
    for (size_t i = 0; i < *count; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || id < 0 || id > INT32_MAX)
            return golden_fail(test, "an id is no number from 0 on");
        (*ids)[i] = (int32_t)id;
    }
    return GOLDEN_PASSED;
}

static golden_result count_ids(golden_case *test, nm_bleu *bleu, nm_bleu_stats *sum)
{
    const json_t *predictions = json_object_get(test->root, "predictions");
    const json_t *references = json_object_get(test->root, "references");
    const nm_bleu_marks marks = {golden_whole(test, "pad", 1), golden_whole(test, "eos", 2),
                                 golden_whole(test, "unk", 3)};
    golden_result result = GOLDEN_PASSED;
    if (json_array_size(predictions) != json_array_size(references))
        return golden_fail(test, "predictions and references differ in number");
    for (size_t i = 0; result == GOLDEN_PASSED && i < json_array_size(predictions); i++) {
        int32_t *hypothesis = NULL, *reference = NULL;
        size_t hyp_len, ref_len;
        nm_bleu_stats one;
        result = read_ids(test, json_array_get(predictions, i), &hypothesis, &hyp_len);
        if (result == GOLDEN_PASSED)
            result = read_ids(test, json_array_get(references, i), &reference, &ref_len);
        if (result == GOLDEN_PASSED) {
            nm_bleu_count_ids(bleu, marks, hypothesis, hyp_len, reference, ref_len, &one);
            nm_bleu_add(sum, &one);
        }
        free(hypothesis);
        free(reference);
    }
    return result;
}

/* The tokenizer of sacreBLEU that the case names. Exponential smoothing is the only one. */
static golden_result open_tokenizer(golden_case *test, nm_metric_tokenizer *tokenizer)
{
    const nm_metric_tokenizer_config config = {.name = golden_text(test, "tokenize", "13a")};
    const char *smoothing = golden_text(test, "smooth", "exp");
    nm_error err = {0};
    if (strcmp(smoothing, "exp"))
        return golden_skip(test, "smoothing '%.60s' is not offered", smoothing);
    if (nm_metric_tokenizer_open(tokenizer, &config, &err) != NM_OK)
        return golden_skip(test, "%s", err.text);
    return GOLDEN_PASSED;
}

static golden_result run(golden_case *test)
{
    nm_metric_tokenizer tokenizer = {0};
    bool ids = strstr(test->variant, "token_ids") != NULL;
    nm_bleu_config config = {
        .variant = strncmp(test->variant, "sacrebleu", 9) ? NM_BLEU_MULTI : NM_BLEU_SACRE_13A,
        .lowercase = golden_flag(test, "lowercase") || !strcmp(test->variant, "multi_bleu_lc")};
    nm_bleu_stats sum = {{0}, {0}, 0, 0};
    int n_references = 1;
    if (!strcmp(test->method, "span_f1"))
        return golden_span_f1(test);
    if (strcmp(test->method, "bleu"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    GOLDEN_TRY(open_tokenizer(test, &tokenizer));
    config.tokenizer = &tokenizer;
    nm_bleu *bleu = nm_bleu_create(&config);
    golden_result result = ids ? count_ids(test, bleu, &sum) : count_texts(test, bleu, &sum, &n_references);
    if (result == GOLDEN_PASSED)
        result = compare_all(test, &config, &sum, n_references);
    nm_bleu_free(bleu);
    nm_metric_tokenizer_close(&tokenizer);
    return result;
}

const golden_family golden_metric = {.name = "metric", .run = run};
