/* The kernel dialect: a subset of C that compiles as CUDA C (NVRTC, nvcc) for the GPU and as C17 for the
 * emulator (emulator.h), so that every kernel runs in the tests of a machine without a GPU.
 *
 * A kernel has one argument `a`, a struct without pointers and without padding; device addresses are 64-bit
 * numbers (dptr), which PTR turns into pointers. Numbers are bitwise identical on both targets: products and
 * sums are never contracted, FMA is written where it is meant, and exp, tanh and erf are polynomials of FMAs
 * (functions.inc). There are no atomics on floating-point numbers and no communication between
 * blocks: a sum over blocks is a second kernel.
 *
 *     KERNEL(name, threads)  a block whose threads meet at barriers and warp operations
 *     EACH(name, threads)    a block whose threads never meet
 *     SHARED(type, name, n)  memory of the block
 *     BARRIER()              all threads of the block reach it, and none of them has returned
 *     UNROLL                 before a loop over an array in registers
 *     UNROLL_4               before a loop that would need too many registers if all of it were unrolled
 *     DOT4(a, b, c)          c + the sum of the products of the four signed bytes of a and b
 *     MMA_BF16(d, a, b)      d += a b by the warp: mma.m16n8k16, fragments d[4], a[4], b[2] of its threads
 *     WARP_SYNC()            as BARRIER, for the threads of a warp
 *     WARP_XOR(v, mask)      v of the thread of the warp whose lane differs in the bits of mask */
