/* What the files of the CUDA target share: the GPU, its streams, and their failures. */
#pragma once

#include "backend/device/cuda_api.h"
#include "backend/device/target.h"

/* Libraries (cuda_library.c). An open library is never unloaded. NM_UNSUPPORTED: it is missing, with the
 * command that installs it, or it lacks a function. */
nm_status nm_cuda_open_driver(nm_cuda_driver *driver, nm_error *err);
nm_status nm_cuda_open_nvrtc(nm_cuda_nvrtc *nvrtc, nm_error *err);
nm_status nm_cuda_open_cublas(nm_cuda_cublas *cublas, nm_error *err);

/* Compiles all kernels (source NULL), or those of a test, for compute capability arch / 10 . arch % 10
 * (cuda_compile.c). *code: heap. Machine code, or PTX if this NVRTC does not know the architecture. Reads and
 * writes the cache folder (NULL: none). A cache that cannot be written is no error, and a damaged entry is
 * compiled again.
 * NM_UNSUPPORTED  the kernels do not compile, with the first line of the log
 * NM_DEVICE  NVRTC reported an error */
nm_status nm_cuda_compile(const nm_cuda_nvrtc *nvrtc, const char *source, int arch, const char *cache,
                          char **code, nm_error *err);

enum {
    NM_CUDA_KERNELS = 0
#define K(name) +1
    NM_DEVICE_KERNELS(K)
#undef K
};

/* A GPU, shared by the streams of a backend and of its workers */
typedef struct nm_cuda_gpu {
    nm_cuda_driver driver;
    nm_cuda_cublas cublas; /* zero with own_gemm */
    bool tf32, own_gemm;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction functions[NM_CUDA_KERNELS]; /* in the order of NM_DEVICE_KERNELS */
    int n_streams;                         /* that use it */
    char isa[16], level[64];
} nm_cuda_gpu;

typedef struct nm_cuda_region {
    CUdeviceptr memory;
    size_t bytes, committed;
    bool reserved; /* address space, of which the first `committed` bytes are mapped */
} nm_cuda_region;

/* Pinned memory for transfers: uploads use the slots in turn, each of which waits for its previous one. */
enum { NM_CUDA_SLOTS = 4, NM_CUDA_SLOT_BYTES = 1 << 20 };
enum { NM_CUDA_SCRATCH = 12, NM_CUDA_WORKSPACE_SLOT = 8, NM_CUDA_OPERAND_SLOT = 9, NM_CUDA_COPY_SLOT = 11 };
enum { NM_CUDA_WORKSPACE_BYTES = 32 << 20 }; /* of cuBLASLt, for every product */

struct nm_cuda_plan; /* of a matrix product (cublas.c) */

/* The calls of one backend or worker, in order. The main backend has the legacy default stream, with which
 * the streams of workers are ordered. */
typedef struct nm_cuda_stream {
    nm_cuda_gpu *gpu;
    CUstream stream;
    nm_error failure;        /* the first one; status NM_OK: none */
    const char *last_kernel; /* launched */
    char *pinned;            /* NM_CUDA_SLOTS + 1 slots; the last one is for downloads */
    CUevent events[NM_CUDA_SLOTS + 1];
    int next_slot;
    nm_cuda_region *regions;
    size_t n_regions, regions_capacity;
    nm_cuda_region scratch[NM_CUDA_SCRATCH];
    cublasLtHandle_t cublas;
    struct nm_cuda_plan *plans;
    size_t n_plans, plans_capacity;
    struct vec_args vec; /* operations that the next other call launches first */
} nm_cuda_stream;

extern const nm_device_kernel *const nm_cuda_kernels[NM_CUDA_KERNELS];

/* Name and description of a code; never NULL (cuda_call.c) */
const char *nm_cuda_name_of(const nm_cuda_driver *driver, CUresult code);
const char *nm_cuda_text_of(const nm_cuda_driver *driver, CUresult code);
/* Keeps the first failure; returns whether the code is success. call: name of the function */
bool nm_cuda_ok(nm_cuda_stream *s, CUresult code, const char *call);
/* Calls a function of the driver in the context of the GPU, unless a call has failed: true on success. */
#define CUDA(s, call, ...)                                                                                   \
    nm_cuda_all((s)->failure.status == NM_OK && nm_cuda_enter(s) &&                                          \
                nm_cuda_ok((s), (s)->gpu->driver.call(__VA_ARGS__), #call))
/* Launches the operations on vectors that wait. */
bool nm_cuda_enter(nm_cuda_stream *s);
static inline bool nm_cuda_all(bool ok) /* a value that need not be used */
{
    return ok;
}

/* Memory and transfers (cuda_memory.c) */
nm_status nm_cuda_open_memory(nm_cuda_stream *s, nm_error *err);
void nm_cuda_close_memory(nm_cuda_stream *s);
nm_status nm_cuda_alloc(void *device, size_t bytes, void **memory, nm_error *err);
nm_status nm_cuda_reserve(void *device, size_t bytes, void **memory, nm_error *err);
bool nm_cuda_commit(void *device, void *memory, size_t bytes);
void nm_cuda_dealloc(void *device, void *memory);
size_t nm_cuda_bytes_of(void *device, const void *memory);
dptr nm_cuda_scratch(void *device, int slot, size_t bytes);
size_t nm_cuda_memory(void *device);
void nm_cuda_upload(nm_cuda_stream *s, void *to, const void *from, size_t bytes);
/* Zeros after a failure */
void nm_cuda_download(nm_cuda_stream *s, void *to, const void *from, size_t bytes);

/* Matrix products by cuBLASLt (cublas.c) */
nm_status nm_cublas_open(nm_cuda_stream *s, nm_error *err);
void nm_cublas_close(nm_cuda_stream *s);
bool nm_cublas_product(void *device, const struct gemm_args *args, bool rounded);

/* Launches a kernel (cuda_call.c). Consecutive operations on vectors of one length are one launch, unless
 * workers use the GPU. */
void nm_cuda_launch(void *device, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                    const void *args);
