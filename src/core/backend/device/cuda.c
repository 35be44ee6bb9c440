/* The backend `cuda`: device kernels on an NVIDIA GPU, over the driver API. docs/gpu.md lists what was
 * never executed. */
#include "backend/device/cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/backend_private.h"
#include "backend/device/launch.h"
#include "base/memory.h"

enum { MIN_ARCH = 80, MAX_STREAMS = 4 };

static void finish(void *device)
{
    nm_cuda_stream *s = device;
    CUDA(s, cuStreamSynchronize, s->stream);
}

static nm_status check(void *device, nm_error *err)
{
    const nm_cuda_stream *s = device;
    if (s->failure.status != NM_OK && err)
        *err = s->failure;
    return s->failure.status;
}

static const char *level(void *device)
{
    return ((const nm_cuda_stream *)device)->gpu->level;
}

static void close_gpu(nm_cuda_gpu *gpu)
{
    if (gpu->module)
        gpu->driver.cuModuleUnload(gpu->module);
    if (gpu->context)
        gpu->driver.cuDevicePrimaryCtxRelease_v2(gpu->device);
    free(gpu);
}

static void close_stream(void *device)
{
    nm_cuda_stream *s = device;
    if (s->gpu->context) {
        nm_cuda_enter(s);
        finish(s);
        nm_cublas_close(s);
        nm_cuda_close_memory(s);
        if (s->stream)
            s->gpu->driver.cuStreamDestroy_v2(s->stream);
    }
    if (--s->gpu->n_streams == 0)
        close_gpu(s->gpu);
    free(s);
}

static nm_cuda_stream *create_stream(nm_cuda_gpu *gpu)
{
    nm_cuda_stream *s = nm_allocate(sizeof *s);
    s->gpu = gpu;
    gpu->n_streams++;
    return s;
}

static nm_status open_stream(nm_cuda_stream *s, nm_error *err)
{
    NM_TRY(nm_cuda_open_memory(s, err));
    return s->gpu->own_gemm ? NM_OK : nm_cublas_open(s, err);
}

/* A separate stream that is ordered with the default stream, which the main backend uses */
static nm_status create_worker(void *device, void **worker, nm_error *err)
{
    nm_cuda_enter(device);
    nm_cuda_stream *s = create_stream(((nm_cuda_stream *)device)->gpu);
    CUDA(s, cuStreamCreate, &s->stream, CU_STREAM_DEFAULT);
    nm_status status = s->failure.status == NM_OK ? open_stream(s, err) : check(s, err);
    NM_RETURN_NEW(status, worker, s, close_stream);
}

/* Driver and GPU */
static nm_status open_device(nm_cuda_gpu *gpu, int32_t ordinal, int *arch, nm_error *err)
{
    nm_cuda_driver *driver = &gpu->driver;
    int count = 0, major = 0, minor = 0;
    NM_TRY(nm_cuda_open_driver(driver, err));
    CUresult code = CUDA_SUCCESS;
    const char *call = NULL;
#define STEP(function, ...)                                                                                  \
    if (code == CUDA_SUCCESS) {                                                                              \
        call = #function;                                                                                    \
        code = driver->function(__VA_ARGS__);                                                                \
    }
    STEP(cuInit, 0)
    STEP(cuDeviceGetCount, &count)
    if (code == CUDA_ERROR_NO_DEVICE || (code == CUDA_SUCCESS && count == 0))
        return nm_fail(err, NM_UNSUPPORTED, "backend cuda: the driver found no GPU");
    if (code == CUDA_SUCCESS && ordinal >= count)
        return nm_fail(err, NM_USAGE, "device.ordinal = %d: this machine has %d GPU%s, numbered from 0",
                       (int)ordinal, count, count == 1 ? "" : "s");
    STEP(cuDeviceGet, &gpu->device, ordinal)
    STEP(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->device)
    STEP(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu->device)
    if (code != CUDA_SUCCESS)
        return nm_fail(err, NM_DEVICE, "backend cuda: %s: %s (%s)", call, nm_cuda_name_of(driver, code),
                       nm_cuda_text_of(driver, code));
    *arch = 10 * major + minor;
    if (*arch < MIN_ARCH)
        return nm_fail(err, NM_UNSUPPORTED,
                       "backend cuda: the GPU has compute capability %d.%d; 8.0 or higher is needed", major,
                       minor);
    STEP(cuDevicePrimaryCtxRetain, &gpu->context, gpu->device)
    return code == CUDA_SUCCESS ? NM_OK
                                : nm_fail(err, NM_DEVICE, "backend cuda: %s: %s (%s)", call,
                                          nm_cuda_name_of(driver, code), nm_cuda_text_of(driver, code));
#undef STEP
}

