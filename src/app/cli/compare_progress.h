/* Progress of norma compare during training: on a terminal, a table that is redrawn in place; otherwise a
 * line for each running run every 20 seconds, and a line for each run that has finished or has been
 * scored. */
#pragma once

#include "norma/compare.h"

typedef struct compare_progress {
    bool terminal;
    bool trained; /* training has ended; runs are scored */
    size_t n_unscored, n_scored;
    int drawn;   /* number of lines of the table on the terminal */
    double last; /* nm_clock() at the last output */
} compare_progress;

compare_progress compare_progress_begin(void);
/* Callbacks of nm_comparison_events; user: a compare_progress. */
void compare_progress_tick(void *user, nm_comparison *comparison);
void compare_progress_finished(void *user, const nm_compared_run *run);
void compare_progress_scored(void *user, const nm_compared_run *run);
void compare_progress_message(void *user, const char *text);
