#include "cli/watch_text.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sort.h"

enum { DOTS_X = 2, DOTS_Y = 4, MOST_COLUMNS = 400, LABEL = 10, POLL_MS = 500 };

static volatile sig_atomic_t interrupted, resized;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else
        interrupted = 1;
}

typedef struct canvas { /* of braille characters, each with 2 x 4 dots and the color of its last run */
    int columns, rows;
    unsigned char *dots, *colors; /* [rows * columns] */
} canvas;

static void set_dot(canvas *c, int x, int y, int color)
{
    static const unsigned char bits[DOTS_Y][DOTS_X] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= c->columns * DOTS_X || y >= c->rows * DOTS_Y)
        return;
    int at = y / DOTS_Y * c->columns + x / DOTS_X;
    c->dots[at] |= bits[y % DOTS_Y][x % DOTS_X];
    c->colors[at] = (unsigned char)color;
}

static int color_of(size_t run)
{
    static const int colors[] = {34, 31, 32, 35, 36, 33};
    return colors[run % (sizeof colors / sizeof *colors)];
}

/* A column of dots from the lowest to the highest value of its updates, connected with the column before. */
static void draw_series(canvas *c, const nm_series *s, const double frame[4], int color)
{
    int width = c->columns * DOTS_X, height = c->rows * DOTS_Y, last_x = -1, last_y = 0;
    for (size_t i = 0; i < s->n; i++) {
        double fx = (s->update[i] - frame[0]) / (frame[1] - frame[0]),
               fy = (s->value[i] - frame[2]) / (frame[3] - frame[2]);
        if (!(fx >= 0 && fx <= 1) || !isfinite(fy))
            continue;
        fy = fmin(fmax(fy, 0), 1);
        int x = (int)lround(fx * (width - 1)), y = (int)lround((1 - fy) * (height - 1)),
            steps = last_x < 0                          ? 1
                    : abs(x - last_x) > abs(y - last_y) ? abs(x - last_x)
                                                        : abs(y - last_y);
        for (int k = 1; k <= (steps ? steps : 1); k++)
            set_dot(c, last_x < 0 ? x : last_x + (x - last_x) * k / (steps ? steps : 1),
                    last_x < 0 ? y : last_y + (y - last_y) * k / (steps ? steps : 1), color);
        last_x = x;
        last_y = y;
    }
}

/* First and last update; lowest value, and one below which nine tenths of the values are. */
static bool find_frame(const nm_report *report, const char *tag, double frame[4])
{
    NM_AUTO_FREE double *values = NULL;
    size_t n = 0, capacity = 0;
    frame[0] = INFINITY;
    frame[1] = -INFINITY;
    for (size_t r = 0; r < report->n; r++) {
        const nm_series *s = nm_report_run_find(&report->runs[r], tag);
        for (size_t i = 0; s && i < s->n; i++) {
            NM_APPEND(values, n, capacity, s->value[i]);
            frame[0] = fmin(frame[0], s->update[i]);
            frame[1] = fmax(frame[1], s->update[i]);
        }
    }
    bool found = n > 1 && frame[1] > frame[0];
    if (found) {
        nm_sort_doubles(values, n);
        frame[2] = values[0];
        frame[3] =
            n >= 20 ? fmin(values[n - 1], values[0] + 2 * (values[n * 9 / 10] - values[0])) : values[n - 1];
        frame[3] = frame[3] > frame[2] ? frame[3] : frame[2] + fmax(fabs(frame[2]), 1e-6) * 0.05;
    }
    return found;
}

static void write_canvas(const canvas *c, const double frame[4], bool colors, FILE *out)
{
    char text[NM_NUMBER_BYTES];
    for (int row = 0; row < c->rows; row++) {
        const char *label = row == 0             ? nm_number_show(text, frame[3])
                            : row == c->rows - 1 ? nm_number_show(text, frame[2])
                                                 : "";
        int color = 0;
        fprintf(out, "%*s ", LABEL - 1, label);
        for (int x = 0; x < c->columns; x++) {
            int at = row * c->columns + x, dots = c->dots[at];
            if (colors && dots && c->colors[at] != color)
                fprintf(out, "\033[%dm", color = c->colors[at]);
            if (dots) /* U+2800 + dots */
                fprintf(out, "\xe2%c%c", 0xa0 | dots >> 6, 0x80 | (dots & 0x3f));
            else
                putc(' ', out);
        }
        fputs(color ? "\033[0m\n" : "\n", out);
    }
    fprintf(out, "%*supdate %s", LABEL, "", nm_count_show(text, frame[0]));
    fprintf(out, " to %s\n", nm_count_show(text, frame[1]));
}

static void write_curves(const nm_report *report, int columns, int rows, bool colors, FILE *out)
{
    const char *tags[] = {report->score_tag, "valid/loss", "train/loss"}, *tag = NULL;
    double frame[4];
    for (size_t k = 0; k < 3 && !tag; k++)
        tag = tags[k] && find_frame(report, tags[k], frame) ? tags[k] : NULL;
    if (!tag || columns < LABEL + 10 || rows < 3)
        return;
    canvas c = {.columns = columns - LABEL, .rows = rows};
    c.dots = nm_allocate((size_t)(c.columns * c.rows) + 1);
    c.colors = nm_allocate((size_t)(c.columns * c.rows) + 1);
    for (size_t r = 0; r < report->n; r++) {
        const nm_series *s = nm_report_run_find(&report->runs[r], tag);
        if (s)
            draw_series(&c, s, frame, color_of(r));
    }
    fprintf(out, "%s\n", tag);
    write_canvas(&c, frame, colors, out);
    NM_FREE(c.dots, c.colors);
}

