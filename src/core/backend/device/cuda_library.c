/* Opens NVIDIA's libraries at run time. */
#include <dlfcn.h>

#include "backend/device/cuda.h"

typedef struct cuda_library {
    const char *names[4]; /* the first one that is found; names[0] is that of messages */
    const char *install;
} cuda_library;

static const cuda_library driver_library = {
    {"libcuda.so.1"},
    "it is part of NVIDIA's driver: apt-get install nvidia-driver (Debian: non-free), then restart"};
static const cuda_library nvrtc_library = {
    {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
    "pip install nvidia-cuda-nvrtc, or install NVIDIA's CUDA toolkit; a folder that the system does not "
    "search is added with LD_LIBRARY_PATH"};
static const cuda_library cublas_library = {
    {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
    "pip install nvidia-cublas, or install NVIDIA's CUDA toolkit; a folder that the system does not search "
    "is added with LD_LIBRARY_PATH; device.gemm = own needs no cuBLAS"};

static nm_status open_library(const cuda_library *library, void **handle, nm_error *err)
{
    for (int i = 0; !*handle && library->names[i]; i++)
        *handle = dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*handle)
        return NM_OK;
    return nm_fail(err, NM_UNSUPPORTED, "backend cuda: %s cannot be loaded: %s", library->names[0],
                   library->install);
}

/* A library keeps running after dlclose (RTLD_NODELETE): drivers have threads. */
#define OPEN(table, LIST, library)                                                                           \
    void *handle = NULL;                                                                                     \
    const char *missing = NULL;                                                                              \
    NM_TRY(open_library(&(library), &handle, err));                                                          \
    LIST(FIND)                                                                                               \
    dlclose(handle);                                                                                         \
    if (!missing)                                                                                            \
        return NM_OK;                                                                                        \
    return nm_fail(err, NM_UNSUPPORTED, "backend cuda: %s has no function %s: Norma needs CUDA 12 or newer", \
                   (library).names[0], missing)
#define FIND(type, name, parameters)                                                                         \
    *(void **)&table->name = dlsym(handle, #name);                                                           \
    missing = table->name ? missing : #name;

nm_status nm_cuda_open_driver(nm_cuda_driver *table, nm_error *err)
{
    OPEN(table, NM_CUDA_DRIVER, driver_library);
}

nm_status nm_cuda_open_nvrtc(nm_cuda_nvrtc *table, nm_error *err)
{
    OPEN(table, NM_CUDA_NVRTC, nvrtc_library);
}

nm_status nm_cuda_open_cublas(nm_cuda_cublas *table, nm_error *err)
{
    OPEN(table, NM_CUDA_CUBLAS, cublas_library);
}
