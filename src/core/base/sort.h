/* Order statistics of doubles. */
#pragma once

#include <stddef.h>

/* Sorts in ascending order. The values must not be NaN. */
void nm_sort_doubles(double *values, size_t n);
/* Median, for even n the mean of the two middle values; NaN for n = 0. The values must not be NaN. */
double nm_median(const double *values, size_t n);
