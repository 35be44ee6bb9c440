#include "base/selection.h"

#include <math.h>

#include "base/memory.h"
#include "base/summary.h"

static nm_summary differences(const double *a, const double *b, size_t n)
{
    NM_AUTO_FREE double *d = nm_allocate((n + 1) * sizeof *d);
    for (size_t i = 0; i < n; i++)
        d[i] = a[i] - b[i];
    return nm_summary_of(d, n);
}

/* The boundary W_il. deviation: S_il */
static double boundary(const nm_selection *s, double deviation, size_t r)
{
    double df = (double)s->first - 1, eta = 0.5 * (pow(2 * s->alpha / ((double)s->k - 1), -2 / df) - 1),
           h2 = 2 * eta * df, ratio = deviation / s->delta;
    return fmax(0, s->delta / (2 * (double)r) * (h2 * ratio * ratio - (double)r));
}

size_t nm_selection_eliminate(const nm_selection *s, const double *const *values, size_t r, bool *remains,
                              size_t *by)
{
    size_t n = 0;
    NM_AUTO_FREE bool *out = nm_allocate((s->k + 1) * sizeof *out);
    for (size_t i = 0; i < s->k; i++)
        for (size_t l = 0; l < s->k && remains[i] && !out[i]; l++) {
            if (l == i || !remains[l])
                continue;
            double w = boundary(s, differences(values[i], values[l], s->first).deviation, r);
            if (differences(values[i], values[l], r).mean < -w) {
                out[i] = true;
                by[i] = l;
            }
        }
    for (size_t i = 0; i < s->k; i++) {
        remains[i] = remains[i] && !out[i];
        n += remains[i];
    }
    return n;
}

double nm_selection_bound(const double *a, const double *b, size_t n, double alpha)
{
    nm_summary d = differences(a, b, n);
    if (n < 2)
        return INFINITY;
    return d.mean + d.deviation / sqrt((double)n) * nm_student_quantile(1 - alpha, (double)n - 1);
}

/* Normal approximation of the noncentral t distribution, iterated because the quantiles depend on n. */
int64_t nm_seeds_needed(double deviation, double delta, double alpha, double power)
{
    const int64_t most = 1000000;
    double n = 2;
    for (int i = 0; i < 100; i++) {
        double df = fmax(1, n - 1),
               t = nm_student_quantile(1 - alpha / 2, df) + nm_student_quantile(power, df),
               next = fmax(2, ceil(t * t * deviation * deviation / (delta * delta)));
        if (!(next < (double)most))
            return most;
        if (next == n)
            break;
        n = next > n ? next : floor((n + next) / 2); /* from above it can oscillate by one */
    }
    return (int64_t)n;
}
