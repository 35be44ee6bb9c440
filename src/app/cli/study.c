/* norma study: which normalization is best for a corpus, within a time budget. */
#include "norma/study.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/model_command.h"
#include "cli/study_data.h"
#include "api/study_options.h"
#include "report/report.h"

typedef struct input_config { /* section [input] */
    const char *recipe, *set;
    bool dry_run, report;
} input_config;

#define ROW(field, initial, min, max, help) NM_OPTION(input_config, field, initial, min, max, help)
/* clang-format off */
static const nm_option input_rows[] = {
    ROW(recipe, "", 0, 0, "Recipe of all runs; empty: translate, lm, classify or tag, by the data."),
    ROW(set, "", 0, 0,
        "Options of all runs instead of the recipe's, KEY=VALUE separated by semicolons: "
        "\"model.norm_position=post; train.max_tokens=512\"."),
    ROW(dry_run, "false", 0, 1, "Measure the speed, print the plan and end."),
    ROW(report, "true", 0, 1, "Write report.html with figures of the confirmed runs; needs gnuplot."),
    {0}};
/* clang-format on */

static void study_options(nm_options *options)
{
    nm_study_options_add(options);
    nm_options_add(options, "input", input_rows, NULL, sizeof(input_config));
}

static nm_study *volatile opened; /* for the signal handler */
static volatile sig_atomic_t stop_requested;

/* A second SIGINT or SIGTERM ends the process. */
static void on_signal(int number)
{
    if (stop_requested && (number == SIGINT || number == SIGTERM)) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_requested = 1;
    nm_study_stop(opened);
}

static void on_run(void *user, const nm_planned_run *run)
{
    (void)user;
    if (!strcmp(run->state, "running"))
        return;
    fprintf(stderr, "[%6.0f s] %s: %s, seed %lld", run->at, run->phase, run->variant, (long long)run->seed);
    if (isfinite(run->lr))
        fprintf(stderr, ", lr %g", run->lr);
    fprintf(stderr, ": %s",
            !strcmp(run->state, "finished") ? ""
            : isfinite(run->took)           ? "failed after "
                                            : run->state);
    if (isfinite(run->took))
        fprintf(stderr, "%.1f s", run->took);
    if (isfinite(run->seconds))
        fprintf(stderr, " (planned %.1f)", run->seconds);
    fprintf(stderr, "%s%s\n", run->note && *run->note ? ": " : "", run->note ? run->note : "");
}

static void on_decision(void *user, const nm_study_decision *decision)
{
    (void)user;
    if (strcmp(decision->phase, "answer"))
        fprintf(stderr, "[%6.0f s] %s\n", decision->at, decision->text);
}

