#include "experiment/run_journal.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

#define QUEUE_HEADER(F)                                                                                      \
    F(text, type, "`queue`")                                                                                 \
    F(text, version, "Version of Norma")                                                                     \
    F(text, key, "The options that determine the queue")
NM_RECORD(queue_header, QUEUE_HEADER)
static NM_FIELDS(queue_header, QUEUE_HEADER)
NM_FIELDS(nm_planned_run, NM_PLANNED_RUN)

/* Identifies a run. */
static char *run_id(const nm_planned_run *run)
{
    return nm_format("%s %s %.17g %lld %lld", run->phase, run->variant, run->lr, (long long)run->seed,
                     (long long)run->updates);
}

static bool read_line(nm_run_journal *journal, const char *line, const char **key)
{
    json_auto_t *o = json_loads(line, 0, NULL);
    const char *type = json_string_value(json_object_get(o, "type"));
    nm_planned_run run;
    nm_record_clear(nm_planned_run_fields(), &run);
    bool valid = type != NULL;
    if (valid && !strcmp(type, "run")) {
        valid = nm_record_read_json(nm_planned_run_fields(), &run, o) && run.phase && run.variant;
        NM_AUTO_FREE char *id = valid ? run_id(&run) : NULL;
        if (valid)
            json_object_set(journal->runs, id, o);
    } else if (valid) {
        json_object_set(journal->lines, line, o);
        if (!strcmp(type, "queue"))
            *key = json_string_value(json_object_get(o, "key"));
    }
    return valid;
}

/* *bytes: length of the complete lines. */
static nm_status read_lines(nm_run_journal *journal, char *text, const char **key, size_t *bytes,
                            nm_error *err)
{
    *bytes = 0;
    int64_t number = 1;
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, number++) {
        *end = 0;
        if (!read_line(journal, at, key))
            return nm_fail(err, NM_FORMAT, "%s:%lld: not a line of a queue", journal->path,
                           (long long)number);
        *bytes = (size_t)(end + 1 - text);
    }
    return NM_OK;
}

static nm_status append(nm_run_journal *journal, json_t *o, nm_error *err)
{
    NM_AUTO_FREE char *line = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    nm_status status = NM_OK;
    bool run = json_object_get(o, "state") != NULL;
    if (!run && json_object_get(journal->lines, line))
        return NM_OK;
    if (!run)
        json_object_set(journal->lines, line, o);
    if (fprintf(journal->file, "%s\n", line) < 0 || fflush(journal->file) || fdatasync(fileno(journal->file)))
        status = nm_fail(err, NM_IO, "%s: %s", journal->path, strerror(errno));
    return status;
}

static bool has_begun(const nm_run_journal *journal)
{
    bool begun = false;
    const char *id;
    json_t *o;
    json_object_foreach(journal->runs, id, o)
    {
        begun = begun || strcmp(json_string_value(json_object_get(o, "phase")), "speed") != 0;
    }
    return begun;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

/* A queue that has only measured the speed, for a plan that was refused or only printed, is replaced. */
static nm_status restart(nm_run_journal *journal, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *speed = nm_path_join(folder, "speed");
    nm_status status = NM_OK;
    if (nftw(speed, remove_entry, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        status = nm_fail(err, NM_IO, "%s: %s", speed, strerror(errno));
    json_object_clear(journal->runs);
    json_object_clear(journal->lines);
    return status;
}

nm_status nm_run_journal_open(nm_run_journal *journal, const char *folder, const char *key, nm_error *err)
{
    *journal = (nm_run_journal){
        .path = nm_path_join(folder, "queue.jsonl"), .runs = json_object(), .lines = json_object()};
    NM_AUTO_FREE char *text = NULL;
    const char *old = NULL;
    size_t bytes = 0;
    NM_TRY(nm_file_read_optional(journal->path, &text, err));
    NM_TRY(text ? read_lines(journal, text, &old, &bytes, err) : NM_OK);
    if (old && key && strcmp(old, key)) {
        if (has_begun(journal))
            return nm_fail(err, NM_MISMATCH,
                           "%s was begun with other options (%.300s; now %.300s); choose another --folder",
                           folder, old, key);
        old = NULL;
        bytes = 0;
        NM_TRY(restart(journal, folder, err));
    }
    NM_TRY(nm_file_open(&journal->file, journal->path, "ab", err));
    if (ftruncate(fileno(journal->file), (off_t)bytes))
        return nm_fail(err, NM_IO, "%s: %s", journal->path, strerror(errno));
    const queue_header header = {"queue", NORMA_VERSION, key ? key : "compare"};
    return old ? NM_OK : nm_run_journal_add(journal, queue_header_fields(), &header, err);
}

nm_status nm_run_journal_add(nm_run_journal *journal, const nm_field *fields, const void *record,
                             nm_error *err)
{
    if (!journal->file) /* a simulation */
        return NM_OK;
    json_auto_t *o = nm_record_json(fields, record);
    return append(journal, o, err);
}

nm_status nm_run_journal_add_run(nm_run_journal *journal, const nm_planned_run *run, nm_error *err)
{
    if (!journal->file)
        return NM_OK;
    json_t *o = nm_record_json(nm_planned_run_fields(), run);
    NM_AUTO_FREE char *id = run_id(run);
    nm_status status = append(journal, o, err);
    json_object_set_new(journal->runs, id, o);
    return status;
}

const char *nm_run_journal_state(const nm_run_journal *journal, const nm_planned_run *run)
{
    NM_AUTO_FREE char *id = run_id(run);
    return json_string_value(json_object_get(json_object_get(journal->runs, id), "state"));
}

bool nm_run_journal_find(const nm_run_journal *journal, nm_planned_run *run)
{
    if (!journal->file)
        return false;
    const char *state = nm_run_journal_state(journal, run);
    NM_AUTO_FREE char *id = run_id(run);
    const json_t *o = json_object_get(journal->runs, id);
    if (!state || (strcmp(state, "finished") && strcmp(state, "failed") && strcmp(state, "dropped")))
        return false;
    const char *variant = run->variant, *folder = run->folder;
    bool valid = nm_record_read_json(nm_planned_run_fields(), run, o);
    run->variant = variant;
    run->folder = folder;
    return valid;
}

void nm_run_journal_close(nm_run_journal *journal)
{
    if (journal->file)
        fclose(journal->file);
    json_decref(journal->runs);
    json_decref(journal->lines);
    free(journal->path);
    *journal = (nm_run_journal){0};
}
