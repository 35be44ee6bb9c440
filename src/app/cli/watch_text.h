/* norma watch --text: the runs in a terminal, redrawn while they train. */
#pragma once

#include "cli/watch_runs.h"

/* Shows the runs until q is pressed, or once if the standard output is no terminal. NM_INTERRUPTED after
 * Ctrl-C; errors of nm_watch_runs_poll. */
nm_status nm_watch_text(nm_watch_runs *runs, nm_error *err);
