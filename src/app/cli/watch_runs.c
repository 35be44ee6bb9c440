#include "cli/watch_runs.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/html.h"
#include "report/sections.h"

static bool has_log(const char *folder)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "log.jsonl");
    return nm_file_may_exist(path);
}

/* Adds a run folder; takes ownership of the name. */
static void add_run(nm_watch_runs *runs, char *folder)
{
    NM_APPEND(runs->folders, runs->n, runs->capacity, folder);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

void nm_watch_runs_find(nm_watch_runs *runs, const char *given)
{
    struct dirent **entries;
    if (!*given || has_log(given)) {
        add_run(runs, nm_duplicate(given));
        return;
    }
    int n = scandir(given, &entries, is_visible, alphasort);
    for (int i = 0; i < n; i++) {
        char *folder = nm_path_join(given, entries[i]->d_name);
        struct stat info;
        bool is_run = !lstat(folder, &info) && S_ISDIR(info.st_mode) && has_log(folder);
        if (is_run)
            add_run(runs, folder);
        else
            free(folder);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void release_folders(nm_watch_runs *runs)
{
    for (size_t i = 0; i < runs->n; i++)
        free(runs->folders[i]);
    runs->n = 0;
}

/* Changes when a file of this name is written or replaced. */
static void mix_file(uint64_t *stamp, const char *folder, const char *name)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, name);
    struct stat info;
    if (!stat(path, &info))
        *stamp = *stamp * 1000003 + (uint64_t)info.st_size * 31 + (uint64_t)info.st_ino +
                 (uint64_t)info.st_mtim.tv_sec * 1000000007 + (uint64_t)info.st_mtim.tv_nsec;
}

static uint64_t stamp_of(const nm_watch_runs *runs)
{
    static const char *const names[] = {"config.ini", "test.json", "inspection.json"};
    uint64_t stamp = runs->n;
    for (size_t i = 0; i < runs->n; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            mix_file(&stamp, runs->folders[i], names[k]);
    for (size_t i = 0; i < runs->n_given; i++)
        mix_file(&stamp, runs->given[i], "queue.jsonl");
    return stamp;
}

static nm_status open_all(nm_watch_runs *runs, nm_error *err)
{
    if (runs->is_open)
        nm_report_close(&runs->report);
    runs->is_open = true;
    return nm_report_open(&runs->report, (const char *const *)runs->folders, runs->n, "", err);
}

nm_status nm_watch_runs_poll(nm_watch_runs *runs, bool *changed, nm_error *err)
{
    *changed = false;
    release_folders(runs);
    for (size_t i = 0; i < runs->n_given; i++)
        nm_watch_runs_find(runs, runs->given[i]);
    uint64_t stamp = stamp_of(runs);
    bool again = !runs->is_open || stamp != runs->stamp || runs->n != runs->report.n;
    for (size_t i = 0; i < runs->n && !again; i++) {
        bool grown = false;
        again = strcmp(runs->folders[i], runs->report.runs[i].folder) ||
                nm_report_run_follow(&runs->report.runs[i], &grown, err) != NM_OK;
        *changed |= grown;
    }
    if (!again) {
        if (*changed)
            nm_report_refresh(&runs->report);
        return NM_OK;
    }
    runs->stamp = stamp;
    *changed = true;
    return open_all(runs, err);
}

void nm_watch_runs_release(nm_watch_runs *runs)
{
    if (runs->is_open)
        nm_report_close(&runs->report);
    release_folders(runs);
    free(runs->folders);
    *runs = (nm_watch_runs){0};
}

/* Of a study: the rest of its plan, whose later runs are not in the queue yet. NaN: there is no such plan. */
static double rest_of_plan(const nm_watch_queue *queue)
{
    size_t i;
    const char *key;
    json_t *line;
    double planned = 0, at = 0;
    bool selects = false;
    json_array_foreach(queue->parts, i, line)
    {
        const char *phase = json_string_value(json_object_get(line, "phase"));
        selects = selects || (phase && !strcmp(phase, "select"));
        planned += json_number_value(json_object_get(line, "seconds"));
    }
    json_object_foreach(queue->runs, key, line) at = fmax(at, json_number_value(json_object_get(line, "at")));
    return selects ? fmax(0, planned - at) : NAN;
}

static bool has_ended(const json_t *run)
{
    const char *state = json_string_value(json_object_get(run, "state"));
    return !state || (strcmp(state, "planned") && strcmp(state, "running"));
}

static void add_line(nm_watch_queue *queue, json_t *object)
{
    static const char *const keys[] = {"phase", "variant", "lr", "seed", "updates"};
    const char *type = json_string_value(json_object_get(object, "type"));
    json_auto_t *name = json_array();
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        json_t *value = json_object_get(object, keys[k]);
        json_array_append(name, value ? value : json_null());
    }
    NM_AUTO_FREE char *key = json_dumps(name, 0);
    if (type && key && !strcmp(type, "run"))
        json_object_set(queue->runs, key, object);
    else if (type && (!strcmp(type, "part") || !strcmp(type, "decision")))
        json_array_append(*type == 'p' ? queue->parts : queue->decisions, object);
}

nm_watch_queue nm_watch_queue_read(const char *folder)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "queue.jsonl"), *text = NULL;
    nm_watch_queue queue = {.runs = json_object(), .parts = json_array(), .decisions = json_array()};
    json_t *run;
    const char *key;
    if (nm_file_read_optional(path, &text, NM_IGNORED) != NM_OK)
        text = NULL;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        add_line(&queue, object);
        json_decref(object);
    }
    json_object_foreach(queue.runs, key, run)
    {
        queue.n_runs++;
        queue.n_ended += has_ended(run);
        queue.left += has_ended(run) ? 0 : json_number_value(json_object_get(run, "seconds"));
    }
    queue.at_most = rest_of_plan(&queue);
    return queue;
}

