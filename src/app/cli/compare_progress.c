#include "cli/compare_progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8_cut.h"

enum { NAME_WIDTH = 32, TERMINAL_SECONDS_TENTHS = 5, FILE_SECONDS = 20 };

compare_progress compare_progress_begin(void)
{
    compare_progress progress = {.terminal = isatty(STDERR_FILENO)};
    progress.last = progress.terminal ? 0 : nm_clock();
    return progress;
}

/* The number of runs in each state (nm_run_state), and the width of the longest name. */
typedef struct overview {
    size_t counts[3];
    int width;
} overview;

static overview survey(nm_comparison *comparison)
{
    overview result = {.width = 4};
    nm_compared_run run;
    for (size_t i = 0; nm_comparison_get_run(comparison, i, &run); i++) {
        int length = (int)strlen(run.variant);
        result.width = length > result.width ? length : result.width;
        result.counts[run.state]++;
    }
    result.width = result.width < NAME_WIDTH ? result.width : NAME_WIDTH;
    return result;
}

static void describe_run(const nm_compared_run *run, char *text, size_t bytes)
{
    if (run->state == NM_RUN_WAITING)
        snprintf(text, bytes, "waiting%s%.200s", *run->line ? ": " : "", run->line);
    else if (run->state == NM_RUN_FINISHED && run->scored)
        snprintf(text, bytes, "%.255s", *run->line ? run->line : "finished and scored earlier");
    else if (run->failure)
        snprintf(text, bytes, "failed: %.240s", run->failure);
    else
        snprintf(text, bytes, "%.255s", run->line);
}

/* Truncates the line to the width of the terminal: a wrapped line would shift the lines below it. */
static void draw_run(const nm_compared_run *run, int width, int columns)
{
    char text[256], line[512];
    describe_run(run, text, sizeof text);
    snprintf(line, sizeof line, "%-*.*s %4lld  %s", width, width, run->variant, (long long)run->seed, text);
    if ((size_t)columns < sizeof line)
        line[columns] = 0;
    nm_utf8_trim(line);
    fprintf(stderr, "\r\033[K%s\n", line);
}

static void draw_table(compare_progress *progress, nm_comparison *comparison, const overview *runs)
{
    struct winsize size = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    int rows = size.ws_row ? size.ws_row : 24, columns = size.ws_col ? size.ws_col - 1 : 79;
    bool all = nm_comparison_n_runs(comparison) + 2 <= (size_t)rows;
    if (progress->drawn)
        fprintf(stderr, "\033[%dA", progress->drawn);
    fprintf(stderr, "\r\033[K%zu runs: %zu finished, %zu running, %zu waiting; %lld in parallel\n",
            nm_comparison_n_runs(comparison), runs->counts[NM_RUN_FINISHED], runs->counts[NM_RUN_RUNNING],
            runs->counts[NM_RUN_WAITING], (long long)nm_comparison_parallel(comparison));
    progress->drawn = 1;
    nm_compared_run run;
    for (size_t i = 0; nm_comparison_get_run(comparison, i, &run) && progress->drawn + 1 < rows; i++)
        if (all || run.state == NM_RUN_RUNNING) {
            draw_run(&run, runs->width, columns);
            progress->drawn++;
        }
    fputs("\033[J", stderr);
}

static void print_lines(nm_comparison *comparison)
{
    size_t waiting = 0;
    char reason[256] = "";
    nm_compared_run run;
    for (size_t i = 0; nm_comparison_get_run(comparison, i, &run); i++) {
        waiting += run.state == NM_RUN_WAITING;
        if (run.state == NM_RUN_WAITING && *run.line)
            snprintf(reason, sizeof reason, "%s", run.line);
        if (run.state == NM_RUN_RUNNING)
            fprintf(stderr, "%s, seed %lld: %s\n", run.variant, (long long)run.seed, run.line);
    }
    if (*reason)
        fprintf(stderr, "%zu runs waiting: %s\n", waiting, reason);
}

void compare_progress_tick(void *user, nm_comparison *comparison)
{
    compare_progress *progress = user;
    double time = nm_clock(), pause = progress->terminal ? TERMINAL_SECONDS_TENTHS / 10.0 : FILE_SECONDS;
    bool due = time - progress->last >= pause;
    if (progress->trained && progress->n_scored++)
        fprintf(stderr, "norma: scoring run %zu of %zu\n", progress->n_scored, progress->n_unscored);
    if (progress->trained || !(due || progress->terminal))
        return;
    overview runs = survey(comparison);
    bool all_finished = runs.counts[NM_RUN_FINISHED] == nm_comparison_n_runs(comparison);
    if (!due && !all_finished)
        return;
    progress->last = time;
    if (progress->terminal)
        draw_table(progress, comparison, &runs);
    else
        print_lines(comparison);
}

void compare_progress_message(void *user, const char *text)
{
    compare_progress *progress = user;
    progress->drawn = 0; /* the table is drawn again below the message */
    fprintf(stderr, "norma: %s\n", text);
}

void compare_progress_finished(void *user, const nm_compared_run *run)
{
    const compare_progress *progress = user;
    if (!progress->terminal)
        fprintf(stderr, "%s, seed %lld: %s\n", run->variant, (long long)run->seed,
                run->failure ? run->failure : run->line);
}

void compare_progress_scored(void *user, const nm_compared_run *run)
{
    const compare_progress *progress = user;
    if (!progress->terminal || progress->trained)
        fprintf(stderr, "%s, seed %lld: %s\n", run->variant, (long long)run->seed, run->line);
}
