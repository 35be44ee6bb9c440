#include "cli/watch_runs.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/html.h"
#include "report/sections.h"

static bool has_log(const char *folder)
{
    char *path = nm_path_join(folder, "log.jsonl");
    bool found = nm_file_may_exist(path);
    free(path);
    return found;
}

/* Adds a run folder; takes ownership of the name. */
static void add_run(nm_watch_runs *runs, char *folder)
{
    NM_GROW(runs->folders, runs->n, runs->capacity);
    runs->folders[runs->n++] = folder;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void find_runs(nm_watch_runs *runs, const char *given)
{
    struct dirent **entries;
    if (has_log(given)) {
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
    char *path = nm_path_join(folder, name);
    struct stat info;
    if (!stat(path, &info))
        *stamp = *stamp * 1000003 + (uint64_t)info.st_size * 31 + (uint64_t)info.st_ino +
                 (uint64_t)info.st_mtim.tv_sec * 1000000007 + (uint64_t)info.st_mtim.tv_nsec;
    free(path);
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
        find_runs(runs, runs->given[i]);
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

/* The last line of each run of a queue, in the order of their first lines. */
static json_t *read_queue(const char *folder)
{
    static const char *const keys[] = {"phase", "variant", "lr", "seed", "updates"};
    char *path = nm_path_join(folder, "queue.jsonl"), *text = NULL;
    nm_error ignored;
    json_t *runs = json_object();
    if (nm_file_read_optional(path, &text, &ignored) != NM_OK)
        text = NULL;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL), *name = json_array();
        const char *type = json_string_value(json_object_get(object, "type"));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            json_t *value = json_object_get(object, keys[k]);
            json_array_append(name, value ? value : json_null());
        }
        char *key = json_dumps(name, 0);
        if (type && key && !strcmp(type, "run"))
            json_object_set(runs, key, object);
        free(key);
        json_decref(name);
        json_decref(object);
    }
    free(text);
    free(path);
    return runs;
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

void nm_watch_runs_write_queue(void *user, FILE *out)
{
    const nm_watch_runs *runs = user;
    for (size_t i = 0; i < runs->n_given; i++) {
        json_t *queue = read_queue(runs->given[i]), *run;
        const char *key;
        size_t ended = 0;
        double left = 0;
        char text[NM_NUMBER_BYTES];
        json_object_foreach(queue, key, run)
        {
            const char *state = json_string_value(json_object_get(run, "state"));
            bool waits = state && (!strcmp(state, "planned") || !strcmp(state, "running"));
            ended += !waits;
            left += waits ? json_number_value(json_object_get(run, "seconds")) : 0;
        }
        if (json_object_size(queue)) {
            nm_section_open("queue", "Queue", true, out);
            fprintf(out, "<p>%zu of %zu runs have ended; the others take %s of computing.</p>\n", ended,
                    json_object_size(queue), nm_duration_show(text, left));
            fputs(
                "<div class=\"scroll\"><table><thead><tr><th>phase</th><th>variant</th><th>learning rate</th>"
                "<th>seed</th><th>updates</th><th>state</th><th>estimate</th><th>took</th><th>value</th>"
                "</tr></thead><tbody>\n",
                out);
            json_object_foreach(queue, key, run)
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
        json_decref(queue);
    }
}
