/* Tables of a comparison: output formats, the selected grid point, and runs with identical weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "experiment/comparison_table.h"
#include "experiment/run_queue.h"
#include "text/utf8.h"

static void check_output(nm_table_format format, const char *expected)
{
    static const char *const cells[] = {"norm", "BLEU", "\302\261", "note", "a|b,\"c\"", "31.5",
                                        "-",    "",     "rbn_2",    "4.0",  "1.25",      "failed: 50 %"};
    nm_text_table table = {.columns = 4};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        nm_text_table_add(&table, nm_duplicate(cells[i]));
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    nm_text_table_print(&table, format, stream);
    fclose(stream);
    assert_string_equal(text, expected);
    free(text);
    nm_text_table_release(&table);
}

static void test_table_formats(void **state)
{
    (void)state;
    check_output(NM_TABLE_TEXT, "norm     BLEU     \302\261  note\n"
                                "a|b,\"c\"  31.5     -\n"
                                "rbn_2     4.0  1.25  failed: 50 %\n");
    check_output(NM_TABLE_MARKDOWN, "| norm | BLEU | \302\261 | note |\n|---|--:|--:|---|\n"
                                    "| a\\|b,\"c\" | 31.5 | - |  |\n| rbn_2 | 4.0 | 1.25 | failed: 50 % |\n");
    check_output(NM_TABLE_LATEX,
                 "\\begin{tabular}{lrrl}\n\\hline\nnorm & BLEU & $\\pm$ & note \\\\\n\\hline\n"
                 "a\\textbar{}b,\"c\" & 31.5 & - &  \\\\\n"
                 "rbn\\_2 & 4.0 & 1.25 & failed: 50 \\% \\\\\n\\hline\n\\end{tabular}\n");
    check_output(NM_TABLE_CSV,
                 "norm,BLEU,\302\261,note\n\"a|b,\"\"c\"\"\",31.5,-,\nrbn_2,4.0,1.25,failed: 50 %\n");
}

enum { POINTS = 4, SEEDS = 2 };

/* Two variants: layer, and three grid points of rbn, with two seeds. Losses and hashes of weights per run. */
static nm_comparison_table make_table(nm_run_result results[POINTS][SEEDS], nm_variant variants[POINTS])
{
    static char *const names[POINTS] = {"layer", "rbn:a", "rbn:b", "rbn:c"};
    static const double losses[POINTS][SEEDS] = {{4, 5}, {3, 3}, {2, 3.5}, {1, 1}};
    static const uint64_t weights[POINTS][SEEDS] = {{7, 8}, {8, 7}, {9, 8}, {9, 0}};
    nm_comparison_table table = {.summaries = nm_allocate(POINTS * sizeof *table.summaries), .n = POINTS};
    for (size_t p = 0; p < POINTS; p++) {
        variants[p] = (nm_variant){.name = names[p], .origin = p ? 1 : 0, .point = p > 0};
        table.summaries[p] = (nm_variant_summary){.variant = &variants[p], .n = SEEDS};
        table.summaries[p].results = nm_allocate(SEEDS * sizeof *table.summaries[p].results);
        for (size_t s = 0; s < SEEDS; s++) {
            results[p][s] = (nm_run_result){
                .variant = names[p], .seed = (int64_t)s + 1, .loss = losses[p][s], .weights = weights[p][s]};
            table.summaries[p].results[s] = &results[p][s];
        }
    }
    return table;
}

/* The lowest mean loss is selected per variant; a point with a failed run only if there is no other. */
static void test_best_finished_point_is_selected(void **state)
{
    (void)state;
    nm_run_result results[POINTS][SEEDS];
    nm_variant variants[POINTS];
    nm_comparison_table table = make_table(results, variants);
    results[3][1].exit_code = 8;
    nm_comparison_table_summarize_logs(&table);
    nm_comparison_table_select(&table);
    assert_true(table.summaries[0].selected);
    assert_false(table.summaries[1].selected);
    assert_true(table.summaries[2].selected);
    assert_false(table.summaries[3].selected);
    assert_true(fabs(table.summaries[2].loss - 2.75) < 1e-12);
    nm_comparison_table_release(&table);
}

/* The losses of points with different label smoothing are not comparable; their nll is. */
static void test_points_with_different_smoothing(void **state)
{
    (void)state;
    static const double nll[POINTS] = {1, 1.5, 1.4, 1.6};
    for (int differ = 0; differ < 2; differ++) {
        nm_run_result results[POINTS][SEEDS];
        nm_variant variants[POINTS];
        nm_setting settings[POINTS];
        nm_comparison_table table = make_table(results, variants);
        for (size_t p = 0; p < POINTS; p++) {
            settings[p] = (nm_setting){"train.label_smoothing", p == 3 && differ ? "0" : "0.1"};
            variants[p].settings = (nm_settings){.list = &settings[p], .n = 1};
            for (size_t s = 0; s < SEEDS; s++)
                results[p][s].nll = nll[p];
        }
        nm_comparison_table_summarize_logs(&table);
        nm_comparison_table_select(&table);
        assert_true(table.summaries[differ ? 2 : 3].selected);
        assert_false(table.summaries[differ ? 3 : 2].selected);
        assert_int_equal(table.summaries[differ ? 2 : 3].by_nll, differ);
        nm_comparison_table_release(&table);
    }
}

