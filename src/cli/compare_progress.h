/* What norma compare shows while runs are trained: on a terminal one table, redrawn in place; elsewhere now and then a
 * line for each that is running. */
#ifndef NM_COMPARE_PROGRESS_H
#define NM_COMPARE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct compare_queue;

typedef struct compare_progress {
    bool terminal;
    int drawn; /* lines of the table that stand on the terminal */
    double last;
} compare_progress;

compare_progress compare_progress_begin(void);
void compare_progress_show(compare_progress *progress, const struct compare_queue *queue);
/* The last line of a text file, "" when there is none. */
void compare_last_line(const char *path, char *line, size_t bytes);

#endif
