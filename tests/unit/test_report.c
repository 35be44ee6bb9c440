/* The report: reading of logs, reduced curves, answers, formatted numbers, the table of runs, and event
 * files. */
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
#include "base/seed_test.h"
#include "report/event_code.h"
#include "report/events.h"
#include "report/figure.h"
#include "report/html.h"
#include "report/sections.h"

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

/* Objects, and lists of objects, up to four levels below a line; deeper ones are left out. */
static void test_levels(void **state)
{
    (void)state;
    static const char *const found[] = {"/a", "/a.a", "/a.a.a", "/a.a.a.a", "/a.a.a.a.a", NULL},
                             *const listed[] = {"/a", "/a/a", "/a/a/a", "/a/a/a/a", "/a/a/a/a/a", NULL};
    for (int list = 0; list < 2; list++) {
        char *value = nm_duplicate("1");
        for (int level = 0; level <= 5; level++) {
            NM_AUTO_FREE char *line = nm_format("{\"type\":\"inspect\",\"update\":3,\"a\":%s}\n", value);
            nm_report_run run = run_of(line);
            assert_int_equal(run.n_series, level < 5);
            if (level < 5) {
                NM_AUTO_FREE char *tag = nm_format("inspect%s", (list ? listed : found)[level]);
                assert_true(nm_report_run_last(&run, tag) == 1);
            }
            nm_report_run_release(&run);
            char *outer = nm_format(list ? "[{\"a\":%s}]" : "{\"a\":%s}", value);
            free(value);
            value = outer;
        }
        free(value);
    }
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

static const nm_figure *figure_named(const char *name)
{
    const nm_figure *figure = nm_figures;
    while (figure->name && strcmp(figure->name, name))
        figure++;
    assert_non_null(figure->name);
    return figure;
}

/* 1,000 noisy points as 20, as a page with little space shows them: extremes for the eye, and means for
 * smoothing. A range has its points and one more on each side. */
static void test_reduction(void **state)
{
    (void)state;
    char *log = NULL;
    size_t bytes;
    FILE *out = open_memstream(&log, &bytes);
    for (int update = 1; update <= 1000; update++)
        fprintf(out, "{\"type\":\"train\",\"update\":%d,\"loss\":%d}\n", update,
                update == 555 ? 99
                : update % 2  ? 3
                              : 5);
    fclose(out);
    nm_report_run run = run_of(log);
    free(log);
    char tag[] = "valid/perplexity", name[] = "run";
    nm_run_style style = {0};
    run.name = name;
    nm_report report = {.runs = &run, .styles = &style, .n = 1, .score_tag = tag, .score_name = tag};
    nm_drawing drawing;
    nm_drawing_make(&drawing, &report, figure_named("train-loss"), &(nm_view){.points = 20});
    const nm_curve *curve = &drawing.curves[0];
    assert_int_equal(curve->n, 20);
    assert_int_equal(curve->n_means, 10);
    assert_true(curve->mean_x[0] > 50.49 && curve->mean_x[0] < 50.51);
    assert_true(curve->mean_y[0] > 3.99 && curve->mean_y[0] < 4.01);
    double most = 0;
    for (size_t i = 0; i < curve->n; i++)
        most = curve->y[i] > most ? curve->y[i] : most;
    assert_true(most == 99);
    nm_drawing_release(&drawing);
    nm_drawing_make(&drawing, &report, figure_named("train-loss"), &(nm_view){100, 110, 800});
    assert_int_equal(drawing.curves[0].n, 13);
    assert_true(drawing.curves[0].x[0] == 99 && drawing.curves[0].x[12] == 111);
    assert_int_equal(drawing.curves[0].n_means, 0);
    nm_drawing_release(&drawing);
    run.name = NULL;
    nm_report_run_release(&run);
}

static void write_file(const char *folder, const char *run, const char *name, const char *text)
{
    char *path = nm_format("%s/%s", folder, run);
    nm_error err;
    assert_int_equal(nm_folder_create(path, &err), NM_OK);
    free(path);
    path = nm_format("%s/%s/%s", folder, run, name);
    assert_int_equal(nm_file_write(path, text, strlen(text), &err), NM_OK);
    free(path);
}

/* A run of 55 updates with records every 50; the best model is that of update 30, and an inspection of update
 * 55 exists. */
static void write_run(const char *folder, const char *run, const char *norm, const char *start,
                      int tokens_per_second)
{
    char *log =
        nm_format("{\"type\":\"start\",\"update\":0,\"host\":\"box\",\"started\":\"%s\"}\n"
                  "{\"type\":\"valid\",\"update\":30,\"loss\":2,\"best\":true,\"seconds\":6}\n"
                  "{\"type\":\"train\",\"update\":50,\"loss\":2,\"tokens_per_second\":%d,\"seconds\":10}\n"
                  "{\"type\":\"valid\",\"update\":55,\"loss\":3,\"best\":false,\"seconds\":11}\n",
                  start, tokens_per_second);
    char *config = nm_format("[model]\nnorm = layer\nencoder_norm = %s\n", norm);
    write_file(folder, run, "log.jsonl", log);
    write_file(folder, run, "config.ini", config);
    write_file(folder, run, "inspection.json",
               "[{\"update\":30,\"tid\":{\"last\":{\"site\":\"enc.0.ffn.norm\",\"mean\":0.031}}},"
               "{\"update\":55,\"tid\":{\"last\":{\"site\":\"enc.0.ffn.norm\",\"mean\":0.077}}}]");
    free(config);
    free(log);
}

static void append_log(const char *folder, const char *run, const char *line)
{
    char *path = nm_format("%s/%s/log.jsonl", folder, run);
    FILE *log = fopen(path, "ab");
    fputs(line, log);
    fclose(log);
    free(path);
}

static void append_resume(const char *folder, const char *run, const char *started)
{
    char *line = nm_format("{\"type\":\"resume\",\"update\":55,\"started\":\"%s\"}\n", started);
    append_log(folder, run, line);
    free(line);
}

static void remove_folder(const char *folder)
{
    char *command = nm_format("rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(command);
}

#define ONE_SEED                                                                                             \
    " Every variant has one seed, so how much another seed changes is not known (norma compare --seeds 3)."

static void check_answer(const char *folder, const char *const *names, size_t n, const char *expected)
{
    char *paths[4], *text = NULL;
    size_t bytes;
    nm_report report;
    nm_error err;
    for (size_t i = 0; i < n; i++)
        paths[i] = nm_format("%s/%s", folder, names[i]);
    assert_int_equal(nm_report_open(&report, (const char *const *)paths, n, "", &err), NM_OK);
    FILE *out = open_memstream(&text, &bytes);
    nm_report_answer(&report, out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    nm_report_close(&report);
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
}

static void write_tested(const char *folder, const char *run, double score, const char *p)
{
    char *test = nm_format("{\"score\":\"bleu\",\"title\":\"BLEU\",\"value\":%g,\"low\":%g,\"high\":%g%s}",
                           score, score - 1, score + 1, p);
    write_file(folder, run, "test.json", test);
    free(test);
}

/* Ended runs are ranked and their test is stated; a run whose log lacks its last line is listed, not ranked;
 * its lines are read while it grows. */
static void test_answer(void **state)
{
    (void)state;
    char folder[] = "/tmp/norma-report-XXXXXX";
    assert_non_null(mkdtemp(folder));
    write_run(folder, "layer-1", "layer", "2026-03-01T10:00:00Z", 100);
    write_run(folder, "batch-1", "batch", "2026-03-01T11:00:00Z", 100);
    write_tested(folder, "layer-1", 25, "");
    write_tested(folder, "batch-1", 22, ",\"p\":0.001,\"p_holm\":0.012");
    const char *names[] = {"layer-1", "batch-1", "rms-1"};
    check_answer(
        folder, names, 2,
        "layer has the highest test BLEU, 25 (24 to 26); next is batch with 22 (21 to 23). Intervals "
        "are 95 %. The difference between batch and layer is significant (p = 0.012, Holm)." ONE_SEED);
    write_tested(folder, "batch-1", 22, ",\"p\":0.1,\"p_holm\":0.2");
    check_answer(
        folder, names, 2,
        "layer has the highest test BLEU, 25 (24 to 26); next is batch with 22 (21 to 23). Intervals "
        "are 95 %. No difference between batch and layer is shown (p = 0.2, Holm)." ONE_SEED);
    write_file(folder, "rms-1", "config.ini", "[model]\nencoder_norm = rms\n[train]\nupdates = 100\n");
    write_file(folder, "rms-1", "log.jsonl",
               "{\"type\":\"start\",\"update\":0}\n{\"type\":\"weights\",\"update\":1,\"xxh3\":\"0\"}\n"
               "{\"type\":\"train\",\"update\":50,\"loss\":2,\"seconds\":10}\n");
    check_answer(folder, names + 2, 1, "The run has not ended: rms-1 at update 50 of 100 (10 s left).");
    check_answer(
        folder, names, 3,
        "layer has the highest test BLEU, 25 (24 to 26); next is batch with 22 (21 to 23). Intervals "
        "are 95 %. No difference between batch and layer is shown (p = 0.2, Holm)." ONE_SEED
        " 1 of 3 runs has not ended and is not ranked: rms at update 50 of 100 (10 s left).");

    nm_report_run run;
    nm_error err;
    bool grown;
    char *path = nm_format("%s/rms-1", folder);
    assert_int_equal(nm_report_run_read(&run, path, "", &err), NM_OK);
    append_log(folder, "rms-1", "{\"type\":\"train\",\"update\":80,");
    assert_int_equal(nm_report_run_follow(&run, &grown, &err), NM_OK);
    assert_false(grown);
    append_log(folder, "rms-1", "\"loss\":1}\n{\"type\":\"weights\",\"update\":80,\"xxh3\":\"1\"}\n");
    assert_true(nm_report_run_is_unfinished(&run));
    assert_int_equal(nm_report_run_follow(&run, &grown, &err), NM_OK);
    assert_true(grown);
    assert_true(nm_report_run_last(&run, "train/loss") == 1);
    assert_int_equal(run.bad_lines, 0);
    assert_true(nm_report_run_is_unfinished(&run)); /* stopped at update 80 of 100 */
    append_log(folder, "rms-1",
               "{\"type\":\"valid\",\"update\":90,\"loss\":1}\n{\"type\":\"weights\",\"update\":90,\"xxh3\":"
               "\"1\"}\n");
    assert_int_equal(nm_report_run_follow(&run, &grown, &err), NM_OK);
    assert_false(nm_report_run_is_unfinished(&run)); /* early stopping */
    assert_int_equal(nm_report_run_follow(&run, &grown, &err), NM_OK);
    assert_false(grown);
    write_file(folder, "rms-1", "log.jsonl", "{\"type\":\"start\",\"update\":0}\n");
    assert_int_equal(nm_report_run_follow(&run, &grown, &err), NM_MISMATCH);
    nm_report_run_release(&run);
    free(path);
    remove_folder(folder);
}

static int occurrences(const char *html, const char *name, const char *format)
{
    NM_AUTO_FREE char *text = nm_format(format, name);
    int n = 0;
    for (const char *at = html; (at = strstr(at, text)) != NULL; at++)
        n += at[strlen(text)] == ' ' || at[strlen(text)] == '>';
    return n;
}

/* Every element that begins also ends. */
static void assert_balanced(const char *html)
{
    static const char *const names[] = {"section", "div",   "p",  "details", "summary", "table",
                                        "thead",   "tbody", "tr", "th",      "td",      "button",
                                        "span",    "ul",    "li", "code"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (occurrences(html, names[i], "<%s") != occurrences(html, names[i], "</%s"))
            fail_msg("<%s>: %d begin, %d end", names[i], occurrences(html, names[i], "<%s"),
                     occurrences(html, names[i], "</%s"));
}

static char *runs_html(const char *folder, const char *const *names, size_t n, nm_run_style *styles)
{
    char *paths[4], *html = NULL;
    nm_error err;
    nm_report report;
    size_t bytes;
    for (size_t i = 0; i < n; i++)
        paths[i] = nm_path_join(folder, names[i]);
    assert_int_equal(nm_report_open(&report, (const char *const *)paths, n, "", &err), NM_OK);
    FILE *out = open_memstream(&html, &bytes);
    nm_section_runs(&report, out);
    fclose(out);
    for (size_t i = 0; i < n; i++) {
        styles[i] = report.styles[i];
        free(paths[i]);
    }
    nm_report_close(&report);
    assert_balanced(html);
    /* a heading for the run and for every cell of its row */
    const int columns = occurrences(html, "th", "<%s") - 1 - (int)n;
    assert_true(columns > 0);
    assert_int_equal(occurrences(html, "td", "<%s"), (int)n * columns);
    return html;
}

/* Part of the page of two runs of the same norm, whose sections [run] and [data] are given. */
static void expect_comparable(const char *a, const char *b, const char *problem)
{
    const char *const names[] = {"a", "b"}, *const settings[] = {a, b};
    char folder[] = "/tmp/norma-report-XXXXXX";
    nm_run_style styles[2];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        write_run(folder, names[i], "layer", "2026-03-01T10:00:00Z", 1000);
        char *config = nm_format("[model]\nencoder_norm = layer\n%s", settings[i]);
        write_file(folder, names[i], "config.ini", config);
        free(config);
        append_log(folder, names[i],
                   i ? "{\"type\":\"valid\",\"update\":60,\"loss\":1.5,\"best\":true}\n"
                     : "{\"type\":\"valid\",\"update\":60,\"loss\":2.5,\"best\":true}\n");
    }
    char *html = runs_html(folder, names, 2, styles);
    char *note = nm_format("Losses and scores are not ranked: %s. ", problem ? problem : "");
    bool best = strstr(html, " class=\"best\">1.500</td>");
    if (!problem != best || !problem == (strstr(html, note) != NULL))
        fail_msg("%s | %s: expected %s in %s", a, b, problem ? problem : "a ranking", html);
    free(note);
    free(html);
    remove_folder(folder);
}

static void test_different_data(void **state)
{
    (void)state;
    expect_comparable("", "", NULL);
    expect_comparable("[run]\ntask = lm\n", "[run]\ntask = lm\n", NULL);
    expect_comparable("[run]\ntask = lm\n", "[run]\ntask = tagging\n", "the runs have different tasks");
    expect_comparable("[data]\nfolder = x\n", "[data]\nfolder = x\n", NULL);
    expect_comparable("[data]\nfolder = x\n", "[data]\nfolder = y\n", "the runs have different data folders");
    expect_comparable("[data]\ntrain = x\nvalid = v\n", "[data]\ntrain = y\nvalid = v\n", NULL);
    expect_comparable("[data]\ntrain = x\nvalid = v\n", "[data]\ntrain = x\nvalid = w\n",
                      "the runs have different validation data");
    expect_comparable("[data]\ntrain = x\nvalid =\n", "[data]\ntrain = y\nvalid =\n",
                      "the runs have different validation data");
    expect_comparable("[data]\ntrain = x\n", "[data]\ntrain = x\n", NULL);
}

static void test_runs_table(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    char folder[] = "/tmp/norma-report-XXXXXX";
    nm_run_style styles[3], alone[1];
    assert_non_null(mkdtemp(folder));
    write_run(folder, "a", "batch", "2026-03-01T10:00:00Z", 1000);
    write_run(folder, "b", "power", "2026-03-01T10:00:05Z", 2000); /* while a was running */
    write_run(folder, "c", "power", "2026-03-01T12:00:00Z", 3000);
    char *html = runs_html(folder, names, 3, styles);
    assert_non_null(strstr(html, ">55</td>"));   /* updates, not those of the last training record */
    assert_non_null(strstr(html, "3.1&nbsp;%")); /* of the best model, not of the last checkpoint */
    assert_null(strstr(html, "7.7&nbsp;%"));
    assert_null(strstr(html, " class=\"best\">3,000</td>"));
    assert_non_null(strstr(html, "The speed is not ranked"));
    free(html);
    write_file(folder, "b", "test.json", "{\"value\":3,\"tid_mean\":0.042,\"p\":0.01,\"p_holm\":0.02}");
    html = runs_html(folder, names, 3, styles);
    assert_non_null(strstr(html, "4.2&nbsp;%")); /* as norma compare prints it */
    assert_non_null(strstr(html, ">0.020</td>"));
    assert_null(strstr(html, ">0.010<"));
    free(html);
    html = runs_html(folder, names + 1, 2, styles + 1);
    assert_non_null(strstr(html, " class=\"best\">3,000</td>"));
    free(html);
    append_log(folder, "c", "{\"type\":\"train\",\"update\":60,\"other_cores\":0.4}\n");
    html = runs_html(folder, names + 1, 2, styles + 1);
    assert_non_null(strstr(html, " class=\"best\">3,000</td>"));
    free(html);
    /* the mean is 0.65 */
    append_log(folder, "c", "{\"type\":\"train\",\"update\":61,\"other_cores\":0.9}\n");
    html = runs_html(folder, names + 1, 2, styles + 1);
    assert_null(strstr(html, "\" class=\"best\">3,000</td>"));
    assert_non_null(strstr(html, "not ranked: other programs used more than half a core"));
    free(html);
    append_resume(folder, "b", "2026-03-01T11:59:55Z"); /* until c was running */
    html = runs_html(folder, names + 1, 2, styles + 1);
    assert_non_null(strstr(html, "not ranked: runs shared the machine"));
    free(html);
    assert_int_equal(styles[1].color, styles[2].color); /* the same norm */
    assert_true(styles[0].color != styles[1].color);
    html = runs_html(folder, names + 2, 1, alone); /* also in a separate report */
    assert_int_equal(alone[0].color, styles[2].color);
    free(html);
    remove_folder(folder);
}

/* A run of a grid: settings of the sections [train] and [norm.rbn], and its test score with two resamples. */
static void write_grid_run(const char *folder, const char *run, const char *norm, const char *train,
                           const char *rbn, double score)
{
    char *config =
        nm_format("[run]\nfolder = %s\n[model]\nnorm = %s\n[norm.rbn]\n%s[norm.power]\nepsilon = %g\n"
                  "[train]\nseed = %g\n%s",
                  run, norm, rbn, score, score, train);
    char *test = nm_format("{\"value\":%.17g,\"low\":1,\"high\":99,\"draws\":[%.17g,%.17g,%.17g]}", score,
                           score - 1, score, score + 2);
    write_file(folder, run, "log.jsonl",
               "{\"type\":\"valid\",\"update\":1,\"loss\":2,\"masked_targets\":3,\"load\":1,\"bleu\":7,"
               "\"best\":true}\n");
    write_file(folder, run, "config.ini", config);
    write_file(folder, run, "test.json", test);
    free(config);
    free(test);
}

static void open_runs(nm_report *report, const char *folder, const char *const *names, size_t n)
{
    char *paths[16];
    nm_error err;
    for (size_t i = 0; i < n; i++)
        paths[i] = nm_path_join(folder, names[i]);
    assert_int_equal(nm_report_open(report, (const char *const *)paths, n, "", &err), NM_OK);
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
}

static nm_drawing drawing_of(const nm_report *report, const char *figure)
{
    nm_drawing drawing;
    nm_drawing_make(&drawing, report, figure_named(figure), NULL);
    return drawing;
}

/* The y axis spans the intervals of all points and a twentieth more on both sides. */
static void check_range(const nm_drawing *drawing)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t c = 0; c < drawing->n; c++)
        for (size_t i = 0; i < drawing->curves[c].n; i++) {
            low = fmin(low, drawing->curves[c].low[i]);
            high = fmax(high, drawing->curves[c].high[i]);
        }
    assert_true(fabs(drawing->y_min - (low - 0.05 * (high - low))) < 1e-9);
    assert_true(fabs(drawing->y_max - (high + 0.05 * (high - low))) < 1e-9);
}

/* Two norms with three batch sizes and three seeds; accumulate is coupled to the batch size, and options of
 * norms that the models do not have are no settings of theirs. */
static void test_one_setting(void **state)
{
    (void)state;
    static const char *const names[] = {
        "PN-LS:train.max_tokens=64-1",   "PN-LS:train.max_tokens=64-2",   "PN-LS:train.max_tokens=64-3",
        "PN-LS:train.max_tokens=1024-1", "PN-LS:train.max_tokens=1024-2", "PN-LS:train.max_tokens=1024-3",
        "batch:train.max_tokens=64-1",   "batch:train.max_tokens=64-2",   "batch:train.max_tokens=64-3"};
    static const double scores[] = {20, 23, 26, 30, 30.5, 32, 10, 11, 12.5};
    char folder[] = "/tmp/norma-report-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 9; i++)
        write_grid_run(folder, names[i], i < 6 ? "layer" : "batch",
                       i < 3 || i > 5 ? "max_tokens = 64\naccumulate = 8\n"
                                      : "max_tokens = 1024\naccumulate = 1\n",
                       i % 2 ? "lambda = 1\n" : "lambda = 2\n", scores[i]);
    nm_report report;
    open_runs(&report, folder, names, 9);
    assert_int_equal(report.grid.n_axes, 1);
    assert_string_equal(report.grid.axes[0].key, "train.max_tokens");
    assert_string_equal(report.grid.axes[0].coupled, "train.accumulate");
    assert_int_equal(report.grid.n_groups, 2);
    assert_string_equal(report.grid.groups[0].name, "PN-LS");
    assert_string_equal(report.grid.groups[1].name, "batch");
    assert_int_equal(report.grid.n_points, 3);
    nm_drawing drawing = drawing_of(&report, "setting-score");
    assert_int_equal(drawing.n, 2);
    assert_int_equal(drawing.curves[0].n, 2);
    assert_true(drawing.curves[0].y[0] == 23 && fabs(drawing.curves[0].y[1] - 92.5 / 3) < 1e-12);
    assert_true(drawing.curves[1].n == 1 && drawing.curves[1].x[0] == 0);
    assert_true(fabs(drawing.at[0] - log10(64)) < 1e-12 && fabs(drawing.at[1] - log10(1024)) < 1e-12);
    const double *draws[] = {report.results[0].draws, report.results[1].draws, report.results[2].draws};
    const nm_interval interval = nm_seed_interval(&(nm_seed_scores){3, 3, scores, draws}, 0.05);
    assert_true(drawing.curves[0].low[0] == interval.low && drawing.curves[0].high[0] == interval.high);
    check_range(&drawing);
    assert_string_equal(drawing.title, "Test # against train.max_tokens");
    assert_string_equal(
        drawing.note, "Best: PN-LS max_tokens=1024 30.83, batch 11.17. Each point is the mean over 3 seeds; "
                      "intervals are 95 %. With train.max_tokens varies: train.accumulate.");
    nm_drawing_release(&drawing);
    drawing = drawing_of(&report, "setting-heat-map");
    assert_int_equal(drawing.n, 0);
    nm_drawing_release(&drawing);
    nm_report_close(&report);
    /* Without one of the test scores: validation scores, one value everywhere, and ranges. */
    char *path = nm_format("%s/%s/test.json", folder, names[8]);
    assert_int_equal(unlink(path), 0);
    free(path);
    open_runs(&report, folder, names, 9);
    drawing = drawing_of(&report, "setting-score");
    assert_true(drawing.curves[0].y[0] == 7 && drawing.curves[0].low[0] == 7);
    assert_string_equal(drawing.title, "Best validation @ against train.max_tokens");
    nm_drawing_release(&drawing);
    nm_report_close(&report);
    remove_folder(folder);
}

/* RBN with two settings, of which one point is missing, and BatchNorm without them. */
static void test_two_settings(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    static const char *const settings[] = {"lambda = 0\nnu = 0\n", "lambda = 0.1\nnu = 0\n",
                                           "lambda = 0.1\nnu = 1e1\n", ""};
    char folder[] = "/tmp/norma-report-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 4; i++)
        write_grid_run(folder, names[i], i < 3 ? "rbn" : "batch", "", settings[i], 20 + (double)i);
    nm_report report;
    open_runs(&report, folder, names, 4);
    assert_int_equal(report.grid.n_axes, 2);
    assert_string_equal(report.grid.groups[0].name, "rbn");
    nm_drawing drawing = drawing_of(&report, "setting-heat-map");
    assert_int_equal(drawing.n, 1);
    assert_int_equal(drawing.curves[0].n, 3);
    assert_int_equal(drawing.n_ticks, 2);
    assert_string_equal(drawing.ticks[1], "0.1");
    assert_string_equal(drawing.rows[1], "10");
    assert_true(drawing.curves[0].x[2] == 1 && drawing.curves[0].y[2] == 1 &&
                drawing.curves[0].value[2] == 22);
    assert_non_null(strstr(drawing.note, "Best: rbn lambda=0.1 nu=10 22."));
    assert_non_null(strstr(drawing.note, "Without d"));
    nm_drawing_release(&drawing);
    nm_report_close(&report);
    remove_folder(folder);
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

/* Counts the records of a file and checks their lengths and checksums. */
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
    if (!nm_event_code_available())
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
    remove_folder(folder);
}

/* Zero is left of the positive values of a logarithmic axis by their mean distance. */
static void test_zero_on_a_logarithmic_axis(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    static const char *const settings[] = {"lambda = 0\n", "lambda = 0.001\n", "lambda = 1\n",
                                           "lambda = 10\n"};
    for (size_t n = 3; n <= 4; n++) {
        char folder[] = "/tmp/norma-report-XXXXXX";
        assert_non_null(mkdtemp(folder));
        for (size_t i = 0; i < n; i++)
            write_grid_run(folder, names[i], "rbn", "", settings[i], 20 + (double)i);
        nm_report report;
        open_runs(&report, folder, names, n);
        nm_drawing drawing = drawing_of(&report, "setting-score");
        assert_int_equal(drawing.n_ticks, n);
        const double expected[] = {n == 3 ? -6 : -5, -3, 0, 1};
        for (size_t i = 0; i < n; i++)
            assert_true(fabs(drawing.at[i] - expected[i]) < 1e-12);
        nm_drawing_release(&drawing);
        nm_report_close(&report);
        remove_folder(folder);
    }
}

/* The mean of the seeds of one variant, and its bar: none or a range from the lowest to the highest score, or
 * an interval: of the run itself, or over seeds and resamples. A run without a score does not count. */
static void test_mean_scores(void **state)
{
    (void)state;
    const double draws[3][4] = {{30, 30, 30, 30}, {34, 34, 34, 34}, {37, 37, 37, 37}};
    nm_report_result results[] = {{.score = 30, .low = 28, .high = 33, .draws = draws[0], .n_draws = 4},
                                  {.score = 34, .low = 31, .high = 36, .draws = draws[1], .n_draws = 4},
                                  {.score = NAN, .low = NAN, .high = NAN},
                                  {.score = 37, .low = 35, .high = 39, .draws = draws[2], .n_draws = 4}};
    const nm_report report = {.results = results, .n = 4};
    const nm_run_set all = {.list = (size_t[]){0, 1, 2, 3}, .n = 4}, one = {.list = (size_t[]){1}, .n = 1},
                     none = {.list = (size_t[]){2}, .n = 1};
    const double means[] = {101.0 / 3, 34};
    const nm_run_set *sets[] = {&all, &one};
    for (size_t s = 0; s < 2; s++)
        for (int bar = NM_BAR_NONE; bar <= NM_BAR_RANGE; bar++) {
            nm_mean_score mean = nm_report_mean_score(&report, sets[s], true, (nm_score_bar)bar);
            assert_int_equal(mean.n, s ? 1 : 3);
            assert_true(fabs(mean.mean - means[s]) < 1e-12);
            if (bar != NM_BAR_INTERVAL) {
                assert_true(mean.low == (s ? 34 : 30) && mean.high == (s ? 34 : 37));
            } else if (s) {
                assert_true(mean.low == 31 && mean.high == 36);
            } else { /* 4.303: t(2 degrees of freedom); the resamples do not vary */
                const double width = 4.3026527297 * sqrt((11.0 * 11 + 1 + 10 * 10) / 9 / 6);
                assert_true(fabs(mean.low - (mean.mean - width)) < 1e-6);
                assert_true(fabs(mean.high - (mean.mean + width)) < 1e-6);
            }
        }
    nm_mean_score mean = nm_report_mean_score(&report, &none, true, NM_BAR_INTERVAL);
    assert_true(mean.n == 0 && isnan(mean.mean));
    const nm_run_set two = {.list = (size_t[]){0, 1}, .n = 2};
    assert_int_equal(nm_report_bars(&report, (nm_run_set[]){all, one}, 2, true), NM_BAR_INTERVAL);
    assert_int_equal(nm_report_bars(&report, (nm_run_set[]){all, two}, 2, true), NM_BAR_RANGE);
    assert_int_equal(nm_report_bars(&report, (nm_run_set[]){all, none}, 2, true), NM_BAR_INTERVAL);
    results[3].n_draws = 3;
    assert_int_equal(nm_report_bars(&report, (nm_run_set[]){all, one}, 2, true), NM_BAR_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_reduction),
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_runs_table),
        cmocka_unit_test(test_different_data),
        cmocka_unit_test(test_one_setting),
        cmocka_unit_test(test_two_settings),
        cmocka_unit_test(test_mean_scores),
        cmocka_unit_test(test_zero_on_a_logarithmic_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
