/* norma report: run folders -> one page with every figure, pictures for papers, event files for TensorBoard. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "report/events.h"
#include "report/report.h"

typedef struct report_config { /* section [report] */
    const char *output, *png, *tensorboard, *inspected;
    bool samples;
    int64_t png_width;
} report_config;

static const nm_option report_options[] = {
    NM_OPTION(report_config, output, "report.html", 0, 0, "the page; empty: none"),
    NM_OPTION(report_config, png, "", 0, 0, "folder for the figures as pictures; empty: none"),
    NM_OPTION(report_config, png_width, "1536", 240, 10000, "of the pictures, in pixels"),
    NM_OPTION(report_config, tensorboard, "", 0, 0,
              "folder for TensorBoard's event files, one folder a run; empty: none"),
    NM_OPTION(
        report_config, inspected, "", 0, 0,
        "file that norma inspect --json printed, read instead of the runs' inspection.json; empty: none"),
    NM_OPTION(report_config, samples, "true", 0, 1,
              "show sample outputs; without, no sentence of the corpus is in the page"),
    {0}};

static void add_options(nm_options *options)
{
    nm_options_add(options, "report", report_options, NULL, sizeof(report_config));
}

static nm_status write_events(const nm_report_run *run, const char *folder, nm_error *err)
{
    char *own = nm_path_join(folder, run->name);
    for (char *at = own + strlen(folder) + 1; *at;
         at++) /* a name may be that of a folder above, or several */
        *at = *at == '/' || (*at == '.' && at[-1] == '/') ? '_' : *at;
    nm_events *events;
    nm_status status = nm_events_open(&events, run->folder, own, err);
    if (status == NM_OK)
        status = nm_events_follow(events, err);
    nm_events_close(events);
    free(own);
    return status;
}

static nm_status write_all(const nm_report *report, const report_config *config, nm_error *err)
{
    const nm_report_config page = {.samples = config->samples};
    if (*config->output) {
        NM_TRY(nm_report_page(report, &page, config->output, err));
        fprintf(stderr, "%s: %zu run%s\n", config->output, report->n, report->n == 1 ? "" : "s");
    }
    if (*config->png)
        NM_TRY(nm_report_png(report, config->png, (double)config->png_width, err));
    for (size_t i = 0; i < report->n && *config->tensorboard; i++)
        NM_TRY(write_events(&report->runs[i], config->tensorboard, err));
    return NM_OK;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    nm_report report = {0};
    const report_config *config = nm_options_find(cli->options, "report");
    nm_status status = nm_cli_check_arguments(cli, argc, 1, 1000, &err);
    if (status == NM_OK)
        status = nm_report_open(&report, (const char *const *)argv, (size_t)argc, config->inspected, &err);
    if (status == NM_OK)
        status = write_all(&report, config, &err);
    nm_report_close(&report);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_report = {
    .name = "report",
    .summary = "make one page with every figure of several runs",
    .usage = "RUN ... [-o report.html] [--png FOLDER] [--tensorboard FOLDER] [--no-samples]",
    .details =
        "Reads log.jsonl and config.ini of each RUN, and test.json and inspection.json where norma compare "
        "and "
        "norma inspect --save have left them, and writes a page that needs nothing beside it and no network: "
        "the runs in a table, learning curves, the figures of the papers as far as the runs have recorded "
        "their numbers, sample outputs, and where the configurations differ. Hovering shows values; each "
        "figure is saved as SVG, its numbers as CSV. Runs that are still going on are welcome. gnuplot draws "
        "the figures (Debian package gnuplot-nox).",
    .section = "report",
    .options = add_options,
    .run = run,
};
