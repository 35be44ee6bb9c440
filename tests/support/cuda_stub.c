/* libcuda.so.1 of the stub (cuda_stub.h). NORMA_STUB=FUNCTION:N:CODE in the environment is stub_fail;
 * NORMA_STUB_ARCH=80 and NORMA_STUB_GPUS=0 change the GPU, NORMA_STUB_MIB its memory. */
#include "cuda_stub.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/device/launch.h"
#include "base/memory.h"
#include "device/instructions.h"

#define F(type, name, parameters) STUB_EXPORT type name parameters;
NM_CUDA_DRIVER(F)
#undef F

enum { MAX_FUNCTIONS = 128, MAX_REGIONS = 1 << 14, PAGE = 4096 };
static const size_t window_bytes = (size_t)16 << 30;

typedef struct region {
    CUdeviceptr address;
    size_t bytes, mapped;
    bool reserved;
} region;

typedef struct operation {
    struct operation *next;
    uint64_t number;
    void (*run)(void *);
    _Alignas(16) char data[];
} operation;

struct CUstream_st {
    uint64_t last;
};
struct CUevent_st {
    uint64_t number;
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct {
    const char *names[MAX_FUNCTIONS];
    int calls[MAX_FUNCTIONS], n, live, sticky;
    char fail[64];
    int fail_at, fail_code;
    char *memory; /* where kernels find it */
    CUdeviceptr base;
    size_t used, allocated, limit;
    int file, arch, gpus, n_regions, n_handles;
    region regions[MAX_REGIONS];
    size_t handles[MAX_REGIONS];
    operation *first, **end;
    uint64_t queued, executed;
    struct CUstream_st default_stream;
    bool ready, initialized;
} stub;

static _Thread_local CUcontext current;

STUB_EXPORT void stub_panic(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "CUDA stub: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}

static long number_in(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? atol(text) : otherwise;
}

static void prepare(void)
{
    if (stub.ready)
        return;
    stub.ready = true;
    stub.arch = (int)number_in("NORMA_STUB_ARCH", 90);
    stub.gpus = (int)number_in("NORMA_STUB_GPUS", 1);
    stub.limit = (size_t)number_in("NORMA_STUB_MIB", 8192) << 20;
    const char *fail = getenv("NORMA_STUB");
    if (fail && sscanf(fail, "%63[^:]:%d:%d", stub.fail, &stub.fail_at, &stub.fail_code) != 3)
        stub_panic("NORMA_STUB=%s", fail);
    stub.end = &stub.first;
    stub.file = memfd_create("stub", MFD_CLOEXEC);
    if (stub.file < 0 || ftruncate(stub.file, (off_t)window_bytes))
        stub_panic("memfd_create");
    stub.memory = mmap(NULL, window_bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, stub.file, 0);
    if (stub.memory == MAP_FAILED)
        stub_panic("no address space");
    stub.base = (CUdeviceptr)(uintptr_t)stub.memory - NM_EMULATOR_OFFSET;
    void *window = mmap((void *)(uintptr_t)stub.base, window_bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (window != (void *)(uintptr_t)stub.base)
        stub_panic("another mapping is in the window of device addresses");
}

static int enter(const char *function)
{
    int i = 0;
    prepare();
    while (i < stub.n && strcmp(stub.names[i], function))
        i++;
    if (i == stub.n)
        stub.names[stub.n++] = function;
    stub.calls[i]++;
    if (stub.fail_at > 0 && !strcmp(function, stub.fail) && --stub.fail_at == 0)
        return stub.fail_code;
    return 0;
}

STUB_EXPORT int stub_enter(const char *function)
{
    pthread_mutex_lock(&lock);
    const int code = enter(function);
    pthread_mutex_unlock(&lock);
    return code;
}

STUB_EXPORT void stub_count(int change)
{
    pthread_mutex_lock(&lock);
    stub.live += change;
    pthread_mutex_unlock(&lock);
}

STUB_EXPORT void stub_fail(const char *function, int n, int code)
{
    prepare();
    snprintf(stub.fail, sizeof stub.fail, "%s", function);
    stub.fail_at = n;
    stub.fail_code = code;
}

STUB_EXPORT int stub_calls(const char *function)
{
    int sum = 0;
    for (int i = 0; i < stub.n; i++)
        sum += !function || !strcmp(stub.names[i], function) ? stub.calls[i] : 0;
    return sum;
}

STUB_EXPORT const char *stub_function(int i)
{
    return i < stub.n ? stub.names[i] : NULL;
}

STUB_EXPORT int stub_live(void)
{
    return stub.live;
}

STUB_EXPORT void stub_reset(void)
{
    memset(stub.calls, 0, sizeof stub.calls);
    stub.n = stub.fail_at = stub.sticky = 0;
}

/* Executes queued operations up to this number. Returns the sticky error. */
static int drain(uint64_t number)
{
    while (stub.first && stub.first->number <= number) {
        operation *op = stub.first;
        stub.first = op->next;
        if (!stub.first)
            stub.end = &stub.first;
        stub.executed = op->number;
        const int code = enter("execute");
        if (code)
            stub.sticky = code;
        if (!stub.sticky)
            op->run(op->data);
        free(op);
    }
    return stub.sticky;
}

static void enqueue(CUstream stream, void (*run)(void *), const void *data, size_t bytes)
{
    operation *op = malloc(sizeof *op + bytes);
    struct CUstream_st *queue = stream ? stream : &stub.default_stream;
    op->next = NULL;
    op->run = run;
    op->number = ++stub.queued;
    memcpy(op->data, data, bytes);
    *stub.end = op;
    stub.end = &op->next;
    queue->last = op->number;
}

STUB_EXPORT void stub_enqueue(CUstream stream, void (*run)(void *), const void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    enqueue(stream, run, data, bytes);
    pthread_mutex_unlock(&lock);
}

static region *region_of(CUdeviceptr address)
{
    for (int i = 0; i < stub.n_regions; i++)
        if (address >= stub.regions[i].address && address - stub.regions[i].address < stub.regions[i].bytes)
            return &stub.regions[i];
    return NULL;
}

static void *memory_at(CUdeviceptr address, size_t bytes)
{
    const region *found = region_of(address);
    if (!found || address + bytes > found->address + (found->reserved ? found->mapped : found->bytes))
        stub_panic("device memory %#llx of %zu bytes is not allocated", address, bytes);
    return (char *)(uintptr_t)(address + NM_EMULATOR_OFFSET);
}

STUB_EXPORT void *stub_memory(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&lock);
    void *memory = memory_at(address, bytes);
    pthread_mutex_unlock(&lock);
    return memory;
}

/* What the emulator needs of the library */
void *nm_allocate(size_t bytes)
{
    return calloc(1, bytes);
}

void nm_out_of_memory(size_t bytes)
{
    stub_panic("out of memory: %zu bytes", bytes);
}

void nm_panic(const char *file, int line, const char *what)
{
    stub_panic("%s:%d: %s", file, line, what);
}

STUB_EXPORT void stub_run_gemm(const struct gemm_args *args)
{
    nm_emulator_run(&nm_device_gemm, nm_device_blocks(args->c.rows, 64), nm_device_blocks(args->c.cols, 64),
                    1, args);
}

static region *new_region(size_t bytes)
{
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    if (stub.n_regions == 0)
        stub.used = 0;
    if (stub.n_regions == MAX_REGIONS || stub.used + whole + PAGE > window_bytes)
        stub_panic("the stub has no address space left");
    region *made = &stub.regions[stub.n_regions++];
    /* at the end of its last page, so that an overrun crashes; aligned to 256 bytes as cuMemAlloc */
    *made = (region){.address = stub.base + stub.used + (whole - bytes) / 256 * 256, .bytes = bytes};
    stub.used += whole + PAGE;
    stub.live++;
    return made;
}

static void make_accessible(CUdeviceptr address, size_t bytes)
{
    const CUdeviceptr first = address / PAGE * PAGE;
    const size_t whole = (size_t)(address + bytes - first + PAGE - 1) / PAGE * PAGE;
    char *memory = (char *)(uintptr_t)(first + NM_EMULATOR_OFFSET);
    if (mprotect(memory, whole, PROT_READ | PROT_WRITE))
        stub_panic("mprotect");
    if (bytes <= 1 << 20) /* larger memory stays sparse */
        memset(memory + (address - first), 0xFF, bytes);
}

static void make_inaccessible(CUdeviceptr address, size_t bytes)
{
    const CUdeviceptr first = address / PAGE * PAGE;
    const size_t whole = (size_t)(address + bytes - first + PAGE - 1) / PAGE * PAGE;
    mprotect((void *)(uintptr_t)(first + NM_EMULATOR_OFFSET), whole, PROT_NONE);
    fallocate(stub.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(first - stub.base),
              (off_t)whole);
}

/* Under the lock, with the result of a function that needs a context and reports earlier errors */
#define BEGIN(name)                                                                                          \
    pthread_mutex_lock(&lock);                                                                               \
    int code = enter(#name);                                                                                 \
    if (!stub.initialized)                                                                                   \
        stub_panic("%s before cuInit", #name);                                                               \
    if (!current)                                                                                            \
        stub_panic("%s without a current context", #name);                                                   \
    if (!code && stub.sticky)                                                                                \
        code = stub.sticky;                                                                                  \
    if (!code) {
#define END                                                                                                  \
    }                                                                                                        \
    pthread_mutex_unlock(&lock);                                                                             \
    return code

CUresult cuInit(unsigned flags)
{
    STUB(cuInit);
    stub.initialized = flags == 0;
    return stub.gpus ? 0 : CUDA_ERROR_NO_DEVICE;
}

CUresult cuGetErrorName(CUresult code, const char **text)
{
    *text = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                          : "CUDA_ERROR_STUB";
    return 0;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
    *text = code == 2     ? "out of memory"
            : code == 700 ? "an illegal memory access was encountered"
                          : "failure of the stub";
    return 0;
}

CUresult cuDeviceGetCount(int *count)
{
    STUB(cuDeviceGetCount);
    *count = stub.gpus;
    return 0;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    STUB(cuDeviceGet);
    *device = 7 + ordinal;
    return 0;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    STUB(cuDeviceGetName);
    snprintf(name, (size_t)bytes, "stub %d", device);
    return 0;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    STUB(cuDeviceGetAttribute);
    if (device < 7)
        stub_panic("device %d", device);
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? stub.arch / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? stub.arch % 10
                                                                         : 1;
    return 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    STUB(cuDevicePrimaryCtxRetain);
    *context = (CUcontext)(uintptr_t)(1000 + device);
    stub_count(1);
    return 0;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const int code = stub_enter("cuDevicePrimaryCtxRelease_v2");
    (void)device;
    stub_count(-1);
    return code;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    STUB(cuCtxSetCurrent);
    current = context;
    return 0;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    BEGIN(cuModuleLoadData)
    if (strncmp(image, "STUB CODE", 9))
        stub_panic("code that the stub's NVRTC did not compile");
    *module = (CUmodule)(uintptr_t)2000;
    stub.live++;
    END;
}

CUresult cuModuleUnload(CUmodule module)
{
    const int code = stub_enter("cuModuleUnload");
    (void)module;
    stub_count(-1);
    return code;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    BEGIN(cuModuleGetFunction)
    static const nm_device_kernel *const kernels[] = {
#define K(kernel) &nm_device_##kernel,
        NM_DEVICE_KERNELS(K) INSTRUCTION_KERNELS(K)
#undef K
    };
    *function = NULL;
    for (size_t i = 0; module && i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i]->name, name))
            *function = (CUfunction)(uintptr_t)kernels[i];
    code = *function ? 0 : 500;
    END;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    BEGIN(cuMemGetInfo_v2)
    *available = stub.limit - stub.allocated;
    *total = stub.limit;
    END;
}

static int allocate(CUdeviceptr *memory, size_t bytes)
{
    if (bytes == 0)
        return 1;
    if (stub.allocated + bytes > stub.limit)
        return CUDA_ERROR_OUT_OF_MEMORY;
    region *made = new_region(bytes);
    stub.allocated += bytes;
    make_accessible(made->address, bytes);
    *memory = made->address;
    return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes)
{
    BEGIN(cuMemAlloc_v2)
    code = allocate(memory, bytes);
    END;
}

static region *exact_region(CUdeviceptr address)
{
    region *found = region_of(address);
    if (!found || found->address != address)
        stub_panic("freeing %#llx, which is not allocated", address);
    return found;
}

static void remove_region(region *found)
{
    *found = stub.regions[--stub.n_regions];
    stub.live--;
}

/* Destroying functions do their work even if they report an earlier error. */
CUresult cuMemFree_v2(CUdeviceptr memory)
{
    pthread_mutex_lock(&lock);
    int code = enter("cuMemFree_v2");
    drain(UINT64_MAX);
    region *found = exact_region(memory);
    make_inaccessible(found->address, found->bytes);
    stub.allocated -= found->bytes;
    remove_region(found);
    pthread_mutex_unlock(&lock);
    return code ? code : stub.sticky;
}

CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN(cuMemHostAlloc)
    (void)flags;
    *memory = malloc(bytes);
    memset(*memory, 0xFF, bytes);
    stub.live++;
    END;
}

CUresult cuMemFreeHost(void *memory)
{
    const int code = stub_enter("cuMemFreeHost");
    free(memory);
    stub_count(-1);
    return code;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    BEGIN(cuMemGetAllocationGranularity)
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->location.id < 7 ||
        option != CU_MEM_ALLOC_GRANULARITY_MINIMUM)
        stub_panic("properties of memory");
    *bytes = 2 << 20;
    END;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    BEGIN(cuMemAddressReserve)
    if (alignment || wanted || flags || bytes % (2 << 20))
        stub_panic("cuMemAddressReserve of %zu bytes", bytes);
    region *made = new_region(bytes);
    made->reserved = true;
    *address = made->address;
    END;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const int code = enter("cuMemAddressFree");
    region *found = exact_region(address);
    if (found->mapped || found->bytes != bytes)
        stub_panic("cuMemAddressFree of memory that is mapped, or of another size");
    remove_region(found);
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    BEGIN(cuMemCreate)
    if (bytes % (2 << 20) || flags || properties->location.id < 7)
        stub_panic("cuMemCreate");
    if (stub.allocated + bytes > stub.limit || stub.n_handles + 1 == MAX_REGIONS)
        code = CUDA_ERROR_OUT_OF_MEMORY;
    else {
        stub.allocated += bytes;
        stub.handles[++stub.n_handles] = bytes;
        *handle = (CUmemGenericAllocationHandle)stub.n_handles;
        stub.live++;
    }
    END;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&lock);
    const int code = enter("cuMemRelease");
    if (handle == 0 || (int)handle > stub.n_handles)
        stub_panic("cuMemRelease");
    stub.live--;
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    BEGIN(cuMemMap)
    region *found = region_of(address);
    if (!found || !found->reserved || address != found->address + found->mapped || offset || flags ||
        stub.handles[handle] != bytes || found->mapped + bytes > found->bytes)
        stub_panic("cuMemMap of %zu bytes", bytes);
    found->mapped += bytes;
    END;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const int code = enter("cuMemUnmap");
    drain(UINT64_MAX);
    region *found = exact_region(address);
    if (found->mapped != bytes)
        stub_panic("cuMemUnmap of %zu bytes of %zu", bytes, found->mapped);
    make_inaccessible(address, bytes);
    stub.allocated -= bytes;
    found->mapped = 0;
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    BEGIN(cuMemSetAccess)
    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || access->location.id < 7)
        stub_panic("cuMemSetAccess");
    memory_at(address, bytes);
    make_accessible(address, bytes);
    END;
}

