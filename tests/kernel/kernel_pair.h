/* A backend under test (float) and the reference backend (double), with matrices that have the same values
 * in both. Every matrix is in a block with guard zones before and after it and after each row; pair_close
 * detects every element that was changed but not compared, inputs included. */
#ifndef KERNEL_PAIR_H
#define KERNEL_PAIR_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/random.h"
#include "norma/backend.h"

enum { ACTUAL, EXPECTED };
enum { PAIR_GUARD = 16, PAIR_BLOCKS = 64, PAIR_LISTS = 32 };
#define PAIR_SENTINEL 12345.0f

typedef struct pair_block {
    size_t n;
    float *before;  /* uploaded values */
    bool *compared; /* elements that were compared and may have changed */
    void *memory[2];
} pair_block;

typedef struct pair_list {
    void *memory[2];
} pair_list;

typedef struct pair {
    nm_backend *on[2];
    const char *what; /* kernel and CPU level, for messages */
    uint64_t seed, hash;
    double looser; /* factor of the tolerances, for operands in bf16; 0: 1 */
    pair_block blocks[PAIR_BLOCKS];
    pair_list lists[PAIR_LISTS];
    int n_blocks, n_lists;
} pair;

/* A matrix in both backends: a view into a block. */
typedef struct test_mat {
    int block;
    size_t first; /* index of the first element in the block */
    nm_mat m[2];
} test_mat;

/* Calls a kernel of both backends; in the arguments, s is the backend and x.m[s] a matrix of it. */
#define BOTH(p, kernel, ...)                                                                                 \
    do {                                                                                                     \
        for (int s = ACTUAL; s <= EXPECTED; s++)                                                             \
            NM_CALL((p)->on[s], kernel, __VA_ARGS__);                                                        \
    } while (0)

/* Approximately normal number of variance 1 for element `index`. */
double pair_normal(pair *p, uint64_t index);
/* A matrix of make(p, index) with `gap` guard elements after each row. */
test_mat pair_make(pair *p, int32_t rows, int32_t cols, int32_t gap, double (*make)(pair *p, uint64_t index));
test_mat pair_random(pair *p, int32_t rows, int32_t cols, int32_t gap);
/* Columns first .. first + cols - 1. */
test_mat mat_slice(const pair *p, test_mat t, int32_t first, int32_t cols);
/* Fills a row in both backends before a kernel runs. */
void mat_fill_row(pair *p, test_mat t, int32_t row, float value);

/* The same bytes in both backends. */
pair_list pair_list_of(pair *p, const void *data, size_t bytes);
/* n integers in [0, below), with repetitions. */
pair_list pair_ids(pair *p, int32_t n, int32_t below);

/* Marks an output that may have changed as compared. */
void pair_mark(pair *p, test_mat t);
/* Compares an output:
 *     |actual - expected| <= ulps * FLT_EPSILON * (max(|expected|, RMS of its row) + size)
 * size is sizes[row], or 0: the magnitude of terms that cancel in the result. */
void mat_compare_sized(pair *p, const char *name, test_mat t, double ulps, const double *sizes);
/* The same with one size for all rows. */
void mat_compare(pair *p, const char *name, test_mat t, double ulps, double size);
/* Compares the two loss sums over this number of tokens. */
void pair_compare_sums(pair *p, double *const sums[2], int32_t tokens);
/* Expected values of a matrix without gaps; the caller frees them. */
double *mat_expected(pair *p, test_mat t);

/* Fails if an element that was not compared has changed; adds the actual values to the hash; frees
 * everything. */
void pair_close(pair *p);

#endif