/* Runs with the same seed are compared; 0 is an unknown hash. */
static void test_identical_weights_are_found(void **state)
{
    (void)state;
    nm_run_result results[POINTS][SEEDS];
    nm_variant variants[POINTS];
    nm_comparison_table table = make_table(results, variants);
    double draws[2000] = {0};
    nm_comparison_table_summarize_logs(&table);
    nm_comparison_table_select(&table);
    for (size_t p = 0; p < POINTS; p++)
        for (size_t s = 0; s < SEEDS; s++) {
            results[p][s].measured = true;
            results[p][s].draws = draws;
        }
    nm_comparison_table_test(&table);
    assert_null(results[1][0].same_weights);
    assert_null(results[1][1].same_weights);
    assert_null(results[2][0].same_weights);
    assert_ptr_equal(results[2][1].same_weights, &results[0][1]);
    assert_ptr_equal(results[3][0].same_weights, &results[2][0]);
    assert_null(results[3][1].same_weights);
    nm_comparison_table_release(&table);
}

/* The cause of a failed run is the last line of its log, cut between characters: JSON text must be UTF-8. */
static void test_long_causes_are_whole_characters(void **state)
{
    (void)state;
    for (int shift = 0; shift < 3; shift++) {
        char path[] = "/tmp/norma-log-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        FILE *log = fdopen(fd, "w");
        fprintf(log, "first line\nnorma: %.*s", shift, "xx");
        for (int i = 0; i < 300; i++)
            fputs("\u672c", log);
        fputs("\n\n", log);
        assert_int_equal(fclose(log), 0);
        nm_run_job job = {.log_path = path};
        nm_run_job_finish(&job, NM_FORMAT);
        size_t bytes = strlen(job.result.failure);
        assert_in_range(bytes, 200, sizeof job.last_line);
        assert_int_equal(nm_utf8_find_invalid(job.result.failure, bytes), bytes);
        assert_null(strstr(job.result.failure, "norma:"));
        remove(path);
    }
}

/* 0 of 1,000 resamples are not p = 0; CSV has the number. */
static void test_smallest_p(void **state)
{
    (void)state;
    nm_run_result results[POINTS][SEEDS];
    nm_variant variants[POINTS];
    nm_comparison_table table = make_table(results, variants);
    nm_comparison_table_summarize_logs(&table);
    nm_comparison_table_select(&table);
    for (size_t k = 0; k < 2; k++) {
        char *text = NULL;
        size_t bytes;
        FILE *stream = open_memstream(&text, &bytes);
        table.summaries[3].p_holm = k ? 0.0005 : 0.0004999;
        nm_comparison_table_print(&table, NM_TABLE_TEXT, false, stream);
        nm_comparison_table_print(&table, NM_TABLE_CSV, false, stream);
        fclose(stream);
        assert_int_equal(strstr(text, " <0.001 ") != NULL, !k);
        assert_int_equal(strstr(text, " 0.001 ") != NULL, k);
        assert_non_null(strstr(text, k ? ",0.0005," : ",0.0004999,"));
        free(text);
    }
    nm_comparison_table_release(&table);
}

/* The text table of four variants, of which variant p has runs[p] scored runs. */
static char *table_with_scores(const size_t runs[POINTS])
{
    nm_run_result results[POINTS][SEEDS];
    nm_variant variants[POINTS];
    nm_comparison_table table = make_table(results, variants);
    double draws[POINTS * SEEDS][1000];
    char *text = NULL;
    size_t bytes;
    for (size_t p = 0; p < POINTS; p++) {
        variants[p].origin = p;
        variants[p].point = false;
        for (size_t s = 0; s < runs[p]; s++) {
            results[p][s].measured = true;
            strcpy(results[p][s].title, "BLEU");
            results[p][s].value = (double)(10 + 3 * p + s);
            results[p][s].draws = draws[p * SEEDS + s];
            for (int k = 0; k < 1000; k++)
                draws[p * SEEDS + s][k] = results[p][s].value + k % 7;
        }
    }
    nm_comparison_table_summarize_logs(&table);
    nm_comparison_table_select(&table);
    nm_comparison_table_test(&table);
    FILE *stream = open_memstream(&text, &bytes);
    nm_comparison_table_print(&table, NM_TABLE_TEXT, false, stream);
    fclose(stream);
    nm_comparison_table_release(&table);
    return text;
}

