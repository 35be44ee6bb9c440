/* The parts of the input's gradient that come through the statistics of the batch (Shen et al. 2020, figures 3 and 4),
 * as vectors over the features, of which the length divided by d is told:
 *     g_mu      = gamma / (sigma_B B) sum_j dL/dy_j
 *     g_sigma^2 = gamma / (sigma_B B) sum_j dL/dy_j z_j         z = (x - mu_B) / sigma_B
 *     g_psi^2   = gamma / (psi_B B) sum_j dL/dy_j z_j           z = x / psi_B
 * L is the mean loss of the batch's target tokens, B its rows. The divisor is that of the forward pass, so in PowerNorm
 * after its warm-up the remembered psi. */
#include <stdlib.h>

#include "probe/instrument.h"

static double part(const nm_norm_call *call, const double *gain, const double *scale, const void *sum)
{
    size_t width = (size_t)call->x.cols;
    double *v = nm_numbers_download(call->backend, sum, width);
    double factor = 1 / (call->x.rows * call->grad_scale * call->n_targets);
    for (size_t i = 0; i < width; i++)
        v[i] *= gain[i] * scale[i] * factor;
    double length = nm_numbers_length(v, width);
    free(v);
    return length / (double)width;
}

static void look_at_norm(nm_look *look, const nm_norm_call *call, bool backward)
{
    int32_t width = call->x.cols;
    const void *sum = nm_call_stat(call, "grad_sum", width), *sum_z = nm_call_stat(call, "grad_sum_z", width),
               *divisor = nm_call_stat(call, "scale", width);
    if (!backward || !sum || !sum_z || !divisor)
        return;
    double *gain = nm_call_gain(call), *scale = nm_numbers_download(call->backend, divisor, (size_t)width);
    json_t *line = nm_look_line(look, call->norm->site.name);
    if (nm_call_stat(call, "batch_mean", width)) {
        nm_line_number(line, "mu", part(call, gain, scale, sum));
        nm_line_number(line, "sigma2", part(call, gain, scale, sum_z));
    } else {
        nm_line_number(line, "psi2", part(call, gain, scale, sum_z));
    }
    json_object_set_new(line, "rows", json_integer(call->x.rows));
    free(gain);
    free(scale);
}

const nm_instrument nm_instrument_gradient_parts = {
    .name = "gradient_parts",
    .help = "parts of the gradient through the batch's mean, variance, quadratic mean",
    .norm = look_at_norm,
};
