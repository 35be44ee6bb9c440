/* How far the batch's statistics are from the remembered ones (Shen et al. 2020, figures 2 and 4):
 *     |mu_B - mu| / d     |sigma_B^2 - sigma^2| / d     |psi_B^2 - psi^2| / d
 * with the remembered values before this batch moved them. */
#include <stdlib.h>

#include "probe/instrument.h"

static double distance(nm_backend *b, const nm_call_pair *pair, size_t width)
{
    double *batch = nm_numbers_download(b, pair->batch, width),
           *running = nm_numbers_download(b, pair->running, width);
    for (size_t i = 0; i < width; i++)
        batch[i] -= pair->root ? running[i] * running[i] : running[i];
    double length = nm_numbers_length(batch, width);
    free(batch);
    free(running);
    return length / (double)width;
}

static void look_at_norm(nm_look *look, const nm_norm_call *call, bool backward)
{
    nm_call_pair pairs[NM_CALL_MAX_PAIRS];
    int n = backward ? 0 : nm_call_pairs(call, pairs);
    if (!n)
        return;
    json_t *line = nm_look_line(look, call->norm->site.name);
    for (int i = 0; i < n; i++)
        nm_line_number(line, pairs[i].quantity, distance(call->backend, &pairs[i], (size_t)call->x.cols));
}

const nm_instrument nm_instrument_distance = {
    .name = "distance",
    .help = "distance of the batch's mean, variance, quadratic mean from the remembered ones",
    .norm = look_at_norm,
};
