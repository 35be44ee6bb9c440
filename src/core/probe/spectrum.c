#include "probe/spectrum.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/sort.h"

void nm_gram_init(nm_gram *gram, int32_t d)
{
    *gram = (nm_gram){.d = d, .sums = nm_allocate((size_t)d * (size_t)d * sizeof(double))};
}

void nm_gram_release(nm_gram *gram)
{
    free(gram->sums);
    *gram = (nm_gram){0};
}

/* Adds four rows per pass over the triangle, which may exceed the CPU caches. */
void nm_gram_add(nm_gram *gram, const double *x, int64_t rows)
{
    const int32_t d = gram->d;
    NM_AUTO_FREE double *zeros = nm_allocate((size_t)d * sizeof *zeros);
    for (int64_t r = 0; r < rows; r += 4) {
        const double *a[4];
        for (int k = 0; k < 4; k++)
            a[k] = r + k < rows ? x + (size_t)(r + k) * (size_t)d : zeros;
        for (int32_t i = 0; i < d; i++) {
            double *sum = gram->sums + (size_t)i * (size_t)d;
            for (int32_t j = i; j < d; j++)
                sum[j] += a[0][i] * a[0][j] + a[1][i] * a[1][j] + a[2][i] * a[2][j] + a[3][i] * a[3][j];
        }
    }
    gram->rows += rows;
}

/* One Householder step on the leading n x n block of the symmetric a (row stride d): row n - 1 becomes
 * (0, ..., 0, off, diagonal). scratch [n]. Returns the off-diagonal element. */
static double reduce_row(double *a, int32_t d, int32_t n, double *scratch)
{
    double *u = a + (size_t)(n - 1) * (size_t)d, square = 0, inner = 0;
    const int32_t m = n - 1;
    for (int32_t i = 0; i < m - 1; i++)
        square += u[i] * u[i];
    if (m < 1 || square <= 0)
        return m < 1 ? 0 : u[m - 1];
    double norm = sqrt(square + u[m - 1] * u[m - 1]), off = u[m - 1] > 0 ? -norm : norm;
    u[m - 1] -= off;
    double h = square + u[m - 1] * u[m - 1]; /* |u|^2; the reflection is 1 - 2 u u^T / h */
    for (int32_t i = 0; i < m; i++) {
        double sum = 0;
        for (int32_t j = 0; j < m; j++)
            sum += a[(size_t)i * (size_t)d + (size_t)j] * u[j];
        scratch[i] = 2 * sum / h;
        inner += scratch[i] * u[i];
    }
    for (int32_t i = 0; i < m; i++)
        scratch[i] -= inner / h * u[i];
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < m; j++)
            a[(size_t)i * (size_t)d + (size_t)j] -= u[i] * scratch[j] + scratch[i] * u[j];
    return off;
}

/* One implicit QL step with Wilkinson's shift on rows first .. last of the tridiagonal matrix (diagonal t,
 * subdiagonal e). */
static void ql_step(double *t, double *e, int32_t first, int32_t last)
{
    double g = (t[first + 1] - t[first]) / (2 * e[first]), r = hypot(g, 1), s = 1, c = 1, p = 0;
    g = t[last] - t[first] + e[first] / (g + copysign(r, g));
    for (int32_t i = last - 1; i >= first; i--) {
        double f = s * e[i], b = c * e[i];
        e[i + 1] = r = hypot(f, g);
        if (r == 0) { /* the matrix splits here */
            t[i + 1] -= p;
            e[last] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = t[i + 1] - p;
        r = (t[i] - g) * s + 2 * c * b;
        p = s * r;
        t[i + 1] = g + p;
        g = c * r - b;
    }
    t[first] -= p;
    e[first] = g;
    e[last] = 0;
}

/* Replaces the diagonal t of a tridiagonal matrix by its eigenvalues. e[i]: element of rows i and i + 1; e[d
 * - 1] is scratch. */
static void tridiagonal_eigenvalues(double *t, double *e, int32_t d)
{
    enum { MAX_STEPS = 60 }; /* an eigenvalue usually converges in two or three */
    for (int32_t first = 0; first < d; first++)
        for (int step = 0; step < MAX_STEPS; step++) {
            int32_t last = first;
            while (last < d - 1 && fabs(e[last]) > 0x1p-53 * (fabs(t[last]) + fabs(t[last + 1])))
                last++;
            if (last == first)
                break;
            ql_step(t, e, first, last);
        }
}

static bool all_finite(const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

void nm_gram_singular(const nm_gram *gram, double *values)
{
    const size_t d = (size_t)gram->d;
    NM_AUTO_FREE double *a = nm_allocate(d * d * sizeof *a), *e = nm_allocate(d * sizeof *e),
                        *scratch = nm_allocate(d * sizeof *scratch);
    bool finite = all_finite(gram->sums, d * d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            a[i * d + j] = gram->sums[i < j ? i * d + j : j * d + i];
    for (size_t n = d; finite && n >= 1; n--) {
        values[n - 1] = a[(n - 1) * d + n - 1];
        if (n > 1)
            e[n - 2] = reduce_row(a, gram->d, (int32_t)n, scratch);
    }
    if (finite)
        tridiagonal_eigenvalues(values, e, gram->d);
    for (size_t i = 0; i < d; i++)
        values[i] = !finite ? NAN : values[i] > 0 ? -sqrt(values[i]) : 0;
    nm_sort_doubles(values, d); /* ascending negated values are descending singular values */
    for (size_t i = 0; i < d; i++)
        values[i] = finite ? fabs(values[i]) : NAN;
}

double nm_condition(const double *values, int32_t d, double p)
{
    int32_t at = (int32_t)ceil(p * d - 1e-9);
    return values[0] / values[(at < 1 ? 1 : at > d ? d : at) - 1];
}
