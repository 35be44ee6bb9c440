/* Singular values of a matrix X [rows, d] from the eigenvalues of X^T X, in double precision. Rows can be
 * added in batches; only d x d sums are stored. The eigenvalues are computed by Householder reduction to a
 * tridiagonal matrix and the implicit QL algorithm (Golub and Van Loan 1996, section 8.3). Singular values
 * below about 1e-8 times the largest are lost in rounding. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct nm_gram {
    int32_t d;
    int64_t rows;
    double *sums; /* upper triangle of X^T X, [d, d], heap */
} nm_gram;

/* X has no rows yet. Free with nm_gram_release. */
void nm_gram_init(nm_gram *gram, int32_t d);
/* x: [rows, d] */
void nm_gram_add(nm_gram *gram, const double *x, int64_t rows);
/* Writes d singular values, descending; apart from rounding, at most min(rows, d) are above 0. All are NaN if
 * X has values that are not finite. */
void nm_gram_singular(const nm_gram *gram, double *values);
void nm_gram_release(nm_gram *gram);

/* Condition number C_p = s_1 / s_ceil(p d) of d descending values (Wang et al. 2022, figures 6 and 7). */
double nm_condition(const double *values, int32_t d, double p);
