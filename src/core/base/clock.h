/* Time since an arbitrary moment, for durations. */
#pragma once

#include <time.h>

/* Seconds. Changes of the system's clock do not affect it. */
static inline double nm_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
