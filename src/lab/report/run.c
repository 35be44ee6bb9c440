#include "report/run.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/utf8_check.h"

/* Limits that no log of Norma reaches; what exceeds them is ignored. */
enum { MAX_SERIES = 1 << 16, MAX_TAG = 240, MAX_DEPTH = 4, MAX_VECTOR = 1 << 16 };
static const double max_value = 1e30; /* larger values would make every axis useless */

typedef struct log_line { /* where the values of a line are stored */
    nm_report_run *run;
    double update, seconds;
    char tag[MAX_TAG];
} log_line;

static uint32_t hash_tag(const char *tag)
{
    return (uint32_t)(XXH3_64bits(tag, strlen(tag)) >> 32);
}

static nm_series *find_series(const nm_report_run *run, const char *tag)
{
    size_t probe = 0;
    for (uint32_t i; (i = nm_hash_map_next(&run->map, hash_tag(tag), &probe)) != NM_HASH_NONE;)
        if (!strcmp(run->series[i].tag, tag))
            return &run->series[i];
    return NULL;
}

/* The series with this tag, added if it is new; NULL if there are too many. */
static nm_series *series_of(nm_report_run *run, const char *tag)
{
    nm_series *found = find_series(run, tag);
    if (found || run->n_series >= MAX_SERIES)
        return found;
    nm_hash_map_add(&run->map, hash_tag(tag), (uint32_t)run->n_series);
    NM_GROW(run->series, run->n_series, run->series_capacity);
    run->series[run->n_series] = (nm_series){.tag = nm_duplicate(tag)};
    return &run->series[run->n_series++];
}

static void add_number(const log_line *at, double value)
{
    nm_series *series = isfinite(value) && fabs(value) < max_value ? series_of(at->run, at->tag) : NULL;
    if (!series)
        return;
    size_t capacity[2] = {series->capacity, series->capacity};
    NM_GROW(series->update, series->n, capacity[0]);
    NM_GROW(series->seconds, series->n, capacity[1]);
    NM_GROW(series->value, series->n, series->capacity);
    series->update[series->n] = at->update;
    series->seconds[series->n] = at->seconds;
    series->value[series->n++] = value;
}

static void add_text(const log_line *at, const char *value)
{
    nm_report_run *run = at->run;
    NM_APPEND(run->texts, run->n_texts, run->texts_capacity,
              (nm_text){nm_duplicate(at->tag), nm_duplicate(value), at->update, at->seconds});
}

static void add_vector(const log_line *at, const json_t *array)
{
    nm_report_run *run = at->run;
    size_t n = json_array_size(array);
    if (n > MAX_VECTOR || run->n_vectors >= (size_t)MAX_SERIES * 16)
        return;
    NM_GROW(run->vectors, run->n_vectors, run->vectors_capacity);
    nm_vector *vector = &run->vectors[run->n_vectors++];
    *vector =
        (nm_vector){nm_duplicate(at->tag), at->update, at->seconds, n, nm_allocate((n + 1) * sizeof(double))};
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        double value = json_is_number(item) ? json_number_value(item) : NAN;
        vector->values[i] = fabs(value) < max_value ? value : NAN;
    }
}

static bool is_label(const char *key)
{
    return !strcmp(key, "type") || !strcmp(key, "stack") || !strcmp(key, "layer") ||
           !strcmp(key, "sublayer") || !strcmp(key, "instrument") || !strcmp(key, "site") ||
           !strcmp(key, "update");
}

static void add_object(log_line *at, json_t *object, char separator, int depth);

static void add_value(log_line *at, json_t *value, int depth)
{
    const json_t *first = json_array_get(value, 0);
    if (json_is_number(value))
        add_number(at, json_number_value(value));
    else if (json_is_boolean(value))
        add_number(at, json_is_true(value));
    else if (json_is_string(value))
        add_text(at, json_string_value(value));
    else if (json_is_object(value) && depth < MAX_DEPTH)
        add_object(at, value, '.', depth + 1);
    else if (json_is_object(first) && depth < MAX_DEPTH) /* a list of objects */
        for (size_t i = 0; i < json_array_size(value); i++)
            add_object(at, json_array_get(value, i), '/', depth + 1);
    else if (first)
        add_vector(at, value);
}

