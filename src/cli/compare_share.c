/* Cores for runs: see compare_share.h. */
#include "cli/compare_share.h"

compare_share compare_share_cores(int64_t n, int64_t wanted, int64_t threads, int64_t cores)
{
    int64_t most = wanted && wanted < n ? wanted : n;
    if (threads)
        return (compare_share){wanted ? wanted : cores > threads ? cores / threads : 1, threads};
    if (wanted)
        return (compare_share){wanted, most && cores > most ? cores / most : 1};
    compare_share best = {1, cores};
    for (int64_t runs = 2; runs <= most && runs <= cores; runs++)
        if (runs * (cores / runs) >= best.at_once * best.threads)
            best = (compare_share){runs, cores / runs};
    return best;
}
