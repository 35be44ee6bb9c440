/* Memory of a GPU: allocations, address space that becomes memory when it is needed, scratch memory, and
 * transfers through pinned memory. */
#include <stdlib.h>
#include <string.h>

#include "backend/device/cuda.h"
#include "base/memory.h"

enum { COMMIT_BYTES = 32 << 20 }; /* memory is mapped in pieces of this size */

nm_status nm_cuda_open_memory(nm_cuda_stream *s, nm_error *err)
{
    void *pinned = NULL;
    if (CUDA(s, cuMemHostAlloc, &pinned, (size_t)(NM_CUDA_SLOTS + 1) * NM_CUDA_SLOT_BYTES, 0))
        s->pinned = pinned;
    for (int i = 0; i <= NM_CUDA_SLOTS; i++)
        CUDA(s, cuEventCreate, &s->events[i], CU_EVENT_DISABLE_TIMING);
    if (s->failure.status == NM_OK)
        return NM_OK;
    *err = s->failure;
    return err->status;
}

size_t nm_cuda_memory(void *device)
{
    nm_cuda_stream *s = device;
    size_t available = 0, total = 0;
    CUDA(s, cuMemGetInfo_v2, &available, &total);
    return available;
}

/* NM_MEMORY with the number of free bytes, which is not a failure of the stream; or the failure */
static nm_status fail_alloc(nm_cuda_stream *s, CUresult code, size_t bytes, const char *call, nm_error *err)
{
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return nm_fail(err, NM_MEMORY, "out of memory: cannot allocate %zu MiB on the GPU, %zu MiB are free",
                       bytes >> 20, nm_cuda_memory(s) >> 20);
    nm_cuda_ok(s, code, call);
    if (err)
        *err = s->failure;
    return s->failure.status;
}

static nm_status check_before(nm_cuda_stream *s, nm_error *err)
{
    if (s->failure.status == NM_OK && nm_cuda_enter(s))
        return NM_OK;
    if (err)
        *err = s->failure;
    return s->failure.status;
}

static nm_status alloc_region(nm_cuda_stream *s, size_t bytes, nm_cuda_region *region, nm_error *err)
{
    const nm_cuda_driver *driver = &s->gpu->driver;
    CUdeviceptr memory = 0;
    const size_t size = bytes ? bytes : 1;
    NM_TRY(check_before(s, err));
    const CUresult code = driver->cuMemAlloc_v2(&memory, size);
    if (code != CUDA_SUCCESS)
        return fail_alloc(s, code, size, "cuMemAlloc", err);
    *region = (nm_cuda_region){.memory = memory, .bytes = size, .committed = size};
    return NM_OK;
}

static void *add_region(nm_cuda_stream *s, nm_cuda_region region)
{
    NM_APPEND(s->regions, s->n_regions, s->regions_capacity, region);
    return (void *)(uintptr_t)region.memory;
}

nm_status nm_cuda_alloc(void *device, size_t bytes, void **memory, nm_error *err)
{
    nm_cuda_stream *s = device;
    nm_cuda_region region;
    *memory = NULL;
    NM_TRY(alloc_region(s, bytes, &region, err));
    *memory = add_region(s, region);
    CUDA(s, cuMemsetD8Async, region.memory, 0, region.bytes, s->stream);
    return NM_OK;
}

static CUmemAllocationProp properties_of(const nm_cuda_gpu *gpu)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu->device;
    return properties;
}

