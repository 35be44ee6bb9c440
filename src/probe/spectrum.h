/* Singular values of a matrix X [rows, d] from the eigenvalues of X^T X, in double precision. Rows can be added one batch
 * at a time; only d x d sums are stored. Householder reduction to a tridiagonal matrix, then implicit QL (Golub and Van
 * Loan 1996, section 8.3). Singular values below about 1e-8 of the largest are lost in rounding. */
#ifndef NM_SPECTRUM_H
#define NM_SPECTRUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct nm_gram {
    int32_t d;
    int64_t rows;
    double *sums; /* upper triangle of X^T X, [d, d] */
} nm_gram;

void nm_gram_init(nm_gram *gram, int32_t d);
void nm_gram_add(nm_gram *gram, const double *x, int64_t rows);
/* d singular values, descending; at most min(rows, d) are above 0. All are NaN if X has values that are not finite. */
void nm_gram_singular(const nm_gram *gram, double *values);
void nm_gram_release(nm_gram *gram);

/* Condition number C_p = s_1 / s_ceil(p d) of d descending values (Wang et al. 2022, figures 6 and 7). */
double nm_condition(const double *values, int32_t d, double p);

#endif
