/* Compiles only if the declarations of src/core/backend/device/cuda_api.h are those of NVIDIA's headers
 * (scripts/check_cuda_api.sh): values of constants, types of functions, layouts of structs. */
#include <stddef.h>
#include <stdint.h>

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#define NM_CUDA_HEADERS
#include "backend/device/cuda_api.h"

#ifdef __cplusplus
#include <type_traits>
#define CHECK(condition, text) static_assert(condition, text)
#define SAME(a, b)             std::is_same<a, b>::value
#else
#define CHECK(condition, text) _Static_assert(condition, text)
#define SAME(a, b)             __builtin_types_compatible_p(a, b)
#endif

#define C(name, value) CHECK((long long)name == value, #name);
NM_CUDA_CONSTANTS(C)
#undef C

/* cudaStream_t is CUstream. */
#define F(type, name, parameters)                                                                            \
    typedef type declared_##name parameters;                                                                 \
    CHECK(SAME(__typeof__(name), declared_##name), #name);
NM_CUDA_DRIVER(F)
NM_CUDA_NVRTC(F)
NM_CUDA_CUBLAS(F)
#undef F

/* The same structs as Norma declares them without the headers */
typedef struct own_location {
    int type, id;
} own_location;
typedef struct own_properties {
    int type, requestedHandleTypes;
    own_location location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} own_properties;
typedef struct own_access {
    own_location location;
    int flags;
} own_access;
typedef struct own_algorithm {
    uint64_t data[8];
} own_algorithm;
typedef struct own_result {
    own_algorithm algo;
    size_t workspaceSize;
    int state;
    float wavesCount;
    int reserved[4];
} own_result;
#define LAYOUT(theirs, own, member)                                                                          \
    CHECK(offsetof(theirs, member) == offsetof(own, member) && sizeof(theirs) == sizeof(own),                \
          #own "." #member)
LAYOUT(CUmemLocation, own_location, type);
LAYOUT(CUmemLocation, own_location, id);
LAYOUT(CUmemAllocationProp, own_properties, type);
LAYOUT(CUmemAllocationProp, own_properties, requestedHandleTypes);
LAYOUT(CUmemAllocationProp, own_properties, location);
LAYOUT(CUmemAllocationProp, own_properties, win32HandleMetaData);
LAYOUT(CUmemAllocationProp, own_properties, allocFlags);
LAYOUT(CUmemAccessDesc, own_access, location);
LAYOUT(CUmemAccessDesc, own_access, flags);
LAYOUT(cublasLtMatmulHeuristicResult_t, own_result, algo);
LAYOUT(cublasLtMatmulHeuristicResult_t, own_result, workspaceSize);
LAYOUT(cublasLtMatmulHeuristicResult_t, own_result, state);
LAYOUT(cublasLtMatmulHeuristicResult_t, own_result, wavesCount);
CHECK(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice) == sizeof(int) &&
          sizeof(nvrtcResult) == sizeof(int) && sizeof(cublasStatus_t) == sizeof(int) &&
          sizeof(CUdeviceptr) == 8 && sizeof(CUmemGenericAllocationHandle) == 8,
      "sizes of types");
