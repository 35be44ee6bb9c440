/* Default number of threads, and how many the system can start. */
#pragma once

#include <stdint.h>

/* OMP_NUM_THREADS or what omp_set_num_threads has set, otherwise nm_machine_cpus. */
int32_t nm_threads_default(void);

/* Number of threads that can be used, from 1 to `wanted`. The OpenMP runtime ends the process when it cannot
 * create a thread (limits of processes or address space, containers), so the number is determined beforehand
 * by starting and ending `wanted` - 1 threads. If not all can be started, only half of those that can are
 * used, because OpenMP starts the threads of a team while those of an earlier, larger team are still ending.
 *
 * After the first call with more than one thread, a thread that forks computes with one thread in the child
 * process if the runtime is GNU's; LLVM's starts new threads there. */
int32_t nm_threads_available(int32_t wanted);
