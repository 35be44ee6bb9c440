/* The device backend: nm_NAME_args become structs of device addresses (launch_*.c), with which kernels of the
 * dialect (dialect.h, *.inc) are launched, on the target of the backend (target.h) or by the emulator. */
#pragma once

#include "backend/device/args.h"
#include "norma/backend.h"

#define K(name) extern const nm_device_kernel nm_device_##name;
NM_DEVICE_KERNELS(K)
#undef K

/* The rows of NM_KERNELS that compute: launch_*.c */
#define K(name) void nm_launch_##name(nm_backend *b, const nm_##name##_args *args);
NM_COMPUTATIONS(K)
#undef K
void nm_device_fill(nm_kernels *k);

/* Launches a kernel on blocks_x * blocks_y blocks; nothing if there are none. */
void nm_device_launch(nm_backend *b, const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y,
                      const void *args, size_t args_bytes);
#define LAUNCH(b, kernel, blocks_x, blocks_y, ...)                                                           \
    nm_device_launch((b), &nm_device_##kernel, (blocks_x), (blocks_y), &(struct kernel##_args){__VA_ARGS__}, \
                     sizeof(struct kernel##_args))

/* Scratch memory of the device, as nm_backend_scratch. */
enum {
    NM_DEVICE_PARTIALS,
    NM_DEVICE_TOTALS,
    NM_DEVICE_LOGITS,
    NM_DEVICE_WORK = NM_DEVICE_LOGITS, /* of kernels that have no logits */
    NM_DEVICE_ROWS
};
dptr nm_device_scratch(nm_backend *b, int slot, size_t bytes);

static inline dptr nm_device_address(const void *memory)
{
    return (dptr)(uintptr_t)memory;
}

static inline struct dmat nm_device_mat(nm_mat m)
{
    return (struct dmat){nm_device_address(m.data), m.stride, m.rows, m.cols};
}

/* Members that the arguments of a row of NM_KERNELS and of its kernel have in common. */
#define MAT(name)     .name = nm_device_mat(args->name)
#define ADDRESS(name) .name = nm_device_address(args->name)

static inline bool nm_device_same_shape(nm_mat a, nm_mat b)
{
    return a.rows == b.rows && a.cols == b.cols;
}

/* The offsets of a packing in device memory: its device_offsets, or a copy in scratch memory. A kernel with
 * two packings numbers them 0 and 1; both have the same number of sequences. */
dptr nm_device_offsets(nm_backend *b, const nm_packing *packing, int number);

struct ddrop nm_device_drop(const nm_dropout *drop);
/* NULL: without data */
struct dresidual nm_device_sum(const nm_residual_sum *sum);
struct dresidual nm_device_residual(const nm_residual_grad *residual);

static inline int64_t nm_device_blocks(int64_t n, int64_t per_block)
{
    return (n + per_block - 1) / per_block;
}

/* Blocks of a kernel over the elements of a matrix. */
static inline int64_t nm_device_elements(nm_mat m)
{
    return nm_device_blocks((int64_t)m.rows * m.cols, EACH_ELEMENTS);
}

/* Zeroed partial sums of `planes` vectors for kernels whose warps have ROWS_PER_WARP rows: [warps, planes,
 * cols]. */
dptr nm_device_warp_partials(nm_backend *b, nm_mat rows, int planes);
/* out [length] (+)= the sums of a plane of these partial sums; length: cols, or 1 for the sum over the
 * columns; 0 or out NULL: nothing */
void nm_device_add_plane(nm_backend *b, dptr partials, nm_mat rows, int planes, int plane, int32_t length,
                         void *out);
/* out += the sums of the columns of x, unless out is NULL */
void nm_device_add_columns(nm_backend *b, nm_mat x, void *out);
