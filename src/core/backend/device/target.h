/* Where the kernels of the dialect run: a target owns memory, launches and transfers of a device whose memory
 * the host cannot access. Without a target (backend `emulated`) they run by the emulator on host memory.
 *
 * All calls but those with a result in host memory are asynchronous, in the order of the calls. A failure is
 * kept: later calls do nothing, and `check` reports it. */
#pragma once

#include "backend/device/args.h"
#include "norma/backend.h"

typedef struct nm_device_target {
    /* NM_MEMORY: with the size and the free bytes; NM_DEVICE. Zeroed. */
    nm_status (*alloc)(void *device, size_t bytes, void **memory, nm_error *err);
    /* Address space of which the first bytes become memory by `commit`. */
    nm_status (*reserve)(void *device, size_t bytes, void **memory, nm_error *err);
    /* false: no memory, or a failure that `check` reports */
    bool (*commit)(void *device, void *memory, size_t bytes);
    void (*dealloc)(void *device, void *memory);
    size_t (*bytes_of)(void *device, const void *memory); /* as allocated */
    /* Grows the scratch memory of a slot to at least `bytes`; 0 after a failure. */
    dptr (*scratch)(void *device, int slot, size_t bytes);
    void (*launch)(void *device, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                   const void *args);
    /* c = alpha op(a) op(b) + beta c, with bias and relu of the arguments but without dropout, by a library.
     * false: it has none for these arguments. rounded: operands in bf16. */
    bool (*product)(void *device, const struct gemm_args *args, bool rounded);
    void (*finish)(void *device); /* waits for all calls */
    nm_status (*check)(void *device, nm_error *err);
    size_t (*memory)(void *device);     /* bytes that can be allocated */
    const char *(*level)(void *device); /* nm_backend_training_level */
    nm_status (*create_worker)(void *device, void **worker, nm_error *err);
    void (*close)(void *device); /* also of a worker */
} nm_device_target;
