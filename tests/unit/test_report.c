/* The report's reading of runs, its sentences and numbers, and the records of event files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/event_code.h"
#include "report/events.h"
#include "report/figure.h"
#include "report/html.h"

static nm_report_run run_of(const char *lines)
{
    nm_report_run run = {0};
    nm_report_run_add(&run, lines, strlen(lines));
    return run;
}

static void test_tags(void **state)
{
    (void)state;
    nm_report_run run = run_of(
        "{\"type\":\"train\",\"update\":10,\"loss\":2.5,\"seconds\":4}\n"
        "{\"type\":\"probe\",\"instrument\":\"gain\",\"site\":\"enc.0.ffn.norm\",\"update\":10,\"above\":{"
        "\"one\":0.25},"
        "\"quantiles\":[1,null,3]}\n"
        "{\"type\":\"inspect\",\"update\":20,\"condition\":[{\"stack\":\"enc\",\"layer\":2,\"c50\":7}],"
        "\"tid\":{\"last\":{\"site\":\"a\",\"mean\":0.5}}}\n"
        "{\"type\":\"train\",\"update\":20,\"loss\":null}\n{\"update\":3}\nnonsense\n{\"type\":\"train\","
        "\"upd");
    const nm_series *loss = nm_report_run_find(&run, "train/loss");
    assert_non_null(loss);
    assert_int_equal(loss->n, 1);
    assert_true(loss->update[0] == 10 && loss->seconds[0] == 4 && loss->value[0] == 2.5);
    assert_true(nm_report_run_last(&run, "probe/gain/enc.0.ffn.norm/above.one") == 0.25);
    assert_true(nm_report_run_last(&run, "inspect/condition/enc.2/c50") == 7);
    assert_true(nm_report_run_match(&run, "inspect/tid.last/*/mean") == 0.5);
    assert_true(isnan(nm_report_run_last(&run, "train/nll")));
    assert_int_equal(run.n_vectors, 1);
    assert_true(run.vectors[0].n == 3 && isnan(run.vectors[0].values[1]) && run.vectors[0].values[2] == 3);
    assert_int_equal(run.bad_lines, 2);
    assert_int_equal(run.first_bad, 5);
    assert_true(run.open_end);
    nm_report_run_release(&run);
}

static void test_patterns(void **state)
{
    (void)state;
    const char *part;
    size_t length;
    assert_true(nm_tag_match("probe/x/*/y", "probe/x/enc.0/y", &part, &length));
    assert_int_equal(length, 5);
    assert_memory_equal(part, "enc.0", 5);
    assert_false(nm_tag_match("probe/x/*/y", "probe/x/enc.0/yy", NULL, NULL));
    assert_false(nm_tag_match("probe/x/*/y", "probe/x/a/b/y", NULL, NULL));
    assert_false(nm_tag_match("probe/x/*/y", "probe/x/y", NULL, NULL));
    assert_true(nm_tag_match("train/loss", "train/loss", NULL, NULL));
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{5400, "5,400"}, {1234567, "1.23×10⁶"}, {2.67567, "2.676"},    {0.0123456, "0.0123"},
                 {0, "0"},        {-54321, "-54,321"},   {1.2e-7, "1.20×10⁻⁷"}, {NAN, "-"},
                 {INFINITY, "-"}};
    char text[NM_NUMBER_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(nm_number_show(text, cases[i].value), cases[i].text);
    assert_string_equal(nm_count_show(text, 1234567), "1,234,567");
    assert_string_equal(nm_count_show(text, -999), "-999");
    assert_string_equal(nm_duration_show(text, 5400), "90 min");
}

static void test_clean(void **state)
{
    (void)state;
    char *clean = nm_text_clean("a\xff\x01<\xc3\xa9\xe2\x82");
    assert_string_equal(clean, "a\xEF\xBF\xBD\xEF\xBF\xBD<\xc3\xa9\xEF\xBF\xBD\xEF\xBF\xBD");
    free(clean);
}