/* study-NAME of the last part of the path, without its ending; of the folder's name for "." and "..". */
static char *default_folder(const char *input)
{
    NM_AUTO_FREE char *real = input[strspn(input, "./")] ? NULL : realpath(input, NULL);
    input = real ? real : input;
    size_t length = strlen(input);
    while (length > 1 && input[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin && input[begin - 1] != '/')
        begin--;
    size_t dot = begin + 1;
    while (dot < length && input[dot] != '.')
        dot++;
    return nm_format("study-%.*s", (int)(dot - begin), input + begin);
}

typedef struct settings {
    const char **list; /* alternating; ends with NULL */
    size_t n, capacity;
} settings;

static void add(settings *all, const char *key, const char *value)
{
    NM_RESERVE(all->list, all->n + 3, all->capacity);
    all->list[all->n++] = key;
    all->list[all->n++] = value;
    all->list[all->n] = NULL;
}

/* "key=value; key=value"; the text is modified. */
static nm_status add_set(settings *all, char *text, nm_error *err)
{
    for (char *item; (item = strsep(&text, ";")) != NULL;) {
        item = nm_trim(item);
        char *equals = strchr(item, '=');
        if (!*item)
            continue;
        if (!equals || equals == item || !memchr(item, '.', (size_t)(equals - item)))
            return nm_fail(err, NM_USAGE, "input.set: %.100s: expected SECTION.KEY=VALUE", item);
        *equals = 0;
        add(all, nm_trim(item), nm_trim(equals + 1));
    }
    return NM_OK;
}

/* The confirmed runs, or those of the selection if none is. */
static void write_report(const nm_study *study)
{
    static const char *const phases[] = {"confirm", "select"};
    NM_AUTO_FREE char *page = nm_path_join(nm_study_folder(study), "report.html");
    char **folders = NULL;
    size_t n = 0, capacity = 0;
    nm_planned_run run;
    for (int k = 0; k < 2 && !n; k++)
        for (size_t i = 0; nm_study_get_run(study, i, &run); i++)
            if (!strcmp(run.phase, phases[k]) && !strcmp(run.state, "finished")) {
                NM_APPEND(folders, n, capacity, nm_path_join(nm_study_folder(study), run.folder));
            }
    NM_AUTO(nm_report_close) nm_report report = {0};
    nm_error err;
    nm_status status = n ? nm_report_open(&report, (const char *const *)folders, n, "", &err) : NM_OK;
    if (status == NM_OK && n)
        status = nm_report_page(&report, &(nm_report_config){.samples = true}, page, &err);
    if (status != NM_OK)
        fprintf(stderr, "norma: warning: no report.html: %s\n", err.text);
    nm_free_list(folders, n);
}

static nm_status conduct(nm_study *study, const input_config *config, nm_error *err)
{
    nm_study_answer answer;
    opened = study;
    if (stop_requested)
        nm_study_stop(study);
    NM_TRY(nm_study_plan(study, err));
    fputs(nm_study_text(study), stdout);
    fflush(stdout);
    if (config->dry_run)
        return NM_OK;
    putchar('\n');
    fflush(stdout);
    NM_TRY(nm_study_run(study, err));
    opened = NULL;
    fputs(nm_study_text(study), stdout);
    if (config->report)
        write_report(study);
    NM_TRY(nm_file_close(stdout, "standard output", err));
    return nm_study_get_answer(study, &answer) && !answer.best
               ? nm_fail(err, NM_DIVERGED, "no variant finished its training")
               : NM_OK;
}

static int study_start(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    const nm_study_options *options = nm_options_find(cli->options, "study");
    const input_config *config = nm_options_find(cli->options, "input");
    const nm_study_events events = {.run = on_run, .decided = on_decision};
    study_data data = {0};
    settings all = {0};
    nm_study *study = NULL;
    NM_AUTO_FREE char *recipe = NULL, *folder = NULL, *data_folder = NULL, *set = nm_duplicate(config->set),
                      *program = realpath("/proc/self/exe", NULL);
    int code = 0, created = 0;
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 2, &err);
    if (status == NM_OK) {
        folder = *options->folder ? nm_duplicate(options->folder) : default_folder(argv[0]);
        data_folder = nm_path_join(folder, "data");
        created = !nm_file_may_exist(folder);
        status = nm_folder_create(folder, &err);
    }
    NM_THEN(status, study_data_open(&data, argv, argc, data_folder, &code, &err));
    if (status == NM_OK && !code) {
        fprintf(stderr, "norma: %s\n", data.what);
        status = nm_cli_find_recipe(*config->recipe ? config->recipe : data.recipe, &recipe, &err);
    }
    if (status == NM_OK && !code) {
        NM_AUTO_FREE const char **given = nm_cli_settings(cli, "study.folder,input");
        for (int i = 0; i < data.n; i++)
            add(&all, data.keys[i], data.values[i]);
        for (size_t i = 0; given[i]; i += 2)
            add(&all, given[i], given[i + 1]);
        add(&all, "study.folder", folder);
        status = add_set(&all, set, &err);
        nm_cli_handle_stops(on_signal);
        NM_THEN(status, nm_study_open(&study, program, recipe, all.list, &events, &err));
    }
    if (status == NM_OK && !code)
        status = conduct(study, config, &err);
    nm_study_close(study);
    if (created && (status != NM_OK || code) && (!rmdir(data_folder) || errno == ENOENT))
        rmdir(folder); /* created for data that is refused; fails if there is more */
    study_data_release(&data);
    free(all.list);
    return code ? code : status == NM_OK ? 0 : nm_cli_fail(&err);
}

static const char *const outputs[] = {"study.folder", NULL};

const nm_command nm_command_study = {
    .name = "study",
    .summary = "find the best normalization for your data within a time budget",
    .usage = "DATA [TARGET] [--budget 2h] [--norms a,b,c] [--delta N] [--dry-run] [--folder FOLDER]",
    .details =
        "DATA is a text, a table of labels and texts, columns with tags, two parallel texts (DATA and "
        "TARGET), a folder with train.X, valid.X and test.X (two endings X for parallel text), or a data "
        "folder of norma prepare. The task is recognized. Without validation and test sets, one twentieth "
        "of the data each is held out.\n\n"
        "The study measures the speed of each variant, prints a plan with the time of each part, and ends "
        "there with --dry-run. It selects a learning rate for each variant, trains complete runs of all "
        "variants with common seeds and eliminates those that are not the best (Kim and Nelson 2001), and "
        "spends the rest of the budget, at least a third, on fresh seeds of the finalists. The answer "
        "names the best variant, its lead, what is equivalent within --delta, and what would change the "
        "answer.\n\n"
        "FOLDER has answer.md, answer.json, report.html, winner.ini (the recipe of the best variant), "
        "winner (its trained model, such as norma translate FOLDER/winner TEXT) and queue.jsonl (the plan "
        "and all results). After an interruption or a kill, the same command continues. docs/study.md "
        "describes the procedure and what it guarantees.",
    .section = "study,input,run",
    .takes_options = "study.slurm",
    .options = study_options,
    .saves = true,
    .outputs = outputs,
    .run = study_start,
};
