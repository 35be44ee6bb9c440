/* Kernels that try single instructions of the dialect (instructions.inc), and what they read and write: words
 * of 32 bits, per block. */
#ifndef INSTRUCTIONS_H
#define INSTRUCTIONS_H

#include "backend/device/args.h"

#define INSTRUCTION_KERNELS(K) K(try_mma) K(try_shuffles) K(try_barriers) K(try_arithmetic)

enum {
    /* d = c + a b: the rows of a [16, 16] and columns of b [16, 8] as pairs of bf16, then c, d [16, 8] */
    MMA_B = 128,
    MMA_C = MMA_B + 64,
    MMA_IN = MMA_C + 128,
    MMA_OUT = 128,
    SHUFFLE_THREADS = 64,
    SHUFFLES = 8,
    BARRIER_THREADS = 256,
    ARITHMETIC_THREADS = 128,
    ARITHMETIC = 15 /* results of three numbers */
};

#ifndef __CUDACC__
#define K(name) extern const nm_device_kernel nm_device_##name;
INSTRUCTION_KERNELS(K)
#undef K
#endif

#endif
