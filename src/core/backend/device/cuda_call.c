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

const nm_device_kernel *const nm_cuda_kernels[NM_CUDA_KERNELS] = {
#define K(name) &nm_device_##name,
    NM_DEVICE_KERNELS(K)
#undef K
};

static void launch(nm_cuda_stream *s, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                   const void *args)
{
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

static void launch_vec(nm_cuda_stream *s)
{
    if (!s->vec.count)
        return;
    const struct vec_args vec = s->vec;
    s->vec.count = 0; /* launching enters again */
    launch(s, &nm_device_vec, nm_device_blocks(vec.n, 128), 1, &vec);
}

bool nm_cuda_enter(nm_cuda_stream *s)
{
    launch_vec(s);
    return nm_cuda_ok(s, s->gpu->driver.cuCtxSetCurrent(s->gpu->context), "cuCtxSetCurrent");
}

/* Whether vectors of n elements have some elements in common, but not all */
static bool is_shifted(dptr a, dptr b, int n)
{
    const dptr apart = a > b ? a - b : b - a;
    return apart != 0 && apart < (dptr)n * sizeof(float);
}

/* Whether an operation can be in one launch with the ones that wait */
static bool joins(const struct vec_args *vec, const struct vec_args *one)
{
    const struct vec_item *next = one->list;
    bool joins = vec->n == one->n && vec->count < VEC_LIST;
    for (int k = 0; joins && k < vec->count; k++) {
        const struct vec_item *v = &vec->list[k];
        joins = !is_shifted(v->out, next->a, one->n) && !is_shifted(v->out, next->b, one->n) &&
                !is_shifted(v->out, next->c, one->n) && !is_shifted(v->out, next->out, one->n) &&
                !is_shifted(v->a, next->out, one->n) && !is_shifted(v->b, next->out, one->n) &&
                !is_shifted(v->c, next->out, one->n);
    }
    return joins;
}

void nm_cuda_launch(void *device, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                    const void *args)
{
    nm_cuda_stream *s = device;
    const struct vec_args *one = args;
    if (kernel != &nm_device_vec || !joins(&s->vec, one))
        launch_vec(s);
    if (kernel != &nm_device_vec || s->gpu->n_streams > 1) {
        launch(s, kernel, blocks_x, blocks_y, args);
    } else {
        s->vec.list[s->vec.count++] = one->list[0];
        s->vec.n = one->n;
    }
}
