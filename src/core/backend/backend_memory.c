/* The memory of a backend: allocated regions, and scratch memory of kernels. */
#include <stdlib.h>
#include <sys/mman.h>

#include "backend/backend_private.h"
#include "backend/device/target.h"
#include "backend/fence.h"
#include "base/machine.h"
#include "base/memory.h"

enum { HUGE_PAGE = 2 << 20, HUGE_MIN_BYTES = 2 * HUGE_PAGE };

/* Huge pages reduce the TLB misses of strided accesses to rows. */
static void advise_huge_pages(void *base, size_t bytes)
{
    if (bytes >= HUGE_MIN_BYTES)
        madvise(base, bytes, MADV_HUGEPAGE);
}

nm_status nm_backend_alloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    *memory = NULL;
    if (inside->target)
        return inside->target->alloc(inside->device, bytes, memory, err);
    size_t size = bytes ? bytes : 1; /* mmap rejects 0 bytes */
    int access = inside->fenced ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *base = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return nm_fail(err, NM_MEMORY, "out of memory: cannot allocate %zu MiB for backend %s", bytes >> 20,
                       backend->name);
    advise_huge_pages(base, size);
    nm_fence_lock(inside);
    NM_APPEND(inside->regions, inside->n_regions, inside->regions_capacity, (nm_region){base, size});
    nm_fence_unlock(inside);
    *memory = base;
    return NM_OK;
}

static nm_region *find_region(const nm_backend_private *inside, const void *memory)
{
    size_t i = 0;
    while (i < inside->n_regions && inside->regions[i].base != memory)
        i++;
    NM_ASSERT(i < inside->n_regions);
    return &inside->regions[i];
}

static nm_status move_device_memory(nm_backend *backend, size_t bytes, void **memory, nm_error *err)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    const size_t before = inside->target->bytes_of(inside->device, *memory);
    void *moved;
    NM_ASSERT(bytes >= before);
    NM_TRY(inside->target->alloc(inside->device, bytes, &moved, err));
    NM_CALL(backend, copy, .from = *memory, .bytes = before, .to = moved);
    inside->target->dealloc(inside->device, *memory);
    *memory = moved;
    return NM_OK;
}

nm_status nm_backend_realloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err)
{
    if (!*memory)
        return nm_backend_alloc(backend, bytes, memory, err);
    if (nm_backend_inside(backend)->target)
        return move_device_memory(backend, bytes, memory, err);
    const nm_backend_private *inside = nm_backend_inside(backend);
    nm_fence_lock(inside);
    nm_region *region = find_region(inside, *memory);
    NM_ASSERT(bytes >= region->bytes);
    void *base = mremap(region->base, region->bytes, bytes, MREMAP_MAYMOVE);
    if (base != MAP_FAILED)
        *region = (nm_region){base, bytes};
    nm_fence_unlock(inside);
    if (base == MAP_FAILED)
        return nm_fail(err, NM_MEMORY, "out of memory: cannot allocate %zu MiB for backend %s", bytes >> 20,
                       backend->name);
    advise_huge_pages(base, bytes);
    *memory = base;
    return NM_OK;
}

void nm_backend_dealloc(nm_backend *backend, void *memory)
{
    if (!memory)
        return;
    nm_backend_private *inside = nm_backend_inside(backend);
    if (inside->target) {
        inside->target->dealloc(inside->device, memory);
        return;
    }
    nm_fence_lock(inside);
    nm_region *region = find_region(inside, memory);
    munmap(memory, region->bytes);
    *region = inside->regions[--inside->n_regions];
    nm_fence_unlock(inside);
}

nm_status nm_backend_reserve(nm_backend *backend, size_t bytes, void **memory, nm_error *err)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    return inside->target ? inside->target->reserve(inside->device, bytes, memory, err)
                          : nm_backend_alloc(backend, bytes, memory, err);
}

bool nm_backend_commit(nm_backend *backend, void *memory, size_t bytes)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    return !inside->target || inside->target->commit(inside->device, memory, bytes);
}

bool nm_backend_memory_is_separate(const nm_backend *backend)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    return inside->target || inside->fenced;
}

nm_status nm_backend_check(nm_backend *backend, nm_error *err)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    return inside->target ? inside->target->check(inside->device, err) : NM_OK;
}

int64_t nm_backend_waits(const nm_backend *backend)
{
    return nm_backend_inside(backend)->waits;
}

size_t nm_backend_memory(const nm_backend *backend)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    return inside->target ? inside->target->memory(inside->device) : nm_machine_memory();
}

void *nm_backend_scratch(nm_backend *backend, int slot, size_t bytes)
{
    NM_ASSERT(slot >= 0 && slot < NM_SCRATCH_SLOTS);
    nm_backend_private *inside = nm_backend_inside(backend);
    nm_region *scratch = &inside->scratch[slot];
    bool huge = bytes >= HUGE_MIN_BYTES;
    size_t page = huge ? HUGE_PAGE : 4096, rounded = (bytes + page - 1) / page * page;
    if (backend->dry_run) {
        if (inside->scratch_requested[slot] < rounded)
            inside->scratch_requested[slot] = rounded;
        return scratch->base;
    }
    if (scratch->bytes < bytes) {
        free(scratch->base);
        scratch->base = aligned_alloc(page, rounded);
        if (!scratch->base)
            nm_out_of_memory(rounded);
        if (huge)
            madvise(scratch->base, rounded, MADV_HUGEPAGE);
        scratch->bytes = rounded;
    }
    return scratch->base;
}

size_t nm_backend_scratch_bytes(const nm_backend *backend)
{
    size_t bytes = 0;
    for (int i = 0; i < NM_SCRATCH_SLOTS; i++)
        bytes += nm_backend_inside(backend)->scratch_requested[i];
    return bytes;
}
