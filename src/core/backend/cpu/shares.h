/* Division of the blocks of a kernel between the threads of a team. Each thread computes its own contiguous
 * share in order, then takes blocks that are left in the shares of others. Kernels that follow each other
 * divide the same rows in the same way, so a thread reads and overwrites what it wrote before, from its own
 * caches: on a CPU with several L3 caches, blocks that any thread takes made training 1.2 times slower
 * (docs/notes/performance-log.md). A thread that is slowed down loses blocks to the others.
 *
 * Results never depend on which thread computes a block. */
#pragma once

#include <stdatomic.h>

#include "backend/backend_private.h"
#include "backend/cpu/cpu.h"

typedef struct nm_share {
    atomic_int next; /* the first block that is left, or `end` */
    int32_t end;
    char padding[120]; /* no two shares are in one cache line, or in lines that are prefetched together */
} nm_share;

typedef struct nm_shares {
    nm_share *of_thread; /* [threads] */
    int32_t threads;
} nm_shares;

/* The shares of a team, without blocks. There is one set per backend. Not inside parallel regions. */
static inline nm_shares nm_shares_of(nm_backend *backend, int32_t threads)
{
    return (nm_shares){nm_backend_scratch(backend, NM_CPU_SHARES, (size_t)threads * sizeof(nm_share)),
                       threads};
}

/* Divides blocks 0 .. blocks - 1. Called by one thread while no other takes blocks. */
static inline void nm_shares_divide(const nm_shares *shares, int32_t blocks)
{
    for (int32_t t = 0; t < shares->threads; t++) {
        int64_t first = (int64_t)blocks * t / shares->threads,
                end = (int64_t)blocks * (t + 1) / shares->threads;
        atomic_init(&shares->of_thread[t].next, (int)first);
        shares->of_thread[t].end = (int32_t)end;
    }
}

/* The shares of blocks 0 .. blocks - 1, for a team that divides them once. */
static inline nm_shares nm_shares_of_blocks(nm_backend *backend, int32_t threads, int32_t blocks)
{
    const nm_shares shares = nm_shares_of(backend, threads);
    nm_shares_divide(&shares, blocks);
    return shares;
}

/* The next block for this thread, or -1 if none is left. */
static inline int32_t nm_shares_take(const nm_shares *shares, int32_t thread)
{
    for (int32_t i = 0; i < shares->threads; i++) {
        nm_share *share = &shares->of_thread[(thread + i) % shares->threads];
        int block = atomic_load_explicit(&share->next, memory_order_relaxed);
        while (block < share->end)
            if (atomic_compare_exchange_weak_explicit(&share->next, &block, block + 1, memory_order_relaxed,
                                                      memory_order_relaxed))
                return block;
    }
    return -1;
}