#ifndef NM_DIALECT_H
#define NM_DIALECT_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
typedef unsigned long long dptr;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;
#define KERNEL(name, threads)                                                                                \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ struct name##_args a)
#define EACH(name, threads)   KERNEL(name, threads)
#define PTR(type, p)          ((type *)(p))
#define FN                    static __device__ __forceinline__
#define SHARED(type, name, n) __shared__ type name[n]
#define BARRIER()             __syncthreads()
#define THREAD                ((int)threadIdx.x)
#define BLOCK                 ((int)blockIdx.x)
#define BLOCK_Y               ((int)blockIdx.y)
#define FMA(a, b, c)          __fmaf_rn(a, b, c)
#define SQRT(x)               __fsqrt_rn(x)
#define SQRT64(x)             __dsqrt_rn(x)
#define LOG(x)                logf(x)
#define CEIL(x)               ceilf(x)
#define RINT(x)               rintf(x)
#define POW(x, y)             powf(x, y)
#define LOG64(x)              log(x)
#define EXP64(x)              exp(x)
#define COSPI64(x)            cospi(x)
#define MAX(a, b)             fmaxf(a, b)
#define MIN(a, b)             fminf(a, b)
#define AS_U32(x)             __float_as_uint(x)
#define AS_F32(x)             __uint_as_float(x)
#define MUL_HI(a, b)          __umulhi(a, b)
#define DOT4(a, b, c)         __dp4a((int)(a), (int)(b), (int)(c))
#define WARP_XOR(v, mask)     __shfl_xor_sync(0xffffffffu, v, mask)
#define WARP_SYNC()           __syncwarp()
#define INF                   __int_as_float(0x7f800000)
#define UNROLL                _Pragma("unroll")
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 /* whose compiler unrolls more and spills registers */
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL_4
#endif
FN void MMA_BF16(float d[4], const u32 a[4], const u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
#include "backend/device/emulator.h"
#define DIALECT_KERNEL(name, threads, meets)                                                                 \
    static void name##_body(const struct name##_args a);                                                     \
    static void name##_entry(const void *args)                                                               \
    {                                                                                                        \
        name##_body(*(const struct name##_args *)args);                                                      \
    }                                                                                                        \
    static int64_t name##_launches;                                                                          \
    const nm_device_kernel nm_device_##name = {                                                              \
        #name, threads, meets, sizeof(struct name##_args), name##_entry, &name##_launches};                  \
    static void name##_body(const struct name##_args a)
#define KERNEL(name, threads) DIALECT_KERNEL(name, threads, true)
#define EACH(name, threads)   DIALECT_KERNEL(name, threads, false)
#define PTR(type, p)          ((type *)(uintptr_t)((p) + NM_EMULATOR_OFFSET))
#define FN                    static inline __attribute__((unused))
#define SHARED(type, name, n) type *const name = nm_emulator_shared(sizeof(type) * (size_t)(n))
#define BARRIER()             nm_emulator_barrier()
#define THREAD                nm_emulator_thread
#define BLOCK                 nm_emulator_block
#define BLOCK_Y               nm_emulator_block_y
#define FMA(a, b, c)          nm_emulator_fma(a, b, c)
#define SQRT(x)               sqrtf(x)
#define SQRT64(x)             sqrt(x)
#define LOG(x)                logf(x)
#define CEIL(x)               ceilf(x)
#define RINT(x)               rintf(x)
#define POW(x, y)             powf(x, y)
#define LOG64(x)              log(x)
#define EXP64(x)              exp(x)
#define COSPI64(x)            cos(3.14159265358979323846 * (x))
#define MAX(a, b)             fmaxf(a, b)
#define MIN(a, b)             fminf(a, b)
#define AS_U32(x)             nm_emulator_bits(x)
#define AS_F32(x)             nm_emulator_float(x)
#define MUL_HI(a, b)          ((u32)(((u64)(u32)(a) * (u32)(b)) >> 32))
#define DOT4(a, b, c)         nm_emulator_dot4(a, b, c)
#define WARP_XOR(v, mask)     nm_emulator_warp_xor(v, mask)
#define WARP_SYNC()           nm_emulator_warp_sync()
#define MMA_BF16(d, a, b)     nm_emulator_mma_bf16(d, a, b)
#define INF                   INFINITY
#define UNROLL_4
#define UNROLL /* arrays in registers are a matter of the GPU */
#endif

#define LANE (THREAD & 31)
#define WARP (THREAD >> 5)

/* A matrix in device memory, row-major. */
struct dmat {
    dptr data;
    i64 stride; /* in elements */
    int rows, cols;
};
#define AT(type, m, row, col) (PTR(type, (m).data) + (i64)(row) * (m).stride + (col))
#define HAS(p)                ((p) != 0)

/* A double, or `missing` for address 0. */
FN double double_or(dptr number, double missing)
{
    return HAS(number) ? *PTR(const double, number) : missing;
}

/* Element `col` of a vector, or `missing` for address 0. */
FN float element_or(dptr vector, int col, float missing)
{
    return HAS(vector) ? PTR(const float, vector)[col] : missing;
}

/* Kernels over the elements of a matrix: a block of EACH_THREADS threads has EACH_ELEMENTS of them, in the
 * order of memory. */
enum { EACH_THREADS = 256, EACH_ELEMENTS = 1024 };
FN i64 each_end(struct dmat m)
{
    const i64 end = ((i64)BLOCK + 1) * EACH_ELEMENTS, n = (i64)m.rows * m.cols;
    return end < n ? end : n;
}
#define EACH_ELEMENT(m, row, col)                                                                            \
    for (i64 e_ = (i64)BLOCK * EACH_ELEMENTS + THREAD, end_ = each_end(m); e_ < end_; e_ += EACH_THREADS)    \
        for (int row = (int)(e_ / (m).cols), col = (int)(e_ % (m).cols), once_ = 1; once_; once_ = 0)

/* Sum, and maximum, over the 32 threads of a warp; all get the result. */
FN float warp_sum(float v)
{
    for (int mask = 16; mask > 0; mask >>= 1)
        v += WARP_XOR(v, mask);
    return v;
}
FN float warp_max(float v)
{
    for (int mask = 16; mask > 0; mask >>= 1)
        v = MAX(v, WARP_XOR(v, mask));
    return v;
}

/* A dropout site: elements whose 16-bit random number is below the threshold are dropped; threshold 0: none
 * is. */
struct ddrop {
    u64 seed;
    u32 site, step, threshold;
    float scale; /* factor of the elements that are kept */
};

struct dwords {
    u32 w[4];
};

/* Philox4x32-10 (Salmon et al. 2011), as nm_philox */
FN struct dwords philox(u32 c0, u32 c1, u32 c2, u32 c3, u64 key)
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const u32 lo0 = 0xD2511F53u * c0, hi0 = MUL_HI(0xD2511F53u, c0);
        const u32 lo1 = 0xCD9E8D57u * c2, hi1 = MUL_HI(0xCD9E8D57u, c2);
        const u32 n0 = hi1 ^ c1 ^ k0, n2 = hi0 ^ c3 ^ k1;
        c1 = lo1;
        c3 = lo0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct dwords words = {{c0, c1, c2, c3}};
    return words;
}

/* Dropout factor of an element: 0 or the scale; the mask is nm_dropout_keeps. */
FN float drop_factor(struct ddrop drop, int row, int col)
{
    if (drop.threshold == 0)
        return 1;
    const u32 column = (u32)col, slot = column / 16 % 8;
    const struct dwords words =
        philox(column / 128 * 16 + column % 16, (u32)row, 2u << 24 | drop.site, drop.step, drop.seed);
    const u32 index = slot / 2, word = index == 0   ? words.w[0]
                                       : index == 1 ? words.w[1]
                                       : index == 2 ? words.w[2]
                                                    : words.w[3];
    return (slot & 1 ? word >> 16 : word & 0xFFFFu) >= drop.threshold ? drop.scale : 0;
}

#endif