/* Two runs whose losses cross: b is lower up to update 300. */
static void test_sentence(void **state)
{
    (void)state;
    char *a = nm_duplicate(""), *b = nm_duplicate(""), *text = NULL;
    for (int update = 100; update <= 600; update += 100) {
        char *more_a =
            nm_format("%s{\"type\":\"valid\",\"update\":%d,\"loss\":%g}\n", a, update, 4 - update / 200.0);
        char *more_b =
            nm_format("%s{\"type\":\"valid\",\"update\":%d,\"loss\":%g,\"batch_nll\":1}\n"
                      "{\"type\":\"probe\",\"instrument\":\"distance\",\"site\":\"enc.5.ffn.norm\","
                      "\"update\":%d,\"variance\":%g}\n",
                      b, update, 3 - update / 800.0, update, update / 1000.0);
        free(a);
        free(b);
        a = more_a;
        b = more_b;
    }
    nm_report_run runs[2] = {run_of(a), run_of(b)};
    runs[0].name = nm_duplicate("LN");
    runs[1].name = nm_duplicate("BN");
    nm_report_result results[2] = {{NAN, NAN, NAN, NAN}, {NAN, NAN, NAN, NAN}};
    int groups[2] = {0, 1};
    char score[] = "valid/perplexity";
    nm_report report = {runs, results, groups, 2, score, score, false};
    nm_drawing drawing;
    nm_drawing_make(&drawing, &report, &nm_figures[0]);
    assert_int_equal(drawing.n, 2);
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    nm_figures[0].sentence(&report, &nm_figures[0], &drawing, out);
    fclose(out);
    assert_string_equal(
        text, "LN has the lowest value, 1 at update 600; the best of the others: BN 2.25. BN falls behind LN "
              "after update 200, when the variance of enc.5.ffn.norm is 0.2 from the remembered one.");
    free(text);
    nm_drawing_release(&drawing);
    nm_report_run_release(&runs[0]);
    nm_report_run_release(&runs[1]);
    free(a);
    free(b);
}

static void test_checksum(void **state)
{
    (void)state;
    const uint8_t zeros[32] = {0};
    assert_int_equal(nm_crc32c("123456789", 9), 0xE3069283); /* RFC 3720, appendix B.4 */
    assert_int_equal(nm_crc32c(zeros, 32), 0x8A9136AA);
}

static uint64_t little(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return value;
}

static uint32_t unmasked(uint32_t sum)
{
    sum -= 0xA282EAD8u;
    return sum << 15 | sum >> 17;
}

/* Every record of the file, whole and with the right checksums. */
static int count_records(const char *data, size_t bytes)
{
    int n = 0;
    for (size_t at = 0; at < bytes; n++) {
        size_t length = (size_t)little(data + at, 8);
        assert_true(length < bytes && at + length + 16 <= bytes);
        assert_int_equal(unmasked((uint32_t)little(data + at + 8, 4)), nm_crc32c(data + at, 8));
        assert_int_equal(unmasked((uint32_t)little(data + at + 12 + length, 4)),
                         nm_crc32c(data + at + 12, length));
        at += length + 16;
    }
    return n;
}

static void append(const char *folder, const char *text)
{
    char *path = nm_path_join(folder, "log.jsonl");
    FILE *log = fopen(path, "ab");
    fputs(text, log);
    fclose(log);
    free(path);
}

static void test_follow(void **state)
{
    (void)state;
    char folder[] = "/tmp/norma-report-XXXXXX", *data;
    nm_error err;
    nm_events *events;
    size_t bytes;
    if (!nm_event_code_there())
        skip();
    assert_non_null(mkdtemp(folder));
    append(folder, "{\"type\":\"train\",\"update\":1,\"loss\":2}\n{\"type\":\"train\",\"upda");
    assert_int_equal(nm_events_open(&events, folder, folder, &err), NM_OK);
    assert_int_equal(nm_events_follow(events, &err), NM_OK);
    append(folder, "te\":2,\"loss\":1}\n{\"type\":\"samples\",\"update\":2,\"text\":\"x\"}\nnonsense\n");
    assert_int_equal(nm_events_follow(events, &err), NM_OK);
    assert_int_equal(nm_events_follow(events, &err), NM_OK);
    nm_events_close(events);
    char *command = nm_format("cat %s/events.out.tfevents.*.norma > %s/all", folder, folder);
    assert_int_equal(system(command), 0);
    free(command);
    char *path = nm_path_join(folder, "all");
    assert_int_equal(nm_file_read(path, &data, &bytes, &err), NM_OK);
    assert_int_equal(count_records(data, bytes), 4); /* version, two losses, a text */
    free(data);
    free(path);
    command = nm_format("rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),   cmocka_unit_test(test_patterns), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_clean),  cmocka_unit_test(test_sentence), cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
