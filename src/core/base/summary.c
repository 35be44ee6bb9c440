#include "base/summary.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

nm_summary nm_summary_of(const double *values, size_t n)
{
    nm_summary s = {.mean = NAN, .deviation = NAN};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i])) {
            sum += values[i];
            s.n++;
        }
    if (s.n)
        s.mean = sum / (double)s.n;
    for (size_t i = 0; i < n; i++) /* a second pass, because a sum of squares of large values cancels */
        if (isfinite(values[i]))
            squares += (values[i] - s.mean) * (values[i] - s.mean);
    if (s.n > 1)
        s.deviation = sqrt(squares / (double)(s.n - 1));
    return s;
}

typedef struct ranked_p {
    double p;
    size_t index;
} ranked_p;

static int compare_p(const void *a, const void *b)
{
    const ranked_p *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? -1 : 1) : (x->index > y->index) - (x->index < y->index);
}

void nm_holm(const double *p, size_t n, double *adjusted)
{
    NM_AUTO_FREE ranked_p *ascending = nm_allocate((n + 1) * sizeof *ascending);
    size_t m = 0;
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(p[i]))
            ascending[m++] = (ranked_p){p[i], i};
        else
            adjusted[i] = NAN;
    qsort(ascending, m, sizeof *ascending, compare_p);
    for (size_t k = 0; k < m; k++) {
        largest = fmax(largest, fmin(1, (double)(m - k) * ascending[k].p));
        adjusted[ascending[k].index] = largest;
    }
}

size_t nm_signature_common(const char *signature, size_t bytes, const char *other)
{
    size_t same = 0, whole = 0;
    for (; same < bytes && other[same] == signature[same]; same++)
        whole = signature[same] == '|' ? same : whole;
    bool ends = same == bytes || signature[same] == '|', other_ends = !other[same] || other[same] == '|';
    return ends && other_ends ? same : whole;
}
