/* Relative deviation of the batch statistics from the running statistics (Wang et al. 2022, section 3.1,
 * figure 2), the training-inference discrepancy at one batch:
 *     mean           = |mu_B - mu|_2       / |sigma|_2
 *     variance       = |sigma_B - sigma|_2 / |sigma|_2
 *     quadratic_mean = |psi_B - psi|_2     / |psi|_2         norms that divide by the quadratic mean
 * mu, sigma and psi are the running statistics before this batch updates them. The paper does not define the
 * deviation of its figure 2; this is the ratio of its equation 5 with running statistics instead of
 * expectations. */
#include <math.h>
#include <string.h>

#include "probe/instrument.h"

/* |batch - running|_2, [width] each; root: of their elementwise square roots. */
static double distance(const double *batch, const double *running, size_t width, bool root)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        double d = root ? sqrt(fmax(batch[i], 0)) - sqrt(fmax(running[i], 0)) : batch[i] - running[i];
        sum += d * d;
    }
    return sqrt(sum);
}

/* L2 norm of the elementwise square roots: |sigma|_2 from variances, |psi|_2 from mean squares. */
static double root_sum(const double *squares, size_t width)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++)
        sum += squares[i];
    return sqrt(sum);
}

typedef struct statistic {
    const char *quantity;    /* nm_call_pair.quantity */
    double *batch, *running; /* [width], heap */
} statistic;

static statistic download(const nm_norm_call *call, const nm_call_pair *pair)
{
    size_t width = (size_t)call->x.cols;
    statistic s = {pair->quantity, nm_vector_values(call->backend, pair->batch, width),
                   nm_vector_values(call->backend, pair->running, width)};
    for (size_t i = 0; i < width && pair->root; i++)
        s.running[i] *= s.running[i];
    return s;
}

static void measure_norm(nm_probe_record *record, const nm_norm_call *call, bool backward)
{
    nm_call_pair pairs[NM_CALL_MAX_PAIRS];
    statistic all[NM_CALL_MAX_PAIRS];
    int n = backward ? 0 : nm_call_pairs(call, pairs);
    size_t width = (size_t)call->x.cols;
    double scale = NAN; /* |sigma|_2, or |psi|_2 */
    if (!n)
        return;
    for (int i = 0; i < n; i++) {
        all[i] = download(call, &pairs[i]);
        if (strcmp(all[i].quantity, "mean"))
            scale = root_sum(all[i].running, width);
    }
    json_t *line = nm_probe_record_line(record, call->norm->site.name);
    for (int i = 0; i < n; i++) {
        bool root = strcmp(all[i].quantity, "mean") != 0;
        nm_line_number(line, all[i].quantity, distance(all[i].batch, all[i].running, width, root) / scale);
        NM_FREE(all[i].batch, all[i].running);
    }
}

const nm_instrument nm_instrument_deviation = {
    .name = "deviation",
    .norm = measure_norm,
};
