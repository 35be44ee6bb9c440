/* Progress of norma compare while runs are training: on a terminal a table that is redrawn in place, elsewhere a line for each
 * running run every 20 seconds, and a line for each finished run. */
#ifndef NM_COMPARE_PROGRESS_H
#define NM_COMPARE_PROGRESS_H

#include "experiment/run_queue.h"

typedef struct compare_progress {
    bool terminal;
    int drawn; /* lines of the table on the terminal */
    double last;
} compare_progress;

compare_progress compare_progress_begin(void);
/* Callbacks of nm_run_queue; user is a compare_progress. */
void compare_progress_tick(void *user, const nm_run_queue *queue);
void compare_progress_finished(void *user, const nm_run_job *job);
void compare_progress_message(void *user, const char *text);

#endif