void nm_watch_queue_count(const nm_watch_queue *queue, const char *phase, size_t *ended, size_t *all)
{
    const char *key;
    json_t *run;
    *ended = *all = 0;
    json_object_foreach(queue->runs, key, run)
    {
        const char *own = json_string_value(json_object_get(run, "phase"));
        bool mine = own && phase && !strcmp(own, phase);
        *all += mine;
        *ended += mine && has_ended(run);
    }
}

void nm_watch_queue_release(nm_watch_queue *queue)
{
    json_decref(queue->runs);
    json_decref(queue->parts);
    json_decref(queue->decisions);
}

static void write_text(json_t *run, const char *key, FILE *out)
{
    const char *text = json_string_value(json_object_get(run, key));
    fputs("<td>", out);
    nm_html_text(out, text ? text : "–");
    fputs("</td>", out);
}

static void write_number(json_t *run, const char *key, bool duration, FILE *out)
{
    char text[NM_NUMBER_BYTES];
    const json_t *value = json_object_get(run, key);
    double number = json_number_value(value);
    fprintf(out, "<td>%s</td>",
            !json_is_number(value) ? "–"
            : duration             ? nm_duration_show(text, number)
                                   : nm_number_show(text, number));
}

void nm_watch_queue_write_left(const nm_watch_queue *queue, FILE *out)
{
    char text[NM_NUMBER_BYTES];
    if (queue->n_ended == queue->n_runs)
        fprintf(out, "All %zu runs have ended.", queue->n_runs);
    else if (isfinite(queue->at_most))
        fprintf(out, "%zu run%s ended; the study takes at most %s more.", queue->n_ended,
                queue->n_ended == 1 ? " has" : "s have", nm_duration_show(text, queue->at_most));
    else /* left is 0 if the speed was not measured */
        fprintf(out, "%zu of %zu runs have ended%s%s.", queue->n_ended, queue->n_runs,
                queue->left > 0 ? "; computing time left: " : "",
                queue->left > 0 ? nm_duration_show(text, queue->left) : "");
}

static void write_progress(const nm_watch_queue *queue, FILE *out)
{
    static const char *const phases[] = {"confirm", "select", "rates", "speed"},
                             *const words[] = {"confirming the finalists with fresh seeds",
                                               "selecting variants", "selecting learning rates",
                                               "measuring the speed"};
    size_t i, ended, all, phase = 0, out_of_race = 0;
    json_t *line;
    for (; phase < 3; phase++) {
        nm_watch_queue_count(queue, phases[phase], &ended, &all);
        if (all)
            break;
    }
    fprintf(out, "The study has not ended: it is %s. ", words[phase]);
    nm_watch_queue_write_left(queue, out);
    json_array_foreach(queue->decisions, i, line)
    {
        const char *what = json_string_value(json_object_get(line, "text"));
        if (!what || (!strstr(what, " is eliminated ") && !strstr(what, " is out: ")))
            continue;
        fprintf(out, "%s%s.", out_of_race++ ? " " : " Out so far: ", what);
    }
}

