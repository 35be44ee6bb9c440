/* The learned scale g of each norm by stack, layer and sublayer (Nguyen and Salazar 2019, figures 3 and 4).
 * ScaleNorm has a single g. Of a weight with one element per feature the L2 norm is logged, which is
 * comparable: RMSNorm with all weights g / sqrt(d) is ScaleNorm with g. */
#include <math.h>

#include "probe/instrument.h"

static void add_fit(nm_probe_record *record, const nm_norm *norm, const double *weight, size_t n)
{
    json_t *line = nm_probe_record_line(record, norm->site.name);
    nm_site site = nm_site_parse(norm->site.name);
    double min = weight[0], max = weight[0];
    for (size_t i = 1; i < n; i++) {
        min = fmin(min, weight[i]);
        max = fmax(max, weight[i]);
    }
    nm_line_text(line, "stack", site.stack);
    if (site.layer >= 0)
        nm_line_count(line, "layer", site.layer);
    nm_line_text(line, "sublayer", site.sublayer);
    nm_line_number(line, "g", n == 1 ? weight[0] : nm_l2_norm(weight, n));
    nm_line_number(line, "min", min);
    nm_line_number(line, "max", max);
}

static void measure_gradients(nm_probe_record *record, const nm_model *model)
{
    for (size_t i = 0; i < model->params.n_norms; i++) {
        const nm_norm *norm = model->params.norms[i];
        size_t n = norm->shape.n_params ? (size_t)norm->shape.params[0].length : 0;
        if (!n)
            continue;
        NM_AUTO_FREE double *weight = nm_vector_values(model->backend, norm->params[0], n);
        add_fit(record, norm, weight, n);
    }
}

const nm_instrument nm_instrument_scale = {
    .name = "scale",
    /* Before the optimizer step the parameters are those that the gradients were computed with. */
    .gradients = measure_gradients,
};
