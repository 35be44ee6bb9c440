/* The terms of the input gradient that flow through the batch statistics (Shen et al. 2020, figures 3 and 4),
 * as vectors over the d features; their L2 norm divided by d is logged:
 *     g_mu      = gamma / (sigma_B B) sum_j dL/dy_j
 *     g_sigma^2 = gamma / (sigma_B B) sum_j dL/dy_j z_j         z = (x - mu_B) / sigma_B
 *     g_psi^2   = gamma / (psi_B B) sum_j dL/dy_j z_j           z = x / psi_B
 * L is the mean loss over the batch's targets, B the number of its rows. The divisor is that of the forward
 * pass: for PowerNorm after its warm-up, the running psi. */

#include "probe/instrument.h"

static double term_norm(const nm_norm_call *call, const double *weight, const double *scale, const void *sum)
{
    size_t width = (size_t)call->x.cols;
    NM_AUTO_FREE double *v = nm_vector_values(call->backend, sum, width);
    double factor = 1 / (call->x.rows * call->grad_scale * call->n_targets);
    for (size_t i = 0; i < width; i++)
        v[i] *= weight[i] * scale[i] * factor;
    double norm = nm_l2_norm(v, width);
    return norm / (double)width;
}

static void measure_norm(nm_probe_record *record, const nm_norm_call *call, bool backward)
{
    int32_t width = call->x.cols;
    const void *sum = nm_call_stat(call, "grad_sum", width), *sum_z = nm_call_stat(call, "grad_sum_z", width),
               *divisor = nm_call_stat(call, "scale", width);
    if (!backward || !sum || !sum_z || !divisor)
        return;
    NM_AUTO_FREE double *weight = nm_call_weight(call),
                        *scale = nm_vector_values(call->backend, divisor, (size_t)width);
    json_t *line = nm_probe_record_line(record, call->norm->site.name);
    if (nm_call_stat(call, "batch_mean", width)) {
        nm_line_number(line, "mu", term_norm(call, weight, scale, sum));
        nm_line_number(line, "sigma2", term_norm(call, weight, scale, sum_z));
    } else {
        nm_line_number(line, "psi2", term_norm(call, weight, scale, sum_z));
    }
    nm_line_count(line, "rows", call->x.rows);
}

const nm_instrument nm_instrument_gradient_parts = {
    .name = "gradient_parts",
    .norm = measure_norm,
};
