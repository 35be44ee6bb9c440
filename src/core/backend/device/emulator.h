/* Runs kernels of the dialect (dialect.h) on the CPU. The threads of a block are fibers on one system thread,
 * which run in turn between barriers and warp operations; blocks run in parallel. A barrier that some threads
 * do not reach, or a warp operation that a part of a warp reaches, aborts with kernel, block and thread.
 * Shared memory is filled with NaN at the start of a block. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t dptr, u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef int64_t i64;

/* Where device addresses are: 0, or in a test the distance of another mapping, so that kernels that get host
 * pointers crash. */
#ifndef NM_EMULATOR_OFFSET
#define NM_EMULATOR_OFFSET 0
#endif

typedef struct nm_device_kernel {
    const char *name;
    int threads;       /* of a block: a multiple of 32, at most 1,024 */
    bool meets;        /* has barriers or warp operations; otherwise its threads run without fibers */
    size_t args_bytes; /* size of the struct of arguments */
    void (*entry)(const void *args);
    int64_t *launches; /* by the emulator, of this process */
} nm_device_kernel;

/* Order in which the threads of a block run between barriers. Results that depend on it show a missing
 * barrier. */
typedef enum nm_emulator_order {
    NM_EMULATOR_ASCENDING,
    NM_EMULATOR_DESCENDING,
    NM_EMULATOR_SHUFFLED
} nm_emulator_order;
/* For the process; the initial order is ascending. Not while a kernel runs. */
void nm_emulator_set_order(nm_emulator_order order);

/* Runs blocks_x * blocks_y blocks on at most `threads` system threads, and returns when they have ended. */
void nm_emulator_run(const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y, int threads,
                     const void *args);

extern _Thread_local int nm_emulator_thread, nm_emulator_block, nm_emulator_block_y;
/* The n-th call of every thread of a block returns the same memory. */
void *nm_emulator_shared(size_t bytes);
void nm_emulator_barrier(void);
void nm_emulator_warp_sync(void);
float nm_emulator_warp_xor(float v, int mask);
/* mma.m16n8k16 with bf16 operands. The 16 products of an element are added in double and rounded once; the
 * order and rounding of tensor cores are not documented. */
void nm_emulator_mma_bf16(float d[4], const u32 a[4], const u32 b[2]);

static inline u32 nm_emulator_bits(float x)
{
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float nm_emulator_float(u32 bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* fmaf, without the call where the processor has the instruction */
static inline float nm_emulator_fma(float a, float b, float c)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma")) {
        __asm__("vfmadd231ss %2,%1,%0" : "+x"(c) : "x"(a), "x"(b));
        return c;
    }
#endif
    return fmaf(a, b, c);
}

static inline int nm_emulator_dot4(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int8_t)((u32)a >> 8 * i) * (int8_t)((u32)b >> 8 * i);
    return c;
}
