/* What the backends share behind include/norma/backend.h: the memory regions handed out, scratch memory for
 * kernels, the tables swapped in by the dry run and by the fenced mode. */
#ifndef NM_BACKEND_PRIVATE_H
#define NM_BACKEND_PRIVATE_H

#include "norma/backend.h"

typedef struct nm_region {
    void *base;
    size_t bytes;
} nm_region;

enum { NM_SCRATCH_SLOTS = 5 };

typedef struct nm_packed_weight { /* a weight and its other form */
    nm_mat weight;
    const void *form;
    bool int8; /* written by pack_int8 */
} nm_packed_weight;

typedef struct nm_profiling {
    nm_kernels inner; /* what the timing wrappers call */
    nm_kernel_time times[NM_N_KERNELS];
    int depth; /* of kernels within kernels */
    bool on;
} nm_profiling;

typedef struct nm_backend_private {
    nm_kernels active; /* the table outside the dry run */
    nm_kernels inner;  /* fenced mode: what the wrappers in `active` call */
    nm_region *regions;
    size_t n_regions, regions_capacity;
    nm_region scratch[NM_SCRATCH_SLOTS];
    nm_packed_weight *held;
    size_t n_held, held_capacity;
    const struct nm_backend_private
        *main; /* of a worker: the one it belongs to, whose held weights it reads */
    bool fenced;
    nm_profiling profiling;
    void *device;                         /* a backend's own data ... */
    void (*device_release)(void *device); /* ... and how to free it; both may be NULL */
} nm_backend_private;

static inline nm_backend_private *nm_backend_inside(const nm_backend *backend)
{
    return backend->private_data;
}

/* The held matrix to which these whole rows belong, and the first one's number in it; NULL: none. */
const nm_packed_weight *nm_backend_find_packed(const nm_backend *backend, nm_mat rows, int32_t *first);

/* For `linear`: computes the product by linear_int8 when the weight is held in int8, and says whether. */
bool nm_backend_linear_int8(nm_backend *backend, nm_mat x, nm_mat weight, const void *bias, nm_act act,
                            const nm_dropout *drop, nm_mat y);

/* Host memory of a kernel's own, at least `bytes`, 64-byte aligned, contents undefined. Every slot is one
 * block that only grows; it stays valid until the same slot is asked for again. Not for use inside parallel
 * regions. */
void *nm_backend_scratch(nm_backend *backend, int slot, size_t bytes);

/* A table whose kernels do nothing, except that download and dot fill the host's result with zeros. */
nm_kernels nm_dry_run_kernels(void);

/* Wraps the backend's table: memory of nm_backend_alloc is open only while a kernel runs. */
void nm_fence_install(nm_backend *backend);

#endif
