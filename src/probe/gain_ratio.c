/* The distribution over features of gamma / psi_B, or gamma / sigma_B (Shen et al. 2020, figure 7): where it is below 1,
 * Lemma 2 says that the norm makes the loss smoother. */
#include <math.h>
#include <stdlib.h>

#include "probe/instrument.h"
#include "base/sort.h"

enum { BINS = 20, TENTHS = 10 };

static void tell_histogram(json_t *line, const double *sorted, size_t n)
{
    json_t *histogram = json_object(), *counts;
    double low = sorted[0], high = sorted[n - 1];
    int64_t bins[BINS] = {0};
    for (size_t i = 0; i < n; i++) {
        double place = high > low ? (sorted[i] - low) / (high - low) * BINS : 0;
        bins[place >= 0 && place < BINS ? (int)place : BINS - 1]++;
    }
    nm_line_number(histogram, "low", low);
    nm_line_number(histogram, "high", high);
    counts = nm_line_array(histogram, "counts");
    for (int i = 0; i < BINS; i++)
        json_array_append_new(counts, json_integer(bins[i]));
    json_object_set_new(line, "histogram", histogram);
}

static void tell(json_t *line, double *ratio, size_t n)
{
    size_t above = 0;
    for (size_t i = 0; i < n; i++)
        above += ratio[i] > 1;
    nm_sort_doubles(ratio, n);
    json_t *quantiles = nm_line_array(line, "quantiles");
    for (int i = 0; i <= TENTHS; i++)
        nm_array_number(quantiles, nm_numbers_quantile(ratio, n, i / (double)TENTHS));
    nm_line_number(line, "above_one", (double)above / (double)n);
    tell_histogram(line, ratio, n);
}

static void look_at_norm(nm_look *look, const nm_norm_call *call, bool backward)
{
    size_t width = (size_t)call->x.cols;
    const void *divisor = nm_call_stat(call, "scale", call->x.cols);
    if (backward || !divisor ||
        (!nm_call_stat(call, "batch_square", call->x.cols) && !nm_call_stat(call, "batch_var", call->x.cols)))
        return; /* a norm of tokens may publish as many scales as there are features */
    double *ratio = nm_call_gain(call), *scale = nm_numbers_download(call->backend, divisor, width);
    for (size_t i = 0; i < width; i++)
        ratio[i] = fabs(ratio[i]) * scale[i];
    tell(nm_look_line(look, call->norm->site.name), ratio, width);
    free(ratio);
    free(scale);
}

const nm_instrument nm_instrument_gain = {
    .name = "gain",
    .help = "distribution of gamma / psi_B over the features",
    .norm = look_at_norm,
};
