/* Statistics over several runs, and correction for several tests. NaN represents an unknown value. */
#pragma once

#include <stddef.h>

typedef struct nm_summary {
    size_t n;         /* number of finite values */
    double mean;      /* NaN if n is 0 */
    double deviation; /* sample standard deviation (denominator n - 1); NaN if n is below 2 */
} nm_summary;

/* Summary of the finite values. */
nm_summary nm_summary_of(const double *values, size_t n);

/* Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979). For the m finite p in ascending
 * order:
 *
 *     adjusted_k = min(1, max over j <= k of (m - j + 1) p_j)
 *
 * If hypotheses with an adjusted p below alpha are rejected, the probability of any false rejection is at
 * most alpha. NaN remains NaN and is not counted. `adjusted` may be `p`. */
void nm_holm(const double *p, size_t n, double *adjusted);

/* Length of the fields, separated by '|', with which the first `bytes` bytes of a signature and another
 * signature both begin. The later fields of some signatures are results of a run. */
size_t nm_signature_common(const char *signature, size_t bytes, const char *other);
