/* Declarations shared by the checks. check_<name> runs the kernel of that name in all its variants on both
 * backends of a pair and compares the results; check_<family>.c contains the checks of a family of
 * kernels. */
#ifndef KERNEL_CHECKS_H
#define KERNEL_CHECKS_H

#include "kernel_pair.h"

typedef struct size {
    int32_t rows, cols, gap;
} size;

/* One check per kernel: a kernel without check_<name> does not link. */
#define K(name) void check_##name(pair *p, size z);
NM_KERNELS(K)
#undef K

typedef struct kernel_check {
    const char *name;
    void (*check)(pair *p, size z);
} kernel_check;

#define K(name) +1
enum { N_KERNEL_CHECKS = 0 NM_KERNELS(K) };
#undef K
extern const kernel_check kernel_checks[N_KERNEL_CHECKS];

extern const nm_dropout third, none;
enum { N_DROPS = 3 };
extern const nm_dropout *const drops[N_DROPS]; /* third, NULL, none */

/* The sizes at which results are hashed */
enum { N_HASH_SIZES = 5 };
extern const size hash_sizes[N_HASH_SIZES];
/* Tolerance of rows that have other kernels in bf16, relative to the one in float; otherwise 0. Products are
 * off by 2^-8, and attention averages. The exact results are compared in test_bf16. */
double bf16_tolerance(const char *row);

/* Error in ulp of a float sum of n products of normal numbers. */
double sum_ulps(int32_t n);
/* A width that differs from cols. */
int32_t other_width(int32_t cols);
int32_t heads_for(int32_t cols);

/* Generators for pair_make. */
double positive(pair *p, uint64_t index);
double coarse(pair *p, uint64_t index); /* few different values, to have ties */
double shifted(pair *p, uint64_t index);
double small(pair *p, uint64_t index);

test_mat random_vector(pair *p, int32_t n);

enum { MAX_SEQS = 8 };

typedef struct test_packing {
    int32_t offsets[MAX_SEQS + 1];
    nm_packing side[2];
} test_packing;

/* n_seqs sequences of first_length tokens; the last one has the remaining tokens. */
void packing_init(pair *p, test_packing *packing, int32_t n_seqs, int32_t first_length, int32_t tokens);

#endif
