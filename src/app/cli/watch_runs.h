/* The runs that norma watch and norma report show: found in the given folders, read while their logs grow. */
#pragma once

#include <jansson.h>

#include "report/report.h"

typedef struct nm_watch_runs {
    const char *const *given; /* [n_given], folders of runs, comparisons or studies; not owned */
    size_t n_given;
    char **folders; /* [n], the run folders in them */
    size_t n, capacity;
    uint64_t stamp; /* of the files other than logs */
    nm_report report;
    bool is_open;
} nm_watch_runs;

/* Adds a run folder, or the runs in the folder of a comparison or a study, in the order of their names. */
void nm_watch_runs_find(nm_watch_runs *runs, const char *given);
/* Reads what has changed since the last call. *changed: whether anything has.
 * NM_IO  a file cannot be read
 * NM_FORMAT  a file of inspections is malformed */
nm_status nm_watch_runs_poll(nm_watch_runs *runs, bool *changed, nm_error *err);
/* What a queue.jsonl says: of each run its last line, in the order of their first lines. */
typedef struct nm_watch_queue {
    json_t *runs; /* object of objects */
    json_t *parts, *decisions;
    size_t n_runs, n_ended;
    double left;    /* seconds of computing of the runs that have not ended */
    double at_most; /* seconds that the plan of a study has left; NaN: no such plan */
} nm_watch_queue;

/* An empty queue if there is no file. */
nm_watch_queue nm_watch_queue_read(const char *folder);
/* Runs of a part that have ended, and all of them. */
void nm_watch_queue_count(const nm_watch_queue *queue, const char *phase, size_t *ended, size_t *all);
/* How many runs have ended, and how long the others take: a sentence. */
void nm_watch_queue_write_left(const nm_watch_queue *queue, FILE *out);
void nm_watch_queue_release(nm_watch_queue *queue);
/* If one folder is given and it has a study: its answer, or how far it is, since its runs are not comparable
 * before its end. false: it has none. user: nm_watch_runs. */
bool nm_watch_runs_write_answer(void *user, FILE *out);
/* Writes the queues of the given folders as sections of the page; user: nm_watch_runs. */
void nm_watch_runs_write_queue(void *user, FILE *out);
void nm_watch_runs_release(nm_watch_runs *runs);