/* The lines below the table name the variant that the others are compared with, and whether p is one-sided or
 * two-sided. */
static void test_footer_describes_the_test(void **state)
{
    (void)state;
    static const struct {
        size_t runs[POINTS];
        const char *first;
        bool two_sided, one_sided;
    } cases[] = {{{2, 2, 2, 2}, "layer", true, false},
                 {{1, 1, 1, 1}, "layer", false, true},
                 {{2, 1, 2, 2}, "layer", true, true},
                 {{0, 2, 2, 2}, "rbn:a", true, false},
                 {{0, 0, 1, 1}, "rbn:b", false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = table_with_scores(cases[i].runs);
        char *line = nm_format("\ndiff, p: to %s; p with Holm's correction over the rows\n", cases[i].first);
        assert_non_null(strstr(text, line));
        assert_int_equal(strstr(text, ": two-sided t test over seeds and test segments\n") != NULL,
                         cases[i].two_sided);
        assert_int_equal(strstr(text, ": one-sided: the fraction of resamples in which the better system is "
                                      "not better (paired bootstrap over test segments)\n") != NULL,
                         cases[i].one_sided);
        free(line);
        free(text);
    }
}

/* Scores of different test sets are not compared: neither variants nor single runs have a p value. One run of
 * the second variant, and both runs of the third, were scored on a set of another size. */
static void test_different_test_sets(void **state)
{
    (void)state;
    static const int64_t segments[POINTS][SEEDS] = {{100, 100}, {100, 90}, {90, 90}, {100, 100}};
    nm_run_result results[POINTS][SEEDS];
    nm_variant variants[POINTS];
    nm_comparison_table table = make_table(results, variants);
    double draws[POINTS * SEEDS][1000];
    for (size_t p = 0; p < POINTS; p++) {
        variants[p].origin = p;
        variants[p].point = false;
        table.summaries[p].p = NAN;
        for (size_t s = 0; s < SEEDS; s++) {
            results[p][s].measured = true;
            results[p][s].segments = segments[p][s];
            results[p][s].value = (double)(10 + 3 * p + s);
            results[p][s].p = NAN;
            results[p][s].draws = draws[p * SEEDS + s];
            for (int k = 0; k < 1000; k++)
                draws[p * SEEDS + s][k] = results[p][s].value + k % 7;
        }
    }
    nm_comparison_table_summarize_logs(&table);
    nm_comparison_table_select(&table);
    nm_comparison_table_test(&table);
    for (size_t p = 1; p < POINTS; p++) {
        assert_int_equal(isfinite(table.summaries[p].p), p == 3);
        for (size_t s = 0; s < SEEDS; s++)
            assert_int_equal(isfinite(results[p][s].p), segments[p][s] == 100);
    }
    nm_comparison_table_release(&table);
}

/* The samples below the table are those of the best measured run of a selected variant; of equal runs the
 * first has them, whether higher or lower is better. */
static void test_samples_of_the_best_run(void **state)
{
    (void)state;
    for (int lower = 0; lower < 2; lower++) {
        nm_run_result results[POINTS][SEEDS];
        nm_variant variants[POINTS];
        nm_comparison_table table = make_table(results, variants);
        char *text = NULL, texts[POINTS][SEEDS][8];
        size_t bytes;
        for (size_t p = 0; p < POINTS; p++)
            for (size_t s = 0; s < SEEDS; s++) {
                snprintf(texts[p][s], sizeof texts[p][s], "<%zu %zu>", p, s);
                results[p][s].measured = p != 3;
                results[p][s].lower_is_better = lower;
                results[p][s].value = p == 0 ? 20 : lower ? 10 : 30;
                results[p][s].samples = texts[p][s];
            }
        variants[1].origin = 1; /* two variants with equal scores, and one without */
        variants[2].origin = 2;
        variants[3].origin = 3;
        nm_comparison_table_summarize_logs(&table);
        nm_comparison_table_select(&table);
        FILE *stream = open_memstream(&text, &bytes);
        nm_comparison_table_print(&table, NM_TABLE_TEXT, true, stream);
        fclose(stream);
        const char *heading = strstr(text, "\nTest set, ");
        assert_non_null(heading);
        assert_string_equal(heading, "\nTest set, rbn:a, seed 1:\n<1 0>");
        free(text);
        nm_comparison_table_release(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_formats),
        cmocka_unit_test(test_best_finished_point_is_selected),
        cmocka_unit_test(test_points_with_different_smoothing),
        cmocka_unit_test(test_identical_weights_are_found),
        cmocka_unit_test(test_long_causes_are_whole_characters),
        cmocka_unit_test(test_smallest_p),
        cmocka_unit_test(test_footer_describes_the_test),
        cmocka_unit_test(test_different_test_sets),
        cmocka_unit_test(test_samples_of_the_best_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