bool nm_watch_runs_write_answer(void *user, FILE *out)
{
    const nm_watch_runs *runs = user;
    size_t i, ended, all;
    json_t *line;
    const char *answer = NULL;
    nm_watch_queue queue = nm_watch_queue_read(runs->given[0]);
    nm_watch_queue_count(&queue, "rates", &ended, &all);
    bool found = runs->n_given == 1 && all > 0;
    json_array_foreach(queue.decisions, i, line)
    {
        const char *phase = json_string_value(json_object_get(line, "phase"));
        if (phase && !strcmp(phase, "answer"))
            answer = json_string_value(json_object_get(line, "text"));
    }
    if (found && answer)
        fputs(answer, out);
    else if (found)
        write_progress(&queue, out);
    nm_watch_queue_release(&queue);
    return found;
}

/* The parts of the plan, and what was decided: which variant is out, when and why. */
static void write_plan(const nm_watch_queue *queue, FILE *out)
{
    size_t i, ended, all;
    json_t *line;
    nm_section_open("plan", "Plan", true, out);
    fputs("<p>", out);
    nm_watch_queue_write_left(queue, out);
    fputs("</p>\n", out);
    if (json_array_size(queue->parts))
        fputs("<div class=\"scroll\"><table><thead><tr><th>part</th><th>runs that have ended</th>"
              "<th>planned time</th></tr></thead><tbody>\n",
              out);
    json_array_foreach(queue->parts, i, line)
    {
        nm_watch_queue_count(queue, json_string_value(json_object_get(line, "phase")), &ended, &all);
        size_t least = (size_t)json_integer_value(json_object_get(line, "runs"));
        all = all > least ? all : least; /* later parts have no runs yet */
        fputs("<tr>", out);
        write_text(line, "phase", out);
        fprintf(out, "<td>%zu of %zu</td>", ended, all);
        write_number(line, "seconds", true, out);
        fputs("</tr>\n", out);
    }
    fputs(json_array_size(queue->parts) ? "</tbody></table></div>\n" : "", out);
    if (json_array_size(queue->decisions))
        fputs("<div class=\"scroll\"><table><thead><tr><th>after</th><th>decision</th></tr></thead><tbody>\n",
              out);
    json_array_foreach(queue->decisions, i, line)
    {
        fputs("<tr>", out);
        write_number(line, "at", true, out);
        write_text(line, "text", out);
        fputs("</tr>\n", out);
    }
    fputs(json_array_size(queue->decisions) ? "</tbody></table></div>" : "", out);
    fputs("</details></section>\n", out);
}

static void write_runs(const nm_watch_queue *queue, FILE *out)
{
    const char *key;
    json_t *run;
    nm_section_open("queue", "Queue", false, out);
    fputs("<div class=\"scroll\"><table><thead><tr><th>phase</th><th>variant</th><th>learning rate</th>"
          "<th>seed</th><th>updates</th><th>state</th><th>estimate</th><th>took</th><th>value</th>"
          "</tr></thead><tbody>\n",
          out);
    json_object_foreach(queue->runs, key, run)
    {
        fputs("<tr>", out);
        write_text(run, "phase", out);
        write_text(run, "variant", out);
        write_number(run, "lr", false, out);
        write_number(run, "seed", false, out);
        write_number(run, "updates", false, out);
        write_text(run, "state", out);
        write_number(run, "seconds", true, out);
        write_number(run, "took", true, out);
        write_number(run, "value", false, out);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></details></section>\n", out);
}

void nm_watch_runs_write_queue(void *user, FILE *out)
{
    const nm_watch_runs *runs = user;
    for (size_t i = 0; i < runs->n_given; i++) {
        nm_watch_queue queue = nm_watch_queue_read(runs->given[i]);
        if (queue.n_runs) {
            write_plan(&queue, out);
            write_runs(&queue, out);
        }
        nm_watch_queue_release(&queue);
    }
}
