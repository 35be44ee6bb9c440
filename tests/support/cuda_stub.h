/* A stand-in for NVIDIA's driver (libcuda.so.1), NVRTC and cuBLASLt, which executes the device kernels by
 * the emulator, so that every host path of the backend `cuda` runs without a GPU.
 *
 * Device addresses are not addresses of the process: the memory is NM_EMULATOR_OFFSET bytes above, and
 * only kernels of the stub add that. Host code that reads device memory, and kernels that get host
 * pointers, crash. All asynchronous calls are queued and executed as late as a wait allows. New memory is
 * 0xFF, like NaN. A wrong use of the interface ends the process with a message. */
#ifndef CUDA_STUB_H
#define CUDA_STUB_H

#include <stddef.h>
#include "backend/device/cuda_api.h"
#include "backend/device/args.h"

/* The n-th call of a function from now on (n = 1: the next one) returns this code. "execute" is the
 * execution of a queued kernel or copy: its error is reported by all later calls that wait. */
void stub_fail(const char *function, int n, int code);
/* Calls of a function so far; NULL: of all functions. */
int stub_calls(const char *function);
/* Name of the i-th function that was called at least once, or NULL */
const char *stub_function(int i);
/* Objects that were created and not destroyed: memory, pinned memory, events, streams, modules, contexts,
 * handles. */
int stub_live(void);
/* Discards calls, failures and the sticky error. */
void stub_reset(void);

/* For the other libraries of the stub: counts a call, and returns the code with which it must fail, or 0. */
int stub_enter(const char *function);
void stub_count(int change); /* of live objects */
void stub_enqueue(CUstream stream, void (*run)(void *), const void *data, size_t bytes);
void stub_panic(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *stub_memory(CUdeviceptr address, size_t bytes); /* where kernels find it; checked */
void stub_run_gemm(const struct gemm_args *args);

#define STUB(name)                                                                                           \
    do {                                                                                                     \
        const int code_ = stub_enter(#name);                                                                 \
        if (code_)                                                                                           \
            return code_;                                                                                    \
    } while (0)
#define STUB_EXPORT __attribute__((visibility("default")))

#endif
