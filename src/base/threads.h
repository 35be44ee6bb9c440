/* Number of threads that the system can start. */
#ifndef NM_THREADS_H
#define NM_THREADS_H

#include <stdint.h>

/* At most `wanted` and at least 1. The OpenMP runtime ends the process when it cannot create a thread (limits of processes
 * or address space, containers), so the number is found out beforehand by starting and ending that many threads. If fewer can be started, half of
 * them are used: OpenMP ends threads of a larger team while it starts those of the next one. */
int32_t nm_threads_available(int32_t wanted);

#endif
