/* Calls of the driver: their failures, the current context, and launches. */
#include "backend/device/cuda.h"

#include <string.h>

#include "backend/device/launch.h"

const char *nm_cuda_name_of(const nm_cuda_driver *driver, CUresult code)
{
    const char *name = NULL;
    return driver->cuGetErrorName(code, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

const char *nm_cuda_text_of(const nm_cuda_driver *driver, CUresult code)
{
    const char *text = NULL;
    return driver->cuGetErrorString(code, &text) == CUDA_SUCCESS && text ? text : "no description";
}

bool nm_cuda_ok(nm_cuda_stream *s, CUresult code, const char *call)
{
    if (code == CUDA_SUCCESS)
        return true;
    if (s->failure.status == NM_OK)
        nm_fail(&s->failure, code == CUDA_ERROR_OUT_OF_MEMORY ? NM_MEMORY : NM_DEVICE,
                "the GPU reported %s (%s) in %.*s%s%s", nm_cuda_name_of(&s->gpu->driver, code),
                nm_cuda_text_of(&s->gpu->driver, code), (int)strcspn(call, "_"), call,
                s->last_kernel ? "; the last kernel was " : "", s->last_kernel ? s->last_kernel : "");
    return false;
}

bool nm_cuda_enter(nm_cuda_stream *s)
{
    return nm_cuda_ok(s, s->gpu->driver.cuCtxSetCurrent(s->gpu->context), "cuCtxSetCurrent");
}

const nm_device_kernel *const nm_cuda_kernels[NM_CUDA_KERNELS] = {
#define K(name) &nm_device_##name,
    NM_DEVICE_KERNELS(K)
#undef K
};

void nm_cuda_launch(void *device, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                    const void *args)
{
    nm_cuda_stream *s = device;
    void *parameters[] = {(void *)(uintptr_t)args};
    int i = 0;
    while (i < NM_CUDA_KERNELS && nm_cuda_kernels[i] != kernel)
        i++;
    NM_ASSERT(i < NM_CUDA_KERNELS && blocks_x <= INT32_MAX && blocks_y <= 65535);
    if (s->failure.status == NM_OK)
        s->last_kernel = kernel->name;
    CUDA(s, cuLaunchKernel, s->gpu->functions[i], (unsigned)blocks_x, (unsigned)blocks_y, 1,
         (unsigned)kernel->threads, 1, 1, 0, s->stream, parameters, NULL);
}
