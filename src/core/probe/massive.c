/* Massive activations of the residual stream after each sublayer (Sun et al. 2024, Massive Activations in
 * Large Language Models, section 2): a few elements whose magnitude exceeds 100 and is at least 1000 times
 * the median magnitude of the hidden state. */
#include <math.h>
#include <stddef.h>

#include "probe/instrument.h"

static const double LEAST = 100, LEAST_RATIO = 1000;

/* The k-th smallest value, from 0; reorders the values (Hoare 1961, FIND). Sorting takes longer than a
 * measurement should. */
static double find_kth(double *values, ptrdiff_t n, ptrdiff_t k)
{
    for (ptrdiff_t low = 0, high = n - 1; low < high;) {
        const double pivot = values[k];
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (pivot < values[j])
                j--;
            if (i > j)
                break;
            const double swapped = values[i];
            values[i++] = values[j];
            values[j--] = swapped;
        }
        low = j < k ? i : low;
        high = k < i ? j : high;
    }
    return values[k];
}

static void measure_residual(nm_probe_record *record, const nm_residual_call *call)
{
    const size_t n = (size_t)call->out.rows * (size_t)call->out.cols;
    NM_AUTO_FREE double *values = nm_mat_values(call->backend, call->out);
    size_t largest = 0, count = 0;
    bool finite = n > 0;
    for (size_t i = 0; i < n; i++) {
        values[i] = fabs(values[i]);
        finite = finite && isfinite(values[i]);
        largest = values[i] > values[largest] ? i : largest;
    }
    json_t *line = nm_probe_record_line(record, call->site);
    if (finite) {
        const double top = values[largest], median = find_kth(values, (ptrdiff_t)n, (ptrdiff_t)(n / 2));
        for (size_t i = 0; i < n; i++)
            count += values[i] > LEAST && values[i] >= LEAST_RATIO * median;
        nm_line_number(line, "largest", top);
        nm_line_number(line, "median", median);
        nm_line_number(line, "ratio", top / median);
        nm_line_count(line, "feature", (int64_t)(largest % (size_t)call->out.cols));
        nm_line_count(line, "count", (int64_t)count);
    }
}

const nm_instrument nm_instrument_massive = {
    .name = "massive",
    .residual = measure_residual,
};