static void write_runs(const nm_report *report, int most, bool colors, FILE *out)
{
    char text[5][NM_NUMBER_BYTES];
    fprintf(out, "%-28s %17s %9s %10s %10s\n", "run", "update", "left", "train loss",
            report->score_name ? report->score_name : "score");
    for (size_t r = 0; r < report->n; r++) {
        const nm_report_run *run = &report->runs[r];
        if ((int)r >= most) {
            fprintf(out, "... and %zu more\n", report->n - r);
            return;
        }
        NM_AUTO_FREE char *progress = nm_format("%s/%s", nm_count_show(text[0], nm_report_run_updates(run)),
                                                nm_count_show(text[1], nm_report_run_planned(run)));
        if (colors)
            fprintf(out, "\033[%dm", color_of(r));
        fprintf(out, "%-28.28s%s %17s %9s %10s %10s\n", run->name, colors ? "\033[0m" : "", progress,
                nm_report_run_is_unfinished(run) ? nm_duration_show(text[2], nm_report_run_left(run))
                                                 : "ended",
                nm_number_show(text[3], nm_report_run_last(run, "train/loss")),
                nm_number_show(text[4], nm_report_valid_score(report, r)));
    }
}

static void write_queue(const char *folder, int most, FILE *out)
{
    nm_watch_queue queue = nm_watch_queue_read(folder);
    size_t i, ended, all, n = json_array_size(queue.decisions);
    json_t *line;
    char text[NM_NUMBER_BYTES];
    if (queue.n_runs) {
        fputs("\nqueue: ", out);
        nm_watch_queue_write_left(&queue, out);
        putc('\n', out);
    }
    json_array_foreach(queue.parts, i, line)
    {
        const char *phase = json_string_value(json_object_get(line, "phase"));
        nm_watch_queue_count(&queue, phase, &ended, &all);
        size_t least = (size_t)json_integer_value(json_object_get(line, "runs"));
        all = all > least ? all : least; /* later parts have no runs yet */
        fprintf(out, "  %-8s %4zu of %4zu runs, planned %s\n", phase ? phase : "", ended, all,
                nm_duration_show(text, json_number_value(json_object_get(line, "seconds"))));
    }
    json_array_foreach(queue.decisions, i, line) if (i + (size_t)most >= n)
    {
        const char *what = json_string_value(json_object_get(line, "text"));
        fprintf(out, "  after %s: %s\n",
                nm_duration_show(text, json_number_value(json_object_get(line, "at"))), what ? what : "");
    }
    nm_watch_queue_release(&queue);
}

/* The screen as text; heap. Lines are cut by the caller. */
static char *make_screen(const nm_watch_runs *runs, int columns, int rows, bool colors)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = nm_text_stream_open(&text, &bytes);
    int table = rows / 3 > 4 ? rows / 3 : 4;
    if (!nm_watch_runs_write_answer((void *)runs, out))
        nm_report_answer(&runs->report, out);
    fputs("\n\n", out);
    write_curves(&runs->report, columns, rows / 3 > 16 ? 16 : rows / 3, colors, out);
    putc('\n', out);
    write_runs(&runs->report, colors ? table : 1000, colors, out);
    for (size_t i = 0; i < runs->n_given; i++)
        write_queue(runs->given[i], colors ? 4 : 1000, out);
    nm_text_stream_close(out);
    return text;
}

/* Wraps lines at the width, at most `rows` of them; escapes have no width. Other control characters are
 * replaced. */
static void write_screen(const char *screen, int columns, int rows)
{
    int x = 0, y = 1;
    fputs("\033[H", stdout);
    for (const char *at = screen; *at && y < rows; at++) {
        bool escape = *at == '\033' && at[1] == '[';
        if (escape) {
            size_t length = strcspn(at, "m");
            fwrite(at, 1, length + 1, stdout);
            at += length;
        } else if (*at == '\n' || (x >= columns && ((unsigned char)*at & 0xc0) != 0x80)) {
            fputs("\033[K\r\n", stdout);
            x = 0;
            y++;
            at -= *at != '\n';
        } else {
            x += ((unsigned char)*at & 0xc0) != 0x80;
            putc((unsigned char)*at < ' ' ? '?' : *at, stdout);
        }
    }
    fputs("\033[0m\033[J", stdout);
    fflush(stdout);
}

static void draw(const nm_watch_runs *runs)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    int columns = size.ws_col ? size.ws_col : 80, rows = size.ws_row ? size.ws_row : 24;
    NM_AUTO_FREE char *screen =
        make_screen(runs, columns < MOST_COLUMNS ? columns : MOST_COLUMNS, rows, true);
    write_screen(screen, columns, rows);
}

nm_status nm_watch_text(nm_watch_runs *runs, nm_error *err)
{
    bool changed, quit = false;
    NM_TRY(nm_watch_runs_poll(runs, &changed, err));
    if (!isatty(STDOUT_FILENO)) {
        NM_AUTO_FREE char *screen = make_screen(runs, 80, 48, false);
        fputs(screen, stdout);
        return NM_OK;
    }
    struct termios before, raw;
    bool keys = !tcgetattr(STDIN_FILENO, &before);
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
    if (keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* a separate screen, without cursor */
    changed = true;
    nm_status status = NM_OK;
    while (!interrupted && !quit) {
        if (changed || resized) {
            resized = 0;
            draw(runs);
        }
        struct pollfd input = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
        char key = 0;
        if (poll(&input, 1, POLL_MS) > 0)
            quit = read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q';
        nm_error ignored; /* a file that is being replaced is read in the next round */
        if (nm_watch_runs_poll(runs, &changed, &ignored) != NM_OK)
            changed = false;
    }
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (interrupted)
        status = nm_fail(err, NM_INTERRUPTED, "interrupted");
    return status;
}
