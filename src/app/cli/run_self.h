/* Processes of this program. */
#pragma once

#include "norma/status.h"

/* Runs this program with the arguments (NULL-terminated), waits for it and forwards signals to it. Returns
 * its exit code; NM_INTERRUPTED if a forwarded signal terminated it, NM_IO if it could not be started. */
int run_self(const char *const *arguments);