typedef struct transfer {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} transfer;

static void run_copy(void *data)
{
    const transfer *t = data;
    memmove(t->to, t->from, t->bytes);
}

static void run_set(void *data)
{
    const transfer *t = data;
    memset(t->to, t->value, t->bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyHtoDAsync_v2)
    const transfer t = {memory_at(to, bytes), from, bytes, 0};
    enqueue(stream, run_copy, &t, sizeof t);
    END;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyDtoHAsync_v2)
    const transfer t = {to, memory_at(from, bytes), bytes, 0};
    enqueue(stream, run_copy, &t, sizeof t);
    END;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyDtoDAsync_v2)
    const transfer t = {memory_at(to, bytes), memory_at(from, bytes), bytes, 0};
    if (to < from + bytes && from < to + bytes)
        stub_panic("cuMemcpyDtoDAsync of memory that overlaps");
    enqueue(stream, run_copy, &t, sizeof t);
    END;
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream)
{
    BEGIN(cuMemsetD8Async)
    const transfer t = {memory_at(memory, bytes), NULL, bytes, value};
    /* Memory that was never touched is zero already, and stays sparse. */
    if (value || bytes <= 1 << 20 || !region_of(memory)->reserved)
        enqueue(stream, run_set, &t, sizeof t);
    END;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    BEGIN(cuStreamCreate)
    if (flags != CU_STREAM_DEFAULT)
        stub_panic("a stream that is not ordered with the default stream");
    *stream = calloc(1, sizeof **stream);
    stub.live++;
    END;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    const int code = stub_enter("cuStreamDestroy_v2");
    free(stream);
    stub_count(-1);
    return code;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    BEGIN(cuStreamSynchronize)
    code = drain(stream ? stream->last : stub.default_stream.last);
    END;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    BEGIN(cuEventCreate)
    (void)flags;
    *event = calloc(1, sizeof **event);
    stub.live++;
    END;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    const int code = stub_enter("cuEventDestroy_v2");
    free(event);
    stub_count(-1);
    return code;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    BEGIN(cuEventRecord)
    event->number = stream ? stream->last : stub.default_stream.last;
    END;
}

CUresult cuEventSynchronize(CUevent event)
{
    BEGIN(cuEventSynchronize)
    code = drain(event->number);
    END;
}

typedef struct launch {
    const nm_device_kernel *kernel;
    int64_t x, y;
    _Alignas(16) char args[2048];
} launch;

static void run_launch(void *data)
{
    const launch *l = data;
    nm_emulator_run(l->kernel, l->x, l->y, 2, l->args);
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                        unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    BEGIN(cuLaunchKernel)
    launch l = {.kernel = (const nm_device_kernel *)(uintptr_t)function, .x = blocks_x, .y = blocks_y};
    if ((int)threads_x != l.kernel->threads || threads_y != 1 || threads_z != 1 || blocks_z != 1 ||
        shared_bytes || extra || !blocks_x || !blocks_y || blocks_y > 65535 ||
        l.kernel->args_bytes > sizeof l.args)
        stub_panic("launch of %s with a grid of %u x %u", l.kernel->name, blocks_x, blocks_y);
    memcpy(l.args, parameters[0], l.kernel->args_bytes);
    enqueue(stream, run_launch, &l, sizeof l);
    END;
}
