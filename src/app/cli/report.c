/* norma report: converts run folders to one HTML page with all figures, PNG images, and event files for
 * TensorBoard. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/watch_runs.h"
#include "norma/compare.h"
#include "report/events.h"
#include "report/report.h"

typedef struct report_config { /* section [report] */
    const char *output, *png, *svg, *tensorboard, *inspected;
    bool samples;
    int64_t png_width;
} report_config;

static const nm_option report_options[] = {
    NM_OPTION(report_config, output, "report.html", 0, 0, "HTML page to write; empty: none."),
    NM_OPTION(report_config, png, "", 0, 0, "Folder for the figures as PNG images; empty: none."),
    NM_OPTION(report_config, svg, "", 0, 0, "Folder for the figures as SVG images; empty: none."),
    NM_OPTION(report_config, png_width, "1536", 240, 10000, "Width of the images in pixels."),
    NM_OPTION(report_config, tensorboard, "", 0, 0,
              "Folder for TensorBoard event files, one subfolder per run; empty: none."),
    NM_OPTION(report_config, inspected, "", 0, 0,
              "Output file of norma inspect --json, used instead of the runs' inspection.json; empty: none."),
    NM_OPTION(report_config, samples, "true", 0, 1,
              "Show sample outputs; without them the page contains no sentence of the corpus."),
    {0}};

static const nm_option_rule report_rules[] = {
    {"report.png_width", "report.png", "!", "no images are written", NULL}, {0}};

static nm_status write_events(const nm_report_run *run, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *events_folder = nm_path_join(folder, run->name);
    for (char *at = events_folder + strlen(folder) + 1; *at; at++) /* the name must not contain a path */
        *at = *at == '/' || (*at == '.' && at[-1] == '/') ? '_' : *at;
    nm_events *events;
    nm_status status = nm_events_open(&events, run->folder, events_folder, err);
    NM_THEN(status, nm_events_follow(events, err));
    nm_events_close(events);
    return status;
}

static nm_status write_all(const nm_report *report, const report_config *config, nm_watch_runs *runs,
                           nm_error *err)
{
    const nm_report_config page = {.samples = config->samples,
                                   .answer = nm_watch_runs_write_answer,
                                   .extra = nm_watch_runs_write_queue,
                                   .user = runs};
    if (*config->output) {
        NM_TRY(nm_report_page(report, &page, config->output, err));
        fprintf(stderr, "%s: %zu run%s\n", config->output, report->n, report->n == 1 ? "" : "s");
    }
    if (*config->png)
        NM_TRY(nm_report_pictures(report, config->png, (double)config->png_width, err));
    if (*config->svg)
        NM_TRY(nm_report_pictures(report, config->svg, 0, err));
    for (size_t i = 0; i < report->n && *config->tensorboard; i++)
        NM_TRY(write_events(&report->runs[i], config->tensorboard, err));
    return NM_OK;
}

/* Finds the runs in the given folders. Warns of folders without any, unless all are. */
static void find_runs(nm_watch_runs *runs, int argc, char **argv)
{
    NM_AUTO_FREE size_t *ends = nm_allocate((size_t)argc * sizeof *ends);
    *runs = (nm_watch_runs){.given = (const char *const *)argv, .n_given = (size_t)argc};
    for (int i = 0; i < argc; i++) {
        nm_watch_runs_find(runs, argv[i]);
        ends[i] = runs->n;
    }
    for (int i = 0; runs->n && i < argc; i++)
        if (ends[i] == (i ? ends[i - 1] : 0))
            fprintf(stderr, "norma: warning: %s has no log.jsonl and is left out\n", argv[i]);
}

/* The effects of a factorial comparison that has ended, for their figure. They last until it is closed. */
static nm_comparison *read_effects(const char *folder, nm_report *report)
{
    nm_error err;
    nm_comparison *comparison = NULL;
    nm_factor_effect effect;
    size_t capacity = 0;
    if (nm_comparison_open_results(&comparison, folder, NULL, NULL, &err) != NM_OK ||
        nm_comparison_run(comparison, &err) != NM_OK)
        return comparison;
    while (nm_comparison_get_effect(comparison, report->n_effects, &effect)) {
        NM_APPEND(report->effects, report->n_effects, capacity, effect);
    }
    return comparison;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    NM_AUTO(nm_report_close) nm_report report = {0};
    nm_comparison *comparison = NULL;
    nm_watch_runs runs = {0};
    const report_config *config = nm_options_find(cli->options, "report");
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, NM_CLI_NO_LIMIT, &err);
    if (status == NM_OK && !*config->output && !*config->png && !*config->svg && !*config->tensorboard)
        status = nm_fail(&err, NM_USAGE,
                         "report: nothing to write: no --output, no --png FOLDER, no --svg FOLDER, no "
                         "--tensorboard FOLDER");
    if (status == NM_OK) {
        find_runs(&runs, argc, argv);
        status = nm_report_open(&report, runs.n ? (const char *const *)runs.folders : runs.given,
                                runs.n ? runs.n : runs.n_given, config->inspected, &err);
    }
    if (status == NM_OK && argc == 1)
        comparison = read_effects(argv[0], &report);
    NM_THEN(status, write_all(&report, config, &runs, &err));
    NM_AUTO_FREE nm_factor_effect *effects = report.effects;
    nm_comparison_close(comparison);
    nm_watch_runs_release(&runs);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_report = {
    .name = "report",
    .summary = "write one page with all figures of several runs",
    .usage =
        "RUN|FOLDER ... [-o report.html] [--png FOLDER] [--svg FOLDER] [--tensorboard FOLDER] [--no-samples]",
    .details =
        "Reads log.jsonl and config.ini of each RUN, and test.json and inspection.json if norma compare "
        "and norma inspect --save have written them. FOLDER is that of a comparison or a study, whose runs "
        "are read; the answer of a study is its own. Writes a self-contained HTML page: the answer with its "
        "main curves, the runs in a table, the figures of the papers for which the runs have recorded data, "
        "sample outputs, and the differences of the configurations. Drag over a figure to zoom in, "
        "double-click to zoom out; hover to read values; smooth the curves, average over seeds, or save a "
        "figure's data as CSV. Runs that are still training are included, marked as unfinished and not "
        "ranked; a folder without a log is left out with a warning. --png and --svg write the figures as "
        "files for papers; gnuplot draws these (Debian package gnuplot-nox).\n\n"
        "If the runs are a grid (norma compare --grid --score-grid), the page begins with the score "
        "against the numeric settings in which runs of the same norm differ: a curve for one setting, a "
        "heat map for two, parallel coordinates for three or more; each point is the mean over its seeds. "
        "For one comparison with --factorial, it shows the main effects and interactions. "
        "For runs that differ in norm.at, it shows the loss in score and TID against the number of layers "
        "with "
        "batch statistics.",
    .section = "report",
    .rules = report_rules,
    .rows = report_options,
    .config_bytes = sizeof(report_config),
    .run = run,
};