/* Appends the site of an object, "/enc.0.ffn.norm" or "/enc.2", or nothing; returns the new length. */
static size_t append_site(char *tag, size_t length, const json_t *object)
{
    const char *site = json_string_value(json_object_get(object, "site"));
    const char *stack = json_string_value(json_object_get(object, "stack"));
    const json_t *layer = json_object_get(object, "layer");
    char *at = tag + length;
    if (site && *site)
        snprintf(at, MAX_TAG - length, "/%s", site);
    else if (!site && stack && json_is_integer(layer))
        snprintf(at, MAX_TAG - length, "/%.64s.%lld", stack, (long long)json_integer_value(layer));
    return length + strlen(at);
}

/* Adds the values of an object. The tag of each is at->tag, the site if the object has one, the separator and
 * the key. */
static void add_object(log_line *at, json_t *object, char separator, int depth)
{
    size_t before = strlen(at->tag), length = append_site(at->tag, before, object);
    const char *key;
    json_t *value;
    if (length > before)
        separator = '/';
    json_object_foreach(object, key, value)
    {
        if (is_label(key) || length + strlen(key) + 2 > sizeof at->tag)
            continue;
        snprintf(at->tag + length, sizeof at->tag - length, "%c%s", separator, key);
        add_value(at, value, depth);
    }
    at->tag[before] = 0;
}

static double number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) : otherwise;
    return fabs(number) < max_value ? number : otherwise;
}

static bool add_log_line(log_line *at, json_t *object, const char *type)
{
    const char *own = json_string_value(json_object_get(object, "type"));
    const char *instrument = json_string_value(json_object_get(object, "instrument"));
    if (own)
        type = own;
    if (!json_is_object(object) || !type)
        return false;
    at->update = number_or(object, "update", at->update);
    at->seconds = number_or(object, "seconds", at->seconds);
    snprintf(at->tag, sizeof at->tag, "%.64s%s%.64s", type, instrument ? "/" : "",
             instrument ? instrument : "");
    add_object(at, object, '/', 0);
    return true;
}

void nm_report_run_add(nm_report_run *run, const char *text, size_t bytes)
{
    log_line at = {.run = run, .seconds = run->seconds};
    const char *end = text + bytes;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        json_auto_t *object = length ? json_loadb(line, length, 0, NULL) : NULL;
        run->lines++;
        if (!stop)
            run->open_end = !object;
        else if (length && !object)
            run->first_bad = run->bad_lines++ ? run->first_bad : run->lines;
        if (object && !add_log_line(&at, object, NULL))
            run->first_bad = run->bad_lines++ ? run->first_bad : run->lines;
        line = stop ? stop + 1 : end;
    }
    run->seconds = at.seconds;
}

/* Reads a text file, or sets *text to NULL if there is none. NM_FORMAT, with the line: a byte is not text. */
static nm_status read_if_exists(const char *path, char **text, nm_error *err)
{
    bool found;
    size_t bytes, line = 1;
    *text = NULL;
    NM_TRY(nm_file_find(path, &found, err));
    if (!found)
        return NM_OK;
    NM_TRY(nm_file_read_text(path, text, &bytes, err));
    size_t length = strlen(*text), bad = nm_utf8_find_invalid(*text, length);
    if (bad == bytes)
        return NM_OK;
    for (size_t i = 0; i < bad; i++)
        line += (*text)[i] == '\n';
    return nm_fail(err, NM_FORMAT, "%s:%zu: not UTF-8 text", path, line);
}

