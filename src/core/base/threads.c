#include "base/threads.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/machine.h"
#include "base/memory.h"

int32_t nm_threads_default(void)
{
    int threads = omp_get_max_threads();
    return threads == omp_get_num_procs() ? nm_machine_cpus() : threads;
}

static void *wait_for_end(void *mutex)
{
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return NULL;
}

/* In a process that was forked, GNU's OpenMP would wait forever for the threads of the team that the forking
 * thread had. Parallel regions of that thread therefore have one thread; results do not depend on the number
 * of threads. LLVM's OpenMP restarts by itself; before it has done so, its functions wait for a lock that
 * another thread of the parent may have held. */
#ifndef __clang__
static void compute_in_one_thread(void)
{
    omp_set_max_active_levels(0);
}
#endif

static void register_fork_handler(void)
{
#ifndef __clang__
    pthread_atfork(NULL, NULL, compute_in_one_thread);
#endif
}

int32_t nm_threads_available(int32_t wanted)
{
    static pthread_once_t registered = PTHREAD_ONCE_INIT;
    if (wanted > 1)
        pthread_once(&registered, register_fork_handler);
    NM_AUTO_FREE pthread_t *started = wanted > 1 ? malloc(((size_t)wanted - 1) * sizeof *started) : NULL;
    pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;
    int32_t n = 0;
    pthread_mutex_lock(&running);
    while (started && n < wanted - 1 && !pthread_create(&started[n], NULL, wait_for_end, &running))
        n++;
    pthread_mutex_unlock(&running);
    for (int32_t i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    return n < wanted - 1 ? 1 + n / 2 : wanted;
}
