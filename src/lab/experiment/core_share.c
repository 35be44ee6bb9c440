#include "experiment/core_share.h"

nm_core_share nm_core_share_of(int64_t n, int64_t jobs, int64_t threads, int64_t cores)
{
    int64_t most = jobs && jobs < n ? jobs : n;
    if (threads)
        return (nm_core_share){jobs ? jobs : cores > threads ? cores / threads : 1, threads};
    if (jobs)
        return (nm_core_share){jobs, most && cores > most ? cores / most : 1};
    nm_core_share best = {1, cores};
    for (int64_t runs = 2; runs <= most && runs <= cores; runs++)
        if (runs * (cores / runs) >= best.jobs * best.threads)
            best = (nm_core_share){runs, cores / runs};
    return best;
}
