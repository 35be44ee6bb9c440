/* Singular values of a matrix X [rows, d] from the eigenvalues of X^T X, in double: rows can come a batch at a time, and
 * only d x d numbers are kept. Householder reduction to a tridiagonal matrix, then implicit QL (Golub and Van Loan 1996,
 * 8.3). Singular values below some 1e-8 of the largest are lost in its rounding; the papers' figures end long before. */
#ifndef NM_SPECTRUM_H
#define NM_SPECTRUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct nm_gram {
    int32_t d;
    int64_t rows; /* added so far */
    double *sums; /* upper triangle of X^T X, [d, d] */
} nm_gram;

void nm_gram_init(nm_gram *gram, int32_t d);
void nm_gram_add(nm_gram *gram, const double *x, int64_t rows);
/* d singular values, the largest first; min(rows, d) of them can be above 0. Numbers that are not finite give NaN. */
void nm_gram_singular(const nm_gram *gram, double *values);
void nm_gram_release(nm_gram *gram);

/* Condition number C_p = s_1 / s_ceil(p d) of d values, the largest first (Wang et al. 2022, figures 6 and 7). */
double nm_condition(const double *values, int32_t d, double p);

#endif