/* Reads test.json, the measurements of norma compare, if it exists. */
static nm_status read_test(nm_report_run *run, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL, *path = nm_path_join(run->folder, "test.json");
    nm_status status = read_if_exists(path, &text, err);
    json_error_t problem;
    json_auto_t *object = text && status == NM_OK ? json_loads(text, 0, &problem) : NULL;
    if (text && status == NM_OK && !object)
        status = nm_fail(err, NM_FORMAT, "%s:%d: %s", path, problem.line, problem.text);
    log_line at = {.run = run};
    add_log_line(&at, object, "test");
    return status;
}

/* Whether two paths are equal except for trailing slashes. */
static bool same_folder(const char *a, const char *b)
{
    size_t a_len = strlen(a), b_len = strlen(b);
    while (a_len > 1 && a[a_len - 1] == '/')
        a_len--;
    while (b_len > 1 && b[b_len - 1] == '/')
        b_len--;
    return a_len == b_len && !memcmp(a, b, a_len);
}

/* Reads a list of inspections. folder: read only the objects for this run; NULL: read all. */
static nm_status read_inspections(nm_report_run *run, const char *path, const char *folder, nm_error *err)
{
    json_error_t problem;
    char *text = NULL;
    NM_TRY(nm_file_read(path, &text, NULL, err));
    json_auto_t *list = json_loads(text, 0, &problem);
    free(text);
    if (!json_is_array(list))
        return nm_fail(err, NM_FORMAT, "%s:%d: %s", path, list ? 1 : problem.line,
                       list ? "expected a list, as norma inspect --json prints it" : problem.text);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *object = json_array_get(list, i);
        const char *of = json_string_value(json_object_get(object, "run"));
        log_line at = {.run = run};
        if (!folder || (of && same_folder(of, folder)))
            add_log_line(&at, object, "inspect");
    }
    return NM_OK;
}

static nm_status read_inspected(nm_report_run *run, const char *inspected, nm_error *err)
{
    if (*inspected)
        return read_inspections(run, inspected, run->folder, err);
    NM_AUTO_FREE char *path = nm_path_join(run->folder, "inspection.json");
    bool found;
    NM_TRY(nm_file_find(path, &found, err));
    return found ? read_inspections(run, path, NULL, err) : NM_OK;
}

static nm_status read_settings(nm_report_run *run, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL, *path = nm_path_join(run->folder, "config.ini");
    char section[64] = "";
    nm_status status = read_if_exists(path, &text, err);
    char *rest = status == NM_OK ? text : NULL;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *comment = strstr(line, " ;"), *equals = strchr(line, '=');
        if (comment)
            *comment = 0;
        if (*line == '[')
            snprintf(section, sizeof section, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        else if (equals && *line != '#') {
            char *value = equals + 1;
            *equals = 0;
            line = nm_trim(line);
            value = nm_trim(value);
            NM_APPEND(run->settings, run->n_settings, run->settings_capacity,
                      (nm_text){.key = nm_format("%s.%s", section, line), .value = nm_duplicate(value)});
        }
    }
    return status;
}

static const char *last_line(const char *text, size_t bytes)
{
    const char *newline = bytes ? memrchr(text, '\n', bytes) : NULL;
    return newline ? newline + 1 : text;
}

nm_status nm_report_run_follow(nm_report_run *run, bool *grown, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(run->folder, "log.jsonl"), *text = NULL;
    long bytes = -1;
    size_t n = 0;
    FILE *log = NULL;
    *grown = false;
    nm_status status = nm_file_open(&log, path, "rb", err);
    if (status == NM_OK && (fseek(log, 0, SEEK_END) || (bytes = ftell(log)) < 0))
        status = nm_fail(err, NM_IO, "%s: its size is unknown", path);
    if (status == NM_OK && (size_t)bytes < run->log_bytes)
        status = nm_fail(err, NM_MISMATCH, "%s: it is shorter than before", path);
    if (status == NM_OK && (size_t)bytes > run->log_bytes) {
        text = nm_allocate((size_t)bytes - run->log_bytes);
        if (!fseek(log, (long)run->log_bytes, SEEK_SET))
            n = fread(text, 1, (size_t)bytes - run->log_bytes, log);
        n = (size_t)(last_line(text, n) - text);
    }
    if (n) {
        run->lines -= run->open_end; /* the incomplete line was counted */
        run->open_end = false;
        nm_report_run_add(run, text, n);
        run->log_bytes += n;
        *grown = true;
    }
    if (log)
        fclose(log);
    return status;
}

