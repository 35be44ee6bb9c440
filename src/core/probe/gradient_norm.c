/* L2 norm of the gradient of the mean loss per target, before clipping: over all parameters (Nguyen and
 * Salazar 2019, figure 2) and over each group. */
#include <math.h>

#include "probe/instrument.h"

static void measure_gradients(nm_probe_record *record, const nm_model *model)
{
    NM_AUTO(nm_group_sums_release) nm_group_sums sums = {0};
    nm_backend *b = model->backend;
    for (size_t i = 0; i < model->params.n; i++) {
        const nm_param *param = model->params.list[i];
        const nm_tensor *t = &param->tensor;
        double square = 0;
        if (param->fixed)
            continue;
        NM_CALL(b, dot, .n = (size_t)t->rows * (size_t)t->cols, .a = t->grad, .b = t->grad, .out = &square);
        nm_group_sums_add(&sums, t->name, square, 0);
    }
    for (size_t i = 0; i < sums.n; i++)
        nm_line_number(nm_probe_record_line(record, sums.list[i].name), "norm",
                       sqrt(sums.list[i].a) / record->n_targets);
}

const nm_instrument nm_instrument_gradient = {
    .name = "gradient",
    .gradients = measure_gradients,
};
