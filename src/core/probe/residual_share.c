/* Share of a sublayer in the variance of the residual stream that it adds to (Liu et al. 2020, Understanding
 * the Difficulty of Training Transformers, section 4: beta^2 of a branch on its own output):
 *     share = Var[F] / (Var[x] + Var[F])
 * with the variances over all tokens and features, for the terms x and F of the connection, F without
 * dropout. */
#include "probe/instrument.h"

static void measure_residual(nm_probe_record *record, const nm_residual_call *call)
{
    const double stream = nm_mat_variance(call->backend, call->stream),
                 branch = nm_mat_variance(call->backend, call->branch);
    json_t *line = nm_probe_record_line(record, call->site);
    nm_line_number(line, "stream", stream);
    nm_line_number(line, "branch", branch);
    nm_line_number(line, "share", branch / (stream + branch));
}

const nm_instrument nm_instrument_residual_share = {
    .name = "residual_share",
    .residual = measure_residual,
};