nm_status nm_report_run_read(nm_report_run *run, const char *folder, const char *inspected, nm_error *err)
{
    *run = (nm_report_run){.folder = nm_duplicate(folder)};
    if (!*folder) /* "/log.jsonl" would be a file of the root folder */
        return nm_fail(err, NM_USAGE, "the name of a run folder is empty");
    char *path = nm_path_join(folder, "log.jsonl"), *text = NULL;
    size_t bytes = 0;
    nm_status status = nm_file_read(path, &text, &bytes, err);
    if (status != NM_OK && !nm_file_may_exist(path)) {
        const nm_error why = *err;
        nm_fail(err, status, "%.900s; expected the folder of a run, a comparison or a study", why.text);
    }
    free(path);
    NM_TRY(status);
    nm_report_run_add(run, text, bytes);
    run->log_bytes = run->open_end ? (size_t)(last_line(text, bytes) - text) : bytes;
    free(text);
    NM_TRY(read_test(run, err));
    NM_TRY(read_settings(run, err));
    return read_inspected(run, inspected, err);
}

static void release_texts(nm_text *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        NM_FREE(texts[i].key, texts[i].value);
    free(texts);
}

void nm_report_run_release(nm_report_run *run)
{
    for (size_t i = 0; i < run->n_series; i++)
        NM_FREE(run->series[i].tag, run->series[i].update, run->series[i].seconds, run->series[i].value);
    for (size_t i = 0; i < run->n_vectors; i++)
        NM_FREE(run->vectors[i].tag, run->vectors[i].values);
    release_texts(run->texts, run->n_texts);
    release_texts(run->settings, run->n_settings);
    free(run->series);
    nm_hash_map_release(&run->map);
    NM_FREE(run->vectors, run->folder, run->name);
    *run = (nm_report_run){0};
}

const nm_series *nm_report_run_find(const nm_report_run *run, const char *tag)
{
    return find_series(run, tag);
}

double nm_report_run_last(const nm_report_run *run, const char *tag)
{
    const nm_series *series = nm_report_run_find(run, tag);
    return series && series->n ? series->value[series->n - 1] : NAN;
}

double nm_report_run_match(const nm_report_run *run, const char *pattern)
{
    for (size_t i = run->n_series; i-- > 0;) {
        const nm_series *series = &run->series[i];
        if (series->n && nm_tag_match(pattern, series->tag, NULL, NULL))
            return series->value[series->n - 1];
    }
    return NAN;
}

double nm_series_at(const nm_series *series, double update)
{
    for (size_t i = series ? series->n : 0; i-- > 0;)
        if (series->update[i] == update)
            return series->value[i];
    return NAN;
}

double nm_report_run_best_update(const nm_report_run *run)
{
    const nm_series *best = nm_report_run_find(run, "valid/best");
    for (size_t i = best ? best->n : 0; i-- > 0;)
        if (best->value[i] > 0)
            return best->update[i];
    return NAN;
}

double nm_report_run_updates(const nm_report_run *run)
{
    double updates = NAN;
    for (size_t i = 0; i < run->n_series; i++) {
        const nm_series *series = &run->series[i];
        if (series->n && (!strncmp(series->tag, "train/", 6) || !strncmp(series->tag, "valid/", 6)))
            updates = fmax(updates, series->update[series->n - 1]);
    }
    return updates;
}

static double setting_number(const nm_report_run *run, const char *key)
{
    const char *text = nm_report_run_setting(run, key);
    double value = text ? strtod(text, NULL) : 0;
    return value > 0 ? value : NAN;
}

