/* The declarations of NVIDIA's driver API, NVRTC and cuBLASLt that Norma uses, so that a build needs no CUDA.
 * Names and values are NVIDIA's (CUDA 12 and 13); tests/device/check_cuda_api.c compares all of them with the
 * real headers, which it includes before this file with NM_CUDA_HEADERS defined. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
/* Constants: name, value */
#define NM_CUDA_CONSTANTS(C)                                                                               \
    C(CUDA_SUCCESS, 0) C(CUDA_ERROR_OUT_OF_MEMORY, 2) C(CUDA_ERROR_NO_DEVICE, 100)                         \
    C(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) C(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    C(CU_STREAM_DEFAULT, 0) C(CU_EVENT_DISABLE_TIMING, 2)                       \
    C(CU_MEM_ALLOCATION_TYPE_PINNED, 1) C(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                  \
    C(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) C(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                        \
    C(NVRTC_SUCCESS, 0) C(NVRTC_ERROR_COMPILATION, 6)                                                      \
    C(CUBLAS_STATUS_SUCCESS, 0) C(CUBLAS_OP_N, 0) C(CUBLAS_OP_T, 1)                                        \
    C(CUBLAS_COMPUTE_32F, 68) C(CUBLAS_COMPUTE_32F_FAST_TF32, 77) C(CUDA_R_32F, 0) C(CUDA_R_16BF, 14)      \
    C(CUBLASLT_MATMUL_DESC_TRANSA, 3) C(CUBLASLT_MATMUL_DESC_TRANSB, 4) C(CUBLASLT_MATMUL_DESC_EPILOGUE, 7) \
    C(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                                \
    C(CUBLASLT_EPILOGUE_DEFAULT, 1) C(CUBLASLT_EPILOGUE_RELU, 2) C(CUBLASLT_EPILOGUE_BIAS, 4)              \
    C(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                           \
    C(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1) C(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)        \
    C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)      \
    C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) C(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

/* Functions: result, exported name, parameters */
#define NM_CUDA_DRIVER(F)                                                                                  \
    F(CUresult, cuInit, (unsigned flags))                                                                  \
    F(CUresult, cuGetErrorName, (CUresult code, const char **text))                                        \
    F(CUresult, cuGetErrorString, (CUresult code, const char **text))                                      \
    F(CUresult, cuDeviceGetCount, (int *count))                                                            \
    F(CUresult, cuDeviceGet, (CUdevice *device, int ordinal))                                              \
    F(CUresult, cuDeviceGetName, (char *name, int bytes, CUdevice device))                                 \
    F(CUresult, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))         \
    F(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                           \
    F(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                           \
    F(CUresult, cuCtxSetCurrent, (CUcontext context))                                                      \
    F(CUresult, cuModuleLoadData, (CUmodule *module, const void *image))                                   \
    F(CUresult, cuModuleUnload, (CUmodule module))                                                         \
    F(CUresult, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))            \
    F(CUresult, cuMemGetInfo_v2, (size_t *available, size_t *total))                                       \
    F(CUresult, cuMemAlloc_v2, (CUdeviceptr *memory, size_t bytes))                                        \
    F(CUresult, cuMemFree_v2, (CUdeviceptr memory))                                                        \
    F(CUresult, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                             \
    F(CUresult, cuMemFreeHost, (void *memory))                                                             \
    F(CUresult, cuMemGetAllocationGranularity,                                                             \
      (size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option))     \
    F(CUresult, cuMemAddressReserve,                                                                       \
      (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags)) \
    F(CUresult, cuMemAddressFree, (CUdeviceptr address, size_t bytes))                                     \
    F(CUresult, cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes,                          \
                              const CUmemAllocationProp *properties, unsigned long long flags))            \
    F(CUresult, cuMemRelease, (CUmemGenericAllocationHandle handle))                                       \
    F(CUresult, cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset,                               \
                           CUmemGenericAllocationHandle handle, unsigned long long flags))                 \
    F(CUresult, cuMemUnmap, (CUdeviceptr address, size_t bytes))                                           \
    F(CUresult, cuMemSetAccess,                                                                            \
      (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count))                    \
    F(CUresult, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))   \
    F(CUresult, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))         \
    F(CUresult, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))   \
    F(CUresult, cuMemsetD8Async, (CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream)) \
    F(CUresult, cuStreamCreate, (CUstream *stream, unsigned flags))                                        \
    F(CUresult, cuStreamDestroy_v2, (CUstream stream))                                                     \
    F(CUresult, cuStreamSynchronize, (CUstream stream))                                                    \
    F(CUresult, cuEventCreate, (CUevent *event, unsigned flags))                                           \
    F(CUresult, cuEventDestroy_v2, (CUevent event))                                                        \
    F(CUresult, cuEventRecord, (CUevent event, CUstream stream))                                           \
    F(CUresult, cuEventSynchronize, (CUevent event))                                                       \
    F(CUresult, cuLaunchKernel, (CUfunction function, unsigned blocks_x, unsigned blocks_y,                \
                                 unsigned blocks_z, unsigned threads_x, unsigned threads_y,                \
                                 unsigned threads_z, unsigned shared_bytes, CUstream stream,               \
                                 void **parameters, void **extra))

