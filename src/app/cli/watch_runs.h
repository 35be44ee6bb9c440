/* The runs that norma watch shows: found in the given folders, read while their logs grow. */
#ifndef NM_WATCH_RUNS_H
#define NM_WATCH_RUNS_H

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

/* Reads what has changed since the last call. *changed: whether anything has.
 * NM_IO  a file cannot be read
 * NM_FORMAT  a file of inspections is malformed */
nm_status nm_watch_runs_poll(nm_watch_runs *runs, bool *changed, nm_error *err);
/* Writes the queues of the given folders (queue.jsonl) as a section of the page; user: nm_watch_runs. */
void nm_watch_runs_write_queue(void *user, FILE *out);
void nm_watch_runs_release(nm_watch_runs *runs);

#endif
