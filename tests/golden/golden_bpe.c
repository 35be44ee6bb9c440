/* Golden cases of family "bpe": codes learned from lines, and lines segmented with them, character by
 * character. */
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "text/bpe.h"

static golden_result check_texts(golden_case *test, const char *key)
{
    const json_t *lines = json_object_get(test->root, key), *line;
    size_t i;
    if (!json_is_array(lines))
        return golden_fail(test, "%s: no lines", key);
    json_array_foreach(lines, i, line) if (!json_is_string(line)) return golden_fail(test, "%s[%zu]: no text",
                                                                                     key, i);
    return GOLDEN_PASSED;
}

static golden_result learn(golden_case *test, nm_bpe **bpe)
{
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    const json_t *line;
    size_t i;
    nm_counter words = {0};
    nm_error err = {0};
    options.n_merges = golden_whole(test, "merges", 0);
    options.min_frequency = golden_whole(test, "min_frequency", 1);
    options.total_symbols = golden_flag(test, "total_symbols");
    if (options.n_merges < 0 || options.min_frequency < 1)
        return golden_fail(test, "config.merges or config.min_frequency is out of range");
    json_array_foreach(json_object_get(test->root, "train_lines"), i, line)
        nm_counter_add_line(&words, json_string_value(line), json_string_length(line));
    nm_status status = nm_bpe_learn(&words, &options, bpe, &err);
    nm_counter_release(&words);
    return status == NM_OK ? GOLDEN_PASSED : golden_fail(test, "learning: %s", err.text);
}

static golden_result compare_line(golden_case *test, const char *key, size_t i, const char *got, size_t bytes,
                                  const json_t *want)
{
    if (json_is_string(want) && json_string_length(want) == bytes &&
        !memcmp(json_string_value(want), got, bytes))
        return GOLDEN_PASSED;
    const char *text = json_string_value(want);
    return golden_fail(test, "%s[%zu]: got '%.*s', expected '%.150s'", key, i, bytes < 150 ? (int)bytes : 150,
                       got, text ? text : "no text");
}

static golden_result compare_codes(golden_case *test, const nm_bpe *bpe)
{
    const json_t *expected = json_object_get(test->root, "codes_lines");
    nm_buffer text = {0};
    size_t i = 0;
    golden_result result = GOLDEN_PASSED;
    nm_buffer_clear(&text);
    nm_bpe_format_text(bpe, strcmp(test->variant, "fastbpe") ? NM_BPE_SUBWORD_NMT_0_2 : NM_BPE_FASTBPE,
                       &text);
    const char *at = text.data, *end = text.data + text.bytes;
    for (; result == GOLDEN_PASSED && at < end; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((stop ? stop : end) - at);
        result = compare_line(test, "codes_lines", i, at, bytes, json_array_get(expected, i));
        at += bytes + 1;
    }
    if (result == GOLDEN_PASSED && i != json_array_size(expected))
        result = golden_fail(test, "codes_lines: got %zu, expected %zu", i, json_array_size(expected));
    nm_buffer_release(&text);
    return result;
}

static golden_result compare_segmented(golden_case *test, const nm_bpe *bpe, const nm_counter *vocabulary,
                                       const char *lines_key, const char *wanted_key)
{
    const json_t *lines = json_object_get(test->root, lines_key), *line;
    const json_t *wanted = json_object_get(test->root, wanted_key);
    nm_buffer out = {0};
    size_t i;
    golden_result result = GOLDEN_PASSED;
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, vocabulary, 1);
    if (json_array_size(lines) != json_array_size(wanted))
        result = golden_fail(test, "%s: another number of lines than %s", wanted_key, lines_key);
    json_array_foreach(lines, i, line)
    {
        nm_buffer_clear(&out);
        nm_bpe_apply_line(applier, json_string_value(line), json_string_length(line), &out);
        if (result == GOLDEN_PASSED)
            result = compare_line(test, wanted_key, i, out.data, out.bytes, json_array_get(wanted, i));
    }
    nm_bpe_applier_free(applier);
    nm_buffer_release(&out);
    return result;
}

/* Lines "subword count"; subwords below the threshold, an entry next to config, are ignored. */
static golden_result read_vocabulary(golden_case *test, nm_counter *vocabulary)
{
    const char *key =
        json_object_get(test->root, "vocabulary_lines_used") ? "vocabulary_lines_used" : "vocabulary_lines";
    const json_t *threshold = json_object_get(test->root, "vocabulary_threshold"), *line;
    size_t i;
    GOLDEN_TRY(check_texts(test, key));
    json_array_foreach(json_object_get(test->root, key), i, line)
    {
        const char *text = json_string_value(line), *space = strrchr(text, ' ');
        if (!space)
            return golden_fail(test, "%s[%zu]: not 'unit count'", key, i);
        long long count = strtoll(space + 1, NULL, 10);
        if (!json_is_number(threshold) || (double)count >= json_number_value(threshold))
            nm_counter_add(vocabulary, text, (size_t)(space - text), count);
    }
    return GOLDEN_PASSED;
}

static golden_result compare_all(golden_case *test, const nm_bpe *bpe)
{
    GOLDEN_TRY(compare_codes(test, bpe));
    GOLDEN_TRY(compare_segmented(test, bpe, NULL, "train_lines", "train_segmented"));
    GOLDEN_TRY(compare_segmented(test, bpe, NULL, "test_lines", "test_segmented"));
    if (!json_object_get(test->root, "test_segmented_with_vocabulary"))
        return GOLDEN_PASSED;
    nm_counter vocabulary = {0};
    golden_result result = read_vocabulary(test, &vocabulary);
    if (result == GOLDEN_PASSED)
        result = compare_segmented(test, bpe, &vocabulary, "test_lines", "test_segmented_with_vocabulary");
    nm_counter_release(&vocabulary);
    return result;
}

static golden_result run(golden_case *test)
{
    nm_bpe *bpe = NULL;
    if (strcmp(test->method, "bpe"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    GOLDEN_TRY(check_texts(test, "train_lines"));
    GOLDEN_TRY(check_texts(test, "test_lines"));
    GOLDEN_TRY(learn(test, &bpe));
    golden_result result = compare_all(test, bpe);
    nm_bpe_free(bpe);
    return result;
}

const golden_family golden_bpe = {.name = "bpe", .run = run};