double nm_report_run_planned(const nm_report_run *run)
{
    const nm_series *epoch = nm_report_run_find(run, "valid/epoch");
    double most = setting_number(run, "train.updates"), epochs = setting_number(run, "train.epochs");
    if (isfinite(epochs) && epoch && epoch->n && epoch->value[epoch->n - 1] >= 1)
        most = fmin(most, epochs * epoch->update[epoch->n - 1] / epoch->value[epoch->n - 1]);
    return most;
}

/* A run that was stopped has a checkpoint, but neither as many updates as planned nor the validation with
 * which every other end of a training begins. A limit of time ends a run without validation data, too. */
static bool was_stopped(const nm_report_run *run, double last)
{
    const nm_series *valid = nm_report_run_find(run, "valid/loss");
    return last < floor(nm_report_run_planned(run)) && !isfinite(nm_series_at(valid, last)) &&
           (valid || !isfinite(setting_number(run, "train.seconds")));
}

bool nm_report_run_is_unfinished(const nm_report_run *run)
{
    double last = NAN;
    for (size_t i = 0; i < run->n_texts; i++)
        if (!strcmp(run->texts[i].key, "weights/xxh3"))
            last = run->texts[i].update;
    return isfinite(last) && (last < nm_report_run_updates(run) || was_stopped(run, last)) &&
           !isfinite(nm_report_run_last(run, "test/value"));
}

double nm_report_run_left(const nm_report_run *run)
{
    double done = nm_report_run_updates(run), planned = nm_report_run_planned(run);
    return nm_report_run_is_unfinished(run) ? fmax(0, planned - done) * run->seconds / done : NAN;
}

double nm_report_run_tid(const nm_report_run *run, const char *quantity)
{
    char tag[64], pattern[64];
    snprintf(tag, sizeof tag, "test/tid_%s", quantity);
    snprintf(pattern, sizeof pattern, "inspect/tid.last/*/%s", quantity);
    double tested = nm_report_run_last(run, tag), best = nm_report_run_best_update(run);
    for (size_t i = 0; i < run->n_series && !isfinite(tested); i++)
        if (nm_tag_match(pattern, run->series[i].tag, NULL, NULL))
            tested = nm_series_at(&run->series[i], best);
    return isfinite(tested) ? tested : nm_report_run_match(run, pattern);
}

/* Unix time of an ISO 8601 string in the log; NaN without one. */
static double time_of(const nm_report_run *run, const char *key)
{
    const char *text = nm_report_run_text(run, key);
    struct tm time = {0};
    char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &time) : NULL;
    return end && !*end ? (double)timegm(&time) : NAN;
}

double nm_report_run_start(const nm_report_run *run)
{
    return time_of(run, "start/started");
}

double nm_report_run_end(const nm_report_run *run)
{
    double resumed = time_of(run, "resume/started");
    return (isfinite(resumed) ? resumed : nm_report_run_start(run)) + run->seconds;
}

static const char *find_text(const nm_text *texts, size_t n, const char *key)
{
    for (size_t i = n; i-- > 0;)
        if (!strcmp(texts[i].key, key))
            return texts[i].value;
    return NULL;
}

const char *nm_report_run_setting(const nm_report_run *run, const char *key)
{
    return find_text(run->settings, run->n_settings, key);
}

bool nm_report_runs_set(const nm_report_run *runs, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (nm_report_run_setting(&runs[i], key))
            return true;
    return false;
}

const char *nm_report_run_text(const nm_report_run *run, const char *key)
{
    return find_text(run->texts, run->n_texts, key);
}

bool nm_tag_match(const char *pattern, const char *tag, const char **part, size_t *part_len)
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return !strcmp(pattern, tag);
    size_t head = (size_t)(star - pattern);
    if (strncmp(pattern, tag, head))
        return false;
    size_t length = strcspn(tag + head, "/");
    if (part) {
        *part = tag + head;
        *part_len = length;
    }
    return !strcmp(star + 1, tag + head + length);
}
