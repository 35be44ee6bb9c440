/* The learned scale of every norm by stack, depth and sublayer (Nguyen and Salazar 2019, figures 3 and 4). ScaleNorm has
 * one number g; a gain with a number for each feature is put on the same footing by its length, sqrt(d) times its root
 * mean square (RMSNorm with all gains g / sqrt(d) is ScaleNorm). */
#include <math.h>
#include <stdlib.h>

#include "probe/instrument.h"

static void tell(nm_look *look, const nm_norm *norm, const double *gain, size_t n)
{
    json_t *line = nm_look_line(look, norm->site.name);
    nm_site site = nm_site_parse(norm->site.name);
    double least = gain[0], most = gain[0];
    for (size_t i = 1; i < n; i++) {
        least = fmin(least, gain[i]);
        most = fmax(most, gain[i]);
    }
    nm_line_text(line, "stack", site.stack);
    if (site.layer >= 0)
        json_object_set_new(line, "layer", json_integer(site.layer));
    nm_line_text(line, "sublayer", site.sublayer);
    nm_line_number(line, "g", n == 1 ? gain[0] : nm_numbers_length(gain, n));
    nm_line_number(line, "min", least);
    nm_line_number(line, "max", most);
}

static void look_at_gradients(nm_look *look, const nm_model *model)
{
    for (size_t i = 0; i < model->params.n_norms; i++) {
        const nm_norm *norm = model->params.norms[i];
        size_t n = norm->shape.n_params ? (size_t)norm->shape.params[0].length : 0;
        if (!n)
            continue;
        double *gain = nm_numbers_download(model->backend, norm->params[0], n);
        tell(look, norm, gain, n);
        free(gain);
    }
}

const nm_instrument nm_instrument_scale = {
    .name = "scale",
    .help = "learned g by sublayer and depth",
    .gradients = look_at_gradients, /* before the optimizer: the parameters this update was computed with */
};
