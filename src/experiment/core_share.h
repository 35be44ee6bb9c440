/* Division of the CPU cores among runs that train at the same time. */
#ifndef NM_CORE_SHARE_H
#define NM_CORE_SHARE_H

#include <stdint.h>

typedef struct nm_core_share {
    int64_t jobs, threads; /* parallel runs, threads of each run */
} nm_core_share;

/* For n runs on `cores` cores: no core is idle and no core has two threads. All runs get the same number of threads, so
 * that their speeds can be compared. jobs and threads are the user's choices; 0 leaves the choice to this function. */
nm_core_share nm_core_share_of(int64_t n, int64_t jobs, int64_t threads, int64_t cores);

#endif
