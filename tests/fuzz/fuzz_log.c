/* Run folders as norma report and norma compare read them: log.jsonl, config.ini, test.json and
 * inspection.json, separated by NUL bytes. A log that is read while it grows has the same series as one that
 * is read at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "experiment/run_result.h"
#include "fuzz.h"
#include "report/report.h"

static void write_parts(const char *folder, const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"log.jsonl", "config.ini", "test.json", "inspection.json"};
    nm_error err;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *part = fuzz_part(&data, &bytes), *path = nm_path_join(folder, names[i]);
        if (i && !*part)
            unlink(path);
        else
            NM_ASSERT(nm_file_write(path, part, strlen(part), &err) == NM_OK);
        free(part);
        free(path);
    }
}

static void check_series(const nm_report_run *run)
{
    for (size_t i = 0; i < run->n_series; i++) {
        const nm_series *series = &run->series[i];
        NM_ASSERT(nm_report_run_find(run, series->tag) == series && series->n);
        for (size_t k = 0; k < series->n; k++)
            NM_ASSERT(isfinite(series->value[k]));
        nm_report_run_match(run, series->tag);
    }
}

static void check_growing(const char *folder, size_t cut)
{
    char *path = nm_path_join(folder, "log.jsonl"), *text;
    size_t bytes;
    nm_error err;
    NM_ASSERT(nm_file_read(path, &text, &bytes, &err) == NM_OK);
    nm_report_run whole = {0}, grown = {0};
    while (cut < bytes && (!cut || text[cut - 1] != '\n')) /* lines are added when they are complete */
        cut++;
    cut = cut < bytes ? cut : bytes;
    nm_report_run_add(&whole, text, bytes);
    nm_report_run_add(&grown, text, cut);
    nm_report_run_add(&grown, text + cut, bytes - cut);
    NM_ASSERT(whole.n_series == grown.n_series && whole.lines == grown.lines &&
              whole.bad_lines == grown.bad_lines && whole.n_texts == grown.n_texts);
    for (size_t i = 0; i < whole.n_series; i++)
        NM_ASSERT(whole.series[i].n == grown.series[i].n);
    check_series(&whole);
    nm_report_run_release(&whole);
    nm_report_run_release(&grown);
    free(text);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *folder = nm_path_join(fuzz_folder(), "run");
    nm_error err;
    NM_ASSERT(nm_folder_create(folder, &err) == NM_OK);
    size_t cut = fuzz_choice(&data, &bytes, 256);
    write_parts(folder, data, bytes);
    check_growing(folder, cut * 4);
    nm_report report;
    nm_status status = nm_report_open(&report, (const char *const[]){folder}, 1, "", &err);
    if (status == NM_OK) {
        check_series(&report.runs[0]);
        nm_report_valid_score(&report, 0);
        nm_report_run_tid(&report.runs[0], "mean");
    } else {
        fuzz_check_error(status, &err);
    }
    nm_report_close(&report);
    nm_run_result result = {0};
    status = nm_run_result_read_log(&result, folder, &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    status = nm_run_result_read(&result, folder, &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    nm_run_result_release(&result);
    free(folder);
    return 0;
}