#define NM_CUDA_NVRTC(F)                                                                                   \
    F(const char *, nvrtcGetErrorString, (nvrtcResult code))                                               \
    F(nvrtcResult, nvrtcVersion, (int *major, int *minor))                                                 \
    F(nvrtcResult, nvrtcGetNumSupportedArchs, (int *count))                                                \
    F(nvrtcResult, nvrtcGetSupportedArchs, (int *archs))                                                   \
    F(nvrtcResult, nvrtcCreateProgram, (nvrtcProgram *program, const char *source, const char *name,       \
                                        int n_headers, const char *const *headers,                         \
                                        const char *const *include_names))                                 \
    F(nvrtcResult, nvrtcDestroyProgram, (nvrtcProgram *program))                                           \
    F(nvrtcResult, nvrtcCompileProgram, (nvrtcProgram program, int n_options, const char *const *options)) \
    F(nvrtcResult, nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *bytes))                          \
    F(nvrtcResult, nvrtcGetProgramLog, (nvrtcProgram program, char *log))                                  \
    F(nvrtcResult, nvrtcGetCUBINSize, (nvrtcProgram program, size_t *bytes))                               \
    F(nvrtcResult, nvrtcGetCUBIN, (nvrtcProgram program, char *code))                                      \
    F(nvrtcResult, nvrtcGetPTXSize, (nvrtcProgram program, size_t *bytes))                                 \
    F(nvrtcResult, nvrtcGetPTX, (nvrtcProgram program, char *code))

#define NM_CUDA_CUBLAS(F)                                                                                  \
    F(const char *, cublasLtGetStatusString, (cublasStatus_t code))                                        \
    F(size_t, cublasLtGetVersion, (void))                                                                  \
    F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t *handle))                                          \
    F(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle))                                          \
    F(cublasStatus_t, cublasLtMatmulDescCreate,                                                            \
      (cublasLtMatmulDesc_t *operation, cublasComputeType_t compute, cudaDataType_t scale))                \
    F(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t operation))                         \
    F(cublasStatus_t, cublasLtMatmulDescSetAttribute, (cublasLtMatmulDesc_t operation,                     \
                              cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes))  \
    F(cublasStatus_t, cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t *layout, cudaDataType type,      \
                                                   uint64_t rows, uint64_t cols, int64_t ld))              \
    F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                        \
    F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *preference))            \
    F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))            \
    F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute, (cublasLtMatmulPreference_t preference,        \
                        cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t bytes))  \
    F(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                      \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,                  \
       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,                       \
       cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t *results,        \
       int *found))                                                                                        \
    F(cublasStatus_t, cublasLtMatmul,                                                                      \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,          \
       cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,  \
       const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,           \
       const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,                     \
       CUstream stream))
/* clang-format on */

#ifndef NM_CUDA_HEADERS
enum {
#define C(name, value) name = value,
    NM_CUDA_CONSTANTS(C)
#undef C
};
/* Enumerations have the size of int. */
typedef int CUresult, CUdevice, CUdevice_attribute, CUmemAllocationGranularity_flags, nvrtcResult;
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType, cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct _nvrtcProgram *nvrtcProgram;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct nm_cublas_operation *cublasLtMatmulDesc_t;
typedef struct nm_cublas_layout *cublasLtMatrixLayout_t;
typedef struct nm_cublas_preference *cublasLtMatmulPreference_t;
typedef struct CUmemLocation {
    int type, id;
} CUmemLocation;
typedef struct CUmemAllocationProp {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

/* The functions of a library, by name */
#define F(type, name, parameters) type(*name) parameters;
typedef struct nm_cuda_driver {
    NM_CUDA_DRIVER(F)
} nm_cuda_driver;
typedef struct nm_cuda_nvrtc {
    NM_CUDA_NVRTC(F)
} nm_cuda_nvrtc;
typedef struct nm_cuda_cublas {
    NM_CUDA_CUBLAS(F)
} nm_cuda_cublas;
#undef F
