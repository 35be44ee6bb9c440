/* The state of a queue of runs: FOLDER/queue.jsonl, to which a line is appended for the plan, for every
 * change of a run and for every decision, so that a killed study or comparison continues from it and a
 * page can show it. The last line of a run counts. A line is complete or, after a crash while it was
 * written, ignored. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "base/record.h"
#include "norma/study.h"

typedef struct nm_run_journal {
    FILE *file;
    char *path;
    json_t *runs, *lines; /* objects: the last line of every run; the text of every other line */
} nm_run_journal;

const nm_field *nm_planned_run_fields(void);

/* Opens or creates the file. key: the options that determine the queue, compared with those of a file that
 * exists; NULL: not compared. NM_MISMATCH: they differ; NM_FORMAT, NM_IO. */
nm_status nm_run_journal_open(nm_run_journal *journal, const char *folder, const char *key, nm_error *err);
/* Appends a run. */
nm_status nm_run_journal_add_run(nm_run_journal *journal, const nm_planned_run *run, nm_error *err);
/* Appends a record of another type unless the file has this line already. */
nm_status nm_run_journal_add(nm_run_journal *journal, const nm_field *fields, const void *record,
                             nm_error *err);
/* Completes the run with its last line, if it has ended there. Texts are valid until the journal is
 * closed. */
bool nm_run_journal_find(const nm_run_journal *journal, nm_planned_run *run);
/* The last state of a run; NULL: the file has none. Valid until the next call. */
const char *nm_run_journal_state(const nm_run_journal *journal, const nm_planned_run *run);
void nm_run_journal_close(nm_run_journal *journal);
