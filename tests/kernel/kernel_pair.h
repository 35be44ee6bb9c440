/* A subject (a backend in float) and the judge (ref in double) side by side, with matrices that exist in both
 * with the same numbers. Every matrix lies in a block with guard zones before it, behind it and in the gap
 * after each row; pair_close finds any element changed that no comparison looked at, inputs included. */
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

enum { SUBJECT, JUDGE };
enum { PAIR_GUARD = 16, PAIR_BLOCKS = 64, PAIR_LISTS = 32 };
#define PAIR_SENTINEL 12345.0f

typedef struct pair_block {
    size_t n;
    float *before; /* what was uploaded */
    bool *seen;    /* compared: may have changed */
    void *memory[2];
} pair_block;

typedef struct pair_list {
    void *memory[2];
} pair_list;

typedef struct pair {
    nm_backend *on[2];
    const char *what; /* kernel and level, for messages */
    uint64_t seed, hash;
    pair_block blocks[PAIR_BLOCKS];
    pair_list lists[PAIR_LISTS];
    int n_blocks, n_lists;
} pair;

/* The same matrix in both backends: a view into a block. */
typedef struct twin {
    int block;
    size_t first; /* element of the block */
    nm_mat m[2];
} twin;

/* Calls a kernel of both backends; in the arguments, x.m[s] is the matrix of a twin on the side being called. */
#define BOTH(p, kernel, ...)                                                                                 \
    do {                                                                                                     \
        for (int s = SUBJECT; s <= JUDGE; s++)                                                               \
            NM_CALL((p)->on[s], kernel, __VA_ARGS__);                                                        \
    } while (0)

/* A number for element `index` of the matrix being made: nearly normal, of variance 1. */
double pair_normal(pair *p, uint64_t index);
/* A matrix of make(p, index) with `gap` guard elements after each row. */
twin pair_make(pair *p, int32_t rows, int32_t cols, int32_t gap, double (*make)(pair *p, uint64_t index));
twin pair_random(pair *p, int32_t rows, int32_t cols, int32_t gap);
/* Columns first .. first + cols - 1 of a twin. */
twin twin_slice(const pair *p, twin t, int32_t first, int32_t cols);
/* Gives a row another value in both backends, before a kernel runs. */
void twin_fill_row(pair *p, twin t, int32_t row, float value);

/* The same bytes in both backends. */
pair_list pair_list_of(pair *p, const void *data, size_t bytes);
/* n whole numbers below `below`, with repetitions. */
pair_list pair_ids(pair *p, int32_t n, int32_t below);

/* An output that may have changed without being compared. */
void pair_mark(pair *p, twin t);
/* Compares an output: |difference| <= ulps * FLT_EPSILON * (max(|wanted|, rms of its row) + size), size being
 * sizes[row], or 0. Use it for magnitudes that cancel in the result. */
void twin_compare_sized(pair *p, const char *name, twin t, double ulps, const double *sizes);
/* The same with one size for all rows. */
void twin_compare(pair *p, const char *name, twin t, double ulps, double size);
/* The two loss sums of both sides, over this many tokens. */
void pair_compare_sums(pair *p, double *const sums[2], int32_t tokens);
/* The judge's numbers of a twin, packed; the caller frees them. */
double *twin_judged(pair *p, twin t);

/* Checks that nothing but the compared elements changed, mixes the subject's memory into the hash, frees it all. */
void pair_close(pair *p);

#endif
