/* The table of runs under way: see compare_progress.h. */
#include "cli/compare_progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/compare_queue.h"

enum { NAME_WIDTH = 32, TERMINAL_SECONDS_TENTHS = 5, FILE_SECONDS = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

compare_progress compare_progress_begin(void)
{
    compare_progress progress = {.terminal = isatty(STDERR_FILENO)};
    progress.last = progress.terminal ? 0 : now();
    return progress;
}

void compare_last_line(const char *path, char *line, size_t bytes)
{
    char tail[2048] = "";
    FILE *file = fopen(path, "rb");
    if (file) {
        if (fseek(file, -(long)sizeof tail + 1, SEEK_END))
            rewind(file);
        tail[fread(tail, 1, sizeof tail - 1, file)] = 0;
        fclose(file);
    }
    size_t end = strlen(tail);
    while (end && tail[end - 1] == '\n')
        tail[--end] = 0;
    const char *start = strrchr(tail, '\n');
    snprintf(line, bytes, "%s", start ? start + 1 : tail);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
}

static int name_width(const compare_queue *queue)
{
    int width = 4;
    for (size_t i = 0; i < queue->n; i++) {
        int own = (int)strlen(queue->jobs[i].variant->name);
        width = own > width ? own : width;
    }
    return width < NAME_WIDTH ? width : NAME_WIDTH;
}

static void job_text(const compare_job *job, char *text, size_t bytes)
{
    if (job->state == COMPARE_WAITING)
        snprintf(text, bytes, "waits");
    else if (job->state == COMPARE_RUNNING)
        compare_last_line(job->log_path, text, bytes);
    else if (job->row.measured)
        snprintf(text, bytes, "done and scored before");
    else if (job->row.exit_code)
        snprintf(text, bytes, "failed: %.240s", job->row.trouble);
    else
        snprintf(text, bytes, "%s", job->said);
}

/* A line longer than the terminal is wide would move those below it. */
static void draw_job(const compare_job *job, int width, int columns)
{
    char text[256], line[512];
    job_text(job, text, sizeof text);
    snprintf(line, sizeof line, "%-*.*s %4lld  %s", width, width, job->variant->name,
             (long long)job->row.seed, text);
    fprintf(stderr, "\r\033[K%.*s\n", columns, line);
}

static void draw(compare_progress *progress, const compare_queue *queue)
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
    fprintf(stderr, "\r\033[Kof %zu runs %zu are done, %zu running, %zu waiting; %lld at a time\n", queue->n,
            counts[COMPARE_ENDED], counts[COMPARE_RUNNING], counts[COMPARE_WAITING],
            (long long)queue->share.at_once);
    progress->drawn = 1;
    int width = name_width(queue);
    for (size_t i = 0; i < queue->n && progress->drawn + 1 < rows; i++)
        if (all || queue->jobs[i].state == COMPARE_RUNNING) {
            draw_job(&queue->jobs[i], width, columns);
            progress->drawn++;
        }
    fputs("\033[J", stderr);
}

void compare_progress_show(compare_progress *progress, const compare_queue *queue)
{
    double time = now(), pause = progress->terminal ? TERMINAL_SECONDS_TENTHS / 10.0 : FILE_SECONDS;
    bool over = true;
    for (size_t i = 0; i < queue->n; i++)
        over = over && queue->jobs[i].state == COMPARE_ENDED;
    if (time - progress->last < pause && !(over && progress->terminal))
        return;
    progress->last = time;
    if (progress->terminal) {
        draw(progress, queue);
        return;
    }
    char line[256];
    for (size_t i = 0; i < queue->n; i++) {
        const compare_job *job = &queue->jobs[i];
        if (job->state != COMPARE_RUNNING)
            continue;
        compare_last_line(job->log_path, line, sizeof line);
        fprintf(stderr, "%s, seed %lld: %s\n", job->variant->name, (long long)job->row.seed, line);
    }
}
