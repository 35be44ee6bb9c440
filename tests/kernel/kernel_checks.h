/* What the checks of kernels share. check_<name> runs the kernel of that name on both sides of a pair, in all its forms,
 * and compares what came out; checks of one family stand in one file, check_<family>.c. */
#ifndef KERNEL_CHECKS_H
#define KERNEL_CHECKS_H

#include "kernel_pair.h"

typedef struct size {
    int32_t rows, cols, gap;
} size;

/* The list of checks is the list of kernels: without its check_<name> a kernel does not link. */
#define K(name) void check_##name(pair *p, size z);
NM_KERNELS(K)
#undef K

extern const nm_dropout third, none;
enum { N_DROPS = 3 };
extern const nm_dropout *const drops[N_DROPS]; /* third, NULL, none */

/* A float sum of n products of normal numbers is off by some root of n units of its own size. */
double sum_ulps(int32_t n);
/* Another width for the other side of a product. */
int32_t other_width(int32_t cols);
int32_t heads_for(int32_t cols);

/* Numbers for pair_make. */
double positive(pair *p, uint64_t index);
double coarse(pair *p, uint64_t index); /* few different values, so that there are ties */
double shifted(pair *p, uint64_t index);
double small(pair *p, uint64_t index);

twin random_vector(pair *p, int32_t n);

enum { MAX_SEQS = 8 };

typedef struct test_packing {
    int32_t offsets[MAX_SEQS + 1];
    nm_packing side[2];
} test_packing;

/* n_seqs sequences of first_length tokens, but the last, which has the rest. */
void packing_init(pair *p, test_packing *packing, int32_t n_seqs, int32_t first_length, int32_t tokens);

#endif
