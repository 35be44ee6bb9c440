/* Distribution over the features of |gamma| / psi_B, or |gamma| / sigma_B (Shen et al. 2020, figure 7). By
 * lemma 2, where it is at most 1 the normalization does not increase the L2 norm of the gradient. */
#include <math.h>

#include "base/sort.h"
#include "base/json.h"
#include "probe/instrument.h"

enum { BINS = 20, TENTHS = 10 };

static void add_histogram(json_t *line, const double *sorted, size_t n)
{
    double low = sorted[0], high = sorted[n - 1];
    int64_t counts[BINS] = {0};
    for (size_t i = 0; i < n; i++) {
        double bin = high > low ? (sorted[i] - low) / (high - low) * BINS : 0;
        counts[bin >= 0 && bin < BINS ? (int)bin : BINS - 1]++;
    }
    nm_json_add(line, "{s:{s:o, s:o, s:o}}", "histogram", "low", nm_json_number(low), "high",
                nm_json_number(high), "counts", nm_json_counts(counts, BINS));
}

static void add_distribution(json_t *line, double *ratio, size_t n)
{
    size_t above = 0;
    for (size_t i = 0; i < n; i++)
        above += ratio[i] > 1;
    nm_sort_doubles(ratio, n);
    json_t *quantiles = nm_line_array(line, "quantiles");
    for (int i = 0; i <= TENTHS; i++)
        nm_array_number(quantiles, nm_quantile(ratio, n, i / (double)TENTHS));
    nm_line_number(line, "above_one", (double)above / (double)n);
    add_histogram(line, ratio, n);
}

static void measure_norm(nm_probe_record *record, const nm_norm_call *call, bool backward)
{
    size_t width = (size_t)call->x.cols;
    const void *divisor = nm_call_stat(call, "scale", call->x.cols);
    if (backward || !divisor ||
        (!nm_call_stat(call, "batch_square", call->x.cols) && !nm_call_stat(call, "batch_var", call->x.cols)))
        /* `scale` of a per-token norm has one element per row, possibly the same number as features */
        return;
    NM_AUTO_FREE double *ratio = nm_call_weight(call),
                        *scale = nm_vector_values(call->backend, divisor, width);
    for (size_t i = 0; i < width; i++)
        ratio[i] = fabs(ratio[i]) * scale[i];
    add_distribution(nm_probe_record_line(record, call->norm->site.name), ratio, width);
}

const nm_instrument nm_instrument_gain = {
    .name = "gain",
    .norm = measure_norm,
};
