/* Distance between the statistics of the batch and the running statistics (Shen et al. 2020, figures 2 and
 * 4):
 *     mean           = |mu_B - mu|_2 / d
 *     variance       = |sigma_B^2 - sigma^2|_2 / d
 *     quadratic_mean = |psi_B^2 - psi^2|_2 / d
 * d: width. mu, sigma^2 and psi^2 are the running statistics before this batch updates them. */

#include "probe/instrument.h"

static double distance(nm_backend *b, const nm_call_pair *pair, size_t width)
{
    NM_AUTO_FREE double *batch = nm_vector_values(b, pair->batch, width),
                        *running = nm_vector_values(b, pair->running, width);
    for (size_t i = 0; i < width; i++)
        batch[i] -= pair->root ? running[i] * running[i] : running[i];
    double norm = nm_l2_norm(batch, width);
    return norm / (double)width;
}

static void measure_norm(nm_probe_record *record, const nm_norm_call *call, bool backward)
{
    nm_call_pair pairs[NM_CALL_MAX_PAIRS];
    int n = backward ? 0 : nm_call_pairs(call, pairs);
    if (!n)
        return;
    json_t *line = nm_probe_record_line(record, call->norm->site.name);
    for (int i = 0; i < n; i++)
        nm_line_number(line, pairs[i].quantity, distance(call->backend, &pairs[i], (size_t)call->x.cols));
}

const nm_instrument nm_instrument_distance = {
    .name = "distance",
    .norm = measure_norm,
};
