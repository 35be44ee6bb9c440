/* What the backends share: allocated memory regions, scratch memory of kernels, registered packed weights,
 * and the tables of the dry run, the fenced mode and profiling. */
#ifndef NM_BACKEND_PRIVATE_H
#define NM_BACKEND_PRIVATE_H

#include "norma/backend.h"

typedef struct nm_region {
    void *base;
    size_t bytes;
} nm_region;

enum { NM_SCRATCH_SLOTS = 5 };

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
    nm_kernels active;   /* the table outside the dry run */
    nm_kernels unfenced; /* fenced mode: called by the fenced kernels in `active` */
    nm_region *regions;
    size_t n_regions, regions_capacity;
    nm_region scratch[NM_SCRATCH_SLOTS];
    nm_packed_weight *weights; /* registered */
    size_t n_weights, weights_capacity;
    const struct nm_backend_private *main; /* of a worker: the backend whose registered weights it reads */
    bool lacks_threads;                    /* the system could not start as many as requested */
    bool fenced;
    nm_profiling profiling;
    void *device;                         /* data of the backend */
    void (*device_release)(void *device); /* frees it; both may be NULL */
} nm_backend_private;

static inline nm_backend_private *nm_backend_inside(const nm_backend *backend)
{
    return backend->private_data;
}

/* The registered weight that contains these rows as whole rows, and the index of the first one; NULL:
 * none. */
const nm_packed_weight *nm_backend_find_packed(const nm_backend *backend, nm_mat rows, int32_t *first);

/* For `linear`: computes the layer by linear_int8 if its weight is registered as int8; otherwise returns
 * false. */
bool nm_backend_linear_int8(nm_backend *backend, const nm_linear_args *args);

/* Host scratch memory of a kernel: at least `bytes`, 64-byte aligned, uninitialized. Every slot is one
 * block that only grows; it is valid until the next call with the same slot. Not to be called inside
 * parallel regions. */
void *nm_backend_scratch(nm_backend *backend, int slot, size_t bytes);

/* Kernels that do nothing, except that download and dot write zeros to host memory. */
nm_kernels nm_dry_run_kernels(void);

/* Wraps the kernels of the backend: device memory is accessible only while a kernel runs. */
void nm_fence_install(nm_backend *backend);

#endif
