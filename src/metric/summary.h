/* Several runs of one kind in a few numbers, and several tests at once. NaN stands for what is not known. */
#ifndef NM_SUMMARY_H
#define NM_SUMMARY_H

#include <stddef.h>

typedef struct nm_summary {
    size_t n;         /* finite values */
    double mean;      /* NaN without any */
    double deviation; /* of the sample: the squares are divided by n - 1; NaN below two values */
} nm_summary;

nm_summary nm_summary_of(const double *values, size_t n);

/* Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979): of m finite p in rising order, the k-th (from 1)
 * becomes the largest (m - j + 1) p_j of j <= k, at most 1. Rejecting what is below alpha keeps the chance of any false
 * rejection below alpha. NaN stays NaN and does not count. adjusted may be p. */
void nm_holm(const double *p, size_t n, double *adjusted);

#endif
