/* How norma compare divides the cores among its runs. */
#ifndef NM_COMPARE_SHARE_H
#define NM_COMPARE_SHARE_H

#include <stdint.h>

typedef struct compare_share {
    int64_t at_once, threads; /* runs at a time, and threads of each */
} compare_share;

/* For n runs so that no core is idle and none has two threads. All runs get the same number of threads, so that their
 * speeds can be compared. wanted and threads: what was asked for, which holds; 0 leaves the choice. */
compare_share compare_share_cores(int64_t n, int64_t wanted, int64_t threads, int64_t cores);

#endif
