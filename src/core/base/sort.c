#include "base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void nm_sort_doubles(double *values, size_t n)
{
    if (n)
        qsort(values, n, sizeof *values, compare_doubles);
}

double nm_median(const double *values, size_t n)
{
    if (!n)
        return NAN;
    NM_AUTO_FREE double *sorted = nm_allocate(n * sizeof *sorted);
    memcpy(sorted, values, n * sizeof *sorted);
    nm_sort_doubles(sorted, n);
    return 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
}
