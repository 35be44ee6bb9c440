#include "cli/compare_progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { NAME_WIDTH = 32, TERMINAL_SECONDS_TENTHS = 5, FILE_SECONDS = 20 };

compare_progress compare_progress_begin(void)
{
    compare_progress progress = {.terminal = isatty(STDERR_FILENO)};
    progress.last = progress.terminal ? 0 : nm_clock();
    return progress;
}

static int name_width(const nm_run_queue *queue)
{
    int width = 4;
    for (size_t i = 0; i < queue->n; i++) {
        int length = (int)strlen(queue->jobs[i].variant->name);
        width = length > width ? length : width;
    }
    return width < NAME_WIDTH ? width : NAME_WIDTH;
}

static void describe_job(const nm_run_job *job, char *text, size_t bytes)
{
    if (job->state == NM_RUN_WAITING)
        snprintf(text, bytes, "waiting%s%.200s", *job->last_line ? ": " : "", job->last_line);
    else if (job->state == NM_RUN_RUNNING)
        nm_last_line(job->log_path, text, bytes);
    else if (job->result.measured)
        snprintf(text, bytes, "finished and scored earlier");
    else if (job->result.exit_code)
        snprintf(text, bytes, "failed: %.240s", job->result.failure);
    else
        snprintf(text, bytes, "%s", job->last_line);
}

/* Cut to the terminal's width: a wrapped line would shift those below it. */
static void draw_job(const nm_run_job *job, int width, int columns)
{
    char text[256], line[512];
    describe_job(job, text, sizeof text);
    snprintf(line, sizeof line, "%-*.*s %4lld  %s", width, width, job->variant->name,
             (long long)job->result.seed, text);
    fprintf(stderr, "\r\033[K%.*s\n", columns, line);
}

static void draw_table(compare_progress *progress, const nm_run_queue *queue)
{
    struct winsize size = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    int rows = size.ws_row ? size.ws_row : 24, columns = size.ws_col ? size.ws_col - 1 : 79;
    bool all = queue->n + 2 <= (size_t)rows;
    size_t counts[3] = {0};
    for (size_t i = 0; i < queue->n; i++)
        counts[queue->jobs[i].state]++;
    if (progress->drawn)
        fprintf(stderr, "\033[%dA", progress->drawn);
    fprintf(stderr, "\r\033[K%zu runs: %zu finished, %zu running, %zu waiting; %lld in parallel\n", queue->n,
            counts[NM_RUN_FINISHED], counts[NM_RUN_RUNNING], counts[NM_RUN_WAITING],
            (long long)queue->share.jobs);
    progress->drawn = 1;
    int width = name_width(queue);
    for (size_t i = 0; i < queue->n && progress->drawn + 1 < rows; i++)
        if (all || queue->jobs[i].state == NM_RUN_RUNNING) {
            draw_job(&queue->jobs[i], width, columns);
            progress->drawn++;
        }
    fputs("\033[J", stderr);
}

void compare_progress_tick(void *user, const nm_run_queue *queue)
{
    compare_progress *progress = user;
    double time = nm_clock(), pause = progress->terminal ? TERMINAL_SECONDS_TENTHS / 10.0 : FILE_SECONDS;
    bool all_finished = true;
    for (size_t i = 0; i < queue->n; i++)
        all_finished = all_finished && queue->jobs[i].state == NM_RUN_FINISHED;
    if (time - progress->last < pause && !(all_finished && progress->terminal))
        return;
    progress->last = time;
    if (progress->terminal) {
        draw_table(progress, queue);
        return;
    }
    char line[256];
    size_t waiting = 0;
    const char *reason = "";
    for (size_t i = 0; i < queue->n; i++) {
        const nm_run_job *job = &queue->jobs[i];
        waiting += job->state == NM_RUN_WAITING;
        if (job->state == NM_RUN_WAITING && *job->last_line)
            reason = job->last_line;
        if (job->state != NM_RUN_RUNNING)
            continue;
        nm_last_line(job->log_path, line, sizeof line);
        fprintf(stderr, "%s, seed %lld: %s\n", job->variant->name, (long long)job->result.seed, line);
    }
    if (*reason)
        fprintf(stderr, "%zu runs waiting: %s\n", waiting, reason);
}

void compare_progress_message(void *user, const char *text)
{
    compare_progress *progress = user;
    progress->drawn = 0; /* the table is drawn again below the message */
    fprintf(stderr, "norma: %s\n", text);
}

void compare_progress_finished(void *user, const nm_run_job *job)
{
    const compare_progress *progress = user;
    if (!progress->terminal)
        fprintf(stderr, "%s, seed %lld: %s\n", job->variant->name, (long long)job->result.seed,
                job->result.exit_code ? job->result.failure : job->last_line);
}