static nm_status open_kernels(nm_cuda_stream *s, int arch, const char *cache, nm_error *err)
{
    nm_cuda_gpu *gpu = s->gpu;
    nm_cuda_nvrtc nvrtc = {0};
    char *code;
    NM_TRY(nm_cuda_open_nvrtc(&nvrtc, err));
    NM_TRY(nm_cuda_compile(&nvrtc, NULL, arch, cache, &code, err));
    CUDA(s, cuModuleLoadData, &gpu->module, code);
    free(code);
    for (int i = 0; i < NM_CUDA_KERNELS; i++) {
        s->last_kernel = nm_cuda_kernels[i]->name;
        CUDA(s, cuModuleGetFunction, &gpu->functions[i], gpu->module, nm_cuda_kernels[i]->name);
    }
    return check(s, err);
}

static void cuda_upload(nm_backend *b, const nm_upload_args *args)
{
    nm_cuda_upload(nm_backend_inside(b)->device, args->device, args->host, args->bytes);
}

static void cuda_download(nm_backend *b, const nm_download_args *args)
{
    nm_backend_count_wait(b);
    nm_cuda_download(nm_backend_inside(b)->device, args->host, args->device, args->bytes);
}

static void cuda_copy(nm_backend *b, const nm_copy_args *args)
{
    nm_cuda_stream *s = nm_backend_inside(b)->device;
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)args->to;
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)args->from;
    if (args->bytes == 0 || to == from)
        return;
    if (to < from + args->bytes && from < to + args->bytes) { /* which the driver does not copy correctly */
        const CUdeviceptr apart = nm_cuda_scratch(s, NM_CUDA_COPY_SLOT, args->bytes);
        CUDA(s, cuMemcpyDtoDAsync_v2, apart, from, args->bytes, s->stream);
        from = apart;
    }
    CUDA(s, cuMemcpyDtoDAsync_v2, to, from, args->bytes, s->stream);
}

static void cuda_zero(nm_backend *b, const nm_zero_args *args)
{
    nm_cuda_stream *s = nm_backend_inside(b)->device;
    if (args->bytes)
        CUDA(s, cuMemsetD8Async, (CUdeviceptr)(uintptr_t)args->data, 0, args->bytes, s->stream);
}

static const nm_device_target cuda_target = {.alloc = nm_cuda_alloc,
                                             .reserve = nm_cuda_reserve,
                                             .commit = nm_cuda_commit,
                                             .dealloc = nm_cuda_dealloc,
                                             .bytes_of = nm_cuda_bytes_of,
                                             .scratch = nm_cuda_scratch,
                                             .launch = nm_cuda_launch,
                                             .product = nm_cublas_product,
                                             .finish = finish,
                                             .check = check,
                                             .memory = nm_cuda_memory,
                                             .level = level,
                                             .create_worker = create_worker,
                                             .close = close_stream};

nm_status nm_cuda_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    int arch = 0;
    if (options->dtype != NM_F32)
        return nm_fail(err, NM_UNSUPPORTED, "backend cuda computes in float32 only");
    if (options->ordinal < 0)
        return nm_fail(err, NM_USAGE, "the number of the GPU is %d", (int)options->ordinal);
    nm_cuda_gpu *gpu = nm_allocate(sizeof *gpu);
    nm_cuda_stream *s = create_stream(gpu);
    gpu->tf32 = options->tf32;
    gpu->own_gemm = options->own_gemm;
    inside->target = &cuda_target;
    inside->device = s;
    NM_TRY(open_device(gpu, options->ordinal, &arch, err));
    NM_TRY(open_kernels(s, arch, options->cache, err));
    s->last_kernel = NULL;
    NM_TRY(open_stream(s, err));
    /* What a resumed run compares: other products have other bits. */
    snprintf(gpu->isa, sizeof gpu->isa, "sm_%d", arch);
    if (gpu->own_gemm)
        snprintf(gpu->level, sizeof gpu->level, "cuda %s", gpu->isa);
    else
        snprintf(gpu->level, sizeof gpu->level, "cuda %s, cuBLASLt %zu", gpu->isa,
                 gpu->cublas.cublasLtGetVersion());
    backend->isa = gpu->isa;
    /* Threads are streams of a decoder; more than a few only share the GPU. */
    backend->threads = backend->threads < MAX_STREAMS ? backend->threads : MAX_STREAMS;
    backend->k =
        (nm_kernels){.upload = cuda_upload, .download = cuda_download, .copy = cuda_copy, .zero = cuda_zero};
    nm_device_fill(&backend->k);
    return NM_OK;
}
