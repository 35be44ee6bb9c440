/* The CPU backend: SIMD kernels compiled once per CPU level, chosen at run time. */
#pragma once

#include "backend/backend_private.h"

/* Scratch slots of the backend; a kernel may use all of them at once. */
enum {
    NM_CPU_PANELS,   /* GEMM: packed panels of the right operand */
    NM_CPU_THREADS,  /* GEMM, attention: one workspace per thread */
    NM_CPU_BLOCK,    /* intermediate results that outlive a GEMM call of a kernel */
    NM_CPU_PARTIALS, /* partial sums of row blocks */
    NM_CPU_PACKED,   /* packed weights for several GEMM calls of a kernel */
    NM_CPU_SHARES    /* division of blocks between threads */
};

/* Kernels of one CPU level: each function replaces its entries of the table. */
enum { NM_CPU_N_GROUPS = 15 };
#define NM_CPU_LEVEL(level)                                                                                  \
    void nm_cpu_linear_##level(nm_kernels *k);                                                               \
    void nm_cpu_elementwise_##level(nm_kernels *k);                                                          \
    void nm_cpu_map_##level(nm_kernels *k);                                                                  \
    void nm_cpu_windows_##level(nm_kernels *k);                                                              \
    void nm_cpu_convolve_##level(nm_kernels *k);                                                             \
    void nm_cpu_rotate_##level(nm_kernels *k);                                                               \
    void nm_cpu_attention_##level(nm_kernels *k);                                                            \
    void nm_cpu_block_term_##level(nm_kernels *k);                                                           \
    void nm_cpu_loss_##level(nm_kernels *k);                                                                 \
    void nm_cpu_token_norm_##level(nm_kernels *k);                                                           \
    void nm_cpu_seed_norm_##level(nm_kernels *k);                                                            \
    void nm_cpu_feature_norm_##level(nm_kernels *k);                                                         \
    void nm_cpu_optimizer_##level(nm_kernels *k);                                                            \
    void nm_cpu_random_init_##level(nm_kernels *k);                                                          \
    void nm_cpu_int8_##level(nm_kernels *k);
NM_CPU_LEVEL(base)
#if defined(__x86_64__)
NM_CPU_LEVEL(avx2)
NM_CPU_LEVEL(avx512)
void nm_cpu_int8_vnni(nm_kernels *k); /* the other kernels of this level are those of avx512 */
void nm_cpu_int8_amx(nm_kernels *k);  /* likewise */
#elif defined(__aarch64__)
NM_CPU_LEVEL(neon)
void nm_cpu_int8_dotprod(nm_kernels *k); /* the other kernels of this level are those of neon */
#endif

/* Kernels with bf16 matrix multiplications, which replace those of the level on a bf16 backend. */
enum { NM_CPU_N_BF16_GROUPS = 3 };
#define NM_CPU_BF16(level)                                                                                   \
    void nm_cpu_linear_bf16_##level(nm_kernels *k);                                                          \
    void nm_cpu_attention_bf16_##level(nm_kernels *k);                                                       \
    void nm_cpu_loss_bf16_##level(nm_kernels *k);
NM_CPU_BF16(base)
#if defined(__x86_64__)
NM_CPU_BF16(avx2)
NM_CPU_BF16(avx512)
NM_CPU_BF16(dot) /* with the instruction vdpbf16ps */
NM_CPU_BF16(amx) /* with the instruction tdpbf16ps */
#elif defined(__aarch64__)
NM_CPU_BF16(neon)
#endif