nm_status nm_cuda_reserve(void *device, size_t bytes, void **memory, nm_error *err)
{
    nm_cuda_stream *s = device;
    *memory = NULL;
    const CUmemAllocationProp properties = properties_of(s->gpu);
    size_t unit = 0;
    NM_TRY(check_before(s, err));
    if (CUDA(s, cuMemGetAllocationGranularity, &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) {
        unit = unit < COMMIT_BYTES ? COMMIT_BYTES : unit;
        const size_t size = (bytes + unit) / unit * unit;
        CUdeviceptr address = 0;
        if (CUDA(s, cuMemAddressReserve, &address, size, 0, 0, 0)) {
            *memory = add_region(s, (nm_cuda_region){.memory = address, .bytes = size, .reserved = true});
            return NM_OK;
        }
    }
    *err = s->failure;
    return err->status;
}

static nm_cuda_region *find_region(const nm_cuda_stream *s, const void *memory)
{
    size_t i = 0;
    while (i < s->n_regions && s->regions[i].memory != (CUdeviceptr)(uintptr_t)memory)
        i++;
    NM_ASSERT(i < s->n_regions);
    return &s->regions[i];
}

bool nm_cuda_commit(void *device, void *memory, size_t bytes)
{
    nm_cuda_stream *s = device;
    nm_cuda_region *region = find_region(s, memory);
    NM_ASSERT(bytes <= region->bytes);
    if (bytes <= region->committed)
        return true;
    const CUmemAllocationProp properties = properties_of(s->gpu);
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t more = (bytes - region->committed + COMMIT_BYTES - 1) / COMMIT_BYTES * COMMIT_BYTES;
    const CUdeviceptr at = region->memory + region->committed;
    CUmemGenericAllocationHandle handle = 0;
    if (check_before(s, NULL) != NM_OK)
        return false;
    const CUresult code = s->gpu->driver.cuMemCreate(&handle, more, &properties, 0);
    if (code != CUDA_SUCCESS) {
        fail_alloc(s, code, more, "cuMemCreate", NULL);
        return false;
    }
    const bool mapped = CUDA(s, cuMemMap, at, more, 0, handle, 0);
    /* Mapped memory stays until it is unmapped. */
    nm_cuda_ok(s, s->gpu->driver.cuMemRelease(handle), "cuMemRelease");
    if (!mapped)
        return false;
    region->committed += more;
    return CUDA(s, cuMemSetAccess, at, more, &access, 1) && CUDA(s, cuMemsetD8Async, at, 0, more, s->stream);
}

size_t nm_cuda_bytes_of(void *device, const void *memory)
{
    return find_region(device, memory)->bytes;
}

/* Also after a failure, without changing it */
static void free_region(nm_cuda_stream *s, const nm_cuda_region *region)
{
    const nm_cuda_driver *driver = &s->gpu->driver;
    nm_cuda_enter(s);
    if (!region->reserved) {
        nm_cuda_ok(s, driver->cuMemFree_v2(region->memory), "cuMemFree");
        return;
    }
    if (region->committed)
        nm_cuda_ok(s, driver->cuMemUnmap(region->memory, region->committed), "cuMemUnmap");
    nm_cuda_ok(s, driver->cuMemAddressFree(region->memory, region->bytes), "cuMemAddressFree");
}

void nm_cuda_dealloc(void *device, void *memory)
{
    nm_cuda_stream *s = device;
    nm_cuda_region *region = find_region(s, memory);
    CUDA(s, cuStreamSynchronize, s->stream); /* kernels of earlier calls use it */
    free_region(s, region);
    *region = s->regions[--s->n_regions];
}

dptr nm_cuda_scratch(void *device, int slot, size_t bytes)
{
    nm_cuda_stream *s = device;
    nm_cuda_region *scratch = &s->scratch[slot];
    NM_ASSERT(slot >= 0 && slot < NM_CUDA_SCRATCH);
    if (scratch->bytes >= bytes && scratch->memory)
        return scratch->memory;
    if (scratch->memory) {
        CUDA(s, cuStreamSynchronize, s->stream);
        free_region(s, scratch);
    }
    *scratch = (nm_cuda_region){0};
    nm_error err = {0};
    /* a quarter more, so that batches of slowly growing size do not allocate again and again */
    if (alloc_region(s, bytes + bytes / 4 + 256, scratch, &err) != NM_OK && s->failure.status == NM_OK)
        s->failure = err;
    return scratch->memory;
}

void nm_cuda_close_memory(nm_cuda_stream *s)
{
    const nm_cuda_driver *driver = &s->gpu->driver;
    for (size_t i = 0; i < s->n_regions; i++)
        free_region(s, &s->regions[i]);
    for (int i = 0; i < NM_CUDA_SCRATCH; i++)
        if (s->scratch[i].memory)
            free_region(s, &s->scratch[i]);
    for (int i = 0; i <= NM_CUDA_SLOTS; i++)
        if (s->events[i])
            nm_cuda_ok(s, driver->cuEventDestroy_v2(s->events[i]), "cuEventDestroy");
    if (s->pinned)
        nm_cuda_ok(s, driver->cuMemFreeHost(s->pinned), "cuMemFreeHost");
    free(s->regions);
}

void nm_cuda_upload(nm_cuda_stream *s, void *to, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done, n = left < NM_CUDA_SLOT_BYTES ? left : NM_CUDA_SLOT_BYTES;
        const int slot = s->next_slot;
        char *pinned = s->pinned + (size_t)slot * NM_CUDA_SLOT_BYTES;
        if (!CUDA(s, cuEventSynchronize, s->events[slot]))
            return;
        memcpy(pinned, (const char *)from + done, n);
        CUDA(s, cuMemcpyHtoDAsync_v2, (CUdeviceptr)(uintptr_t)to + done, pinned, n, s->stream);
        CUDA(s, cuEventRecord, s->events[slot], s->stream);
        s->next_slot = (slot + 1) % NM_CUDA_SLOTS;
        done += n;
    }
}

void nm_cuda_download(nm_cuda_stream *s, void *to, const void *from, size_t bytes)
{
    const CUevent event = s->events[NM_CUDA_SLOTS];
    char *pinned = s->pinned + (size_t)NM_CUDA_SLOTS * NM_CUDA_SLOT_BYTES;
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done, n = left < NM_CUDA_SLOT_BYTES ? left : NM_CUDA_SLOT_BYTES;
        if (CUDA(s, cuMemcpyDtoHAsync_v2, pinned, (CUdeviceptr)(uintptr_t)from + done, n, s->stream) &&
            CUDA(s, cuEventRecord, event, s->stream) && CUDA(s, cuEventSynchronize, event))
            memcpy((char *)to + done, pinned, n);
        else
            memset((char *)to + done, 0, n);
        done += n;
    }
}
