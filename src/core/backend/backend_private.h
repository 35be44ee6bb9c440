/* Private data of a backend: allocated memory regions, scratch memory of kernels, registered packed weights,
 * and the kernel tables of the dry run, the fenced mode and profiling. */
#pragma once

#include <math.h>

#include "norma/backend.h"

struct nm_device_target;

typedef struct nm_region {
    void *base;
    size_t bytes;
} nm_region;

enum { NM_SCRATCH_SLOTS = 8 };

typedef struct nm_packed_weight {
    nm_mat weight;
    const void *packed;
    bool int8; /* written by pack_int8 */
} nm_packed_weight;

typedef struct nm_profiling {
    nm_kernels untimed; /* called by the timed kernels */
    nm_kernel_time times[NM_N_KERNELS];
    int depth; /* of nested kernel calls */
    bool on;
} nm_profiling;

typedef struct nm_backend_private {
    nm_kernels active;   /* the kernels outside the dry run */
    nm_kernels unfenced; /* fenced mode: called by the fenced kernels in `active` */
    nm_region *regions;
    size_t n_regions, regions_capacity;
    nm_region scratch[NM_SCRATCH_SLOTS];
    size_t scratch_requested[NM_SCRATCH_SLOTS]; /* bytes, in the last dry run */
    nm_packed_weight *weights;                  /* [n_weights]: registered packed weights */
    size_t n_weights, weights_capacity;
    /* the backend whose registered weights a worker uses; otherwise NULL */
    struct nm_backend_private *main;
    bool lacks_threads; /* the system could not start as many as requested */
    bool fenced;
    bool plain;            /* the reference kernels only */
    bool levels;           /* has CPU levels */
    _Atomic int64_t waits; /* nm_backend_waits; 0 in a worker */
    /* A device with its own memory (device/target.h), or NULL */
    const struct nm_device_target *target;
    void *device;
    nm_profiling profiling;
} nm_backend_private;

static inline nm_backend_private *nm_backend_inside(const nm_backend *backend)
{
    return backend->private_data;
}

/* The registered weight of which these rows are whole rows, or NULL. *first: index of the first one. */
const nm_packed_weight *nm_backend_find_packed(const nm_backend *backend, nm_mat rows, int32_t *first);

/* Called by the kernels `linear`: computes the layer with linear_int8 and returns true if its weight is
 * registered as int8; otherwise returns false. */
bool nm_backend_linear_int8(nm_backend *backend, const nm_linear_args *args);

/* Of the backends whose device memory is host memory: stores the sum of `dot`. */
static inline void nm_dot_store(const nm_dot_args *args, double sum)
{
    if (args->out)
        *args->out = sum;
    if (!args->total)
        return;
    if (args->inverse_norm) {
        const double norm = sqrt(sum);
        *args->total = 1 / ((norm < args->least ? args->least : norm) + args->eps);
    } else {
        *args->total = (args->keep == 0 ? 0 : args->keep * *args->total) + args->factor * sum;
    }
}

/* Host scratch memory of a kernel: at least `bytes` bytes, aligned to 64 bytes, uninitialized. Each slot is
 * one block, which only grows; it is valid until the next call with this slot. In a dry run nothing is
 * allocated, and the result may be NULL. Must not be called inside parallel regions. */
void *nm_backend_scratch(nm_backend *backend, int slot, size_t bytes);

/* Kernels that do nothing, except that download and dot write zeros to host memory, and that softmax_loss
 * requests its scratch memory. active: the kernels outside the dry run. */
nm_kernels nm_dry_run_kernels(const nm_kernels *active);

/* For nm_backend_waits. */
static inline void nm_backend_count_wait(const nm_backend *backend)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    (inside->main ? inside->main : inside)->waits++;
}

/* NM_UNSUPPORTED  a kernel of the table is NULL; the message names the first one */
nm_status nm_backend_require_kernels(const nm_kernels *kernels, const char *name, nm_error *err);

/* The backend `cpu`: replaces the reference kernels in backend->k by those of the selected CPU level and sets
 * backend->isa. NM_USAGE: unknown level; NM_UNSUPPORTED: the CPU does not support it, or not float32. */
nm_status nm_cpu_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err);
/* The backend `emulated`: every row of NM_KERNELS.
 * NM_UNSUPPORTED: double, bf16, a processor for which the emulator has no fibers. */
nm_status nm_emulated_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err);
/* The backend `cuda`: the same rows on a GPU (docs/gpu.md).
 * NM_UNSUPPORTED  a library is missing (the message names the command that installs it), there is no GPU, its
 *     compute capability is below 8.0, or double
 * NM_USAGE  no GPU of this number
 * NM_DEVICE  the driver reported an error
 * NM_MEMORY */
nm_status nm_cuda_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err);

/* Replaces the kernels of the backend with ones that make device memory accessible only while they run. */
void nm_fence_install(nm_backend *backend);
