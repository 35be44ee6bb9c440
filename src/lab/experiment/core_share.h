/* Division of the CPU cores among runs that train at the same time. */
#pragma once

#include <stdint.h>

typedef struct nm_core_share {
    int64_t jobs, threads; /* parallel runs, threads of each run */
} nm_core_share;

/* Divides `cores` cores among n runs. All runs get the same number of threads, so that their speeds are
 * comparable. jobs and threads are the values of the user; 0: computed here. If both are 0, every core has
 * one thread, and as many runs as this allows are parallel. If one is given, the other is such that no core
 * has two threads, but at least 1. */
nm_core_share nm_core_share_of(int64_t n, int64_t jobs, int64_t threads, int64_t cores);
