/* Relative size of an update, of all parameters and of each group:
 *     ratio = |w_after - w_before|_2 / |w_before|_2 */
#include <math.h>

#include "base/memory.h"
#include "probe/instrument.h"

/* Copies the parameters before the optimizer step. */
static void copy_params(nm_probe_record *record, const nm_model *model)
{
    if (nm_params_copy(&model->params, &record->state, NM_IGNORED) != NM_OK)
        nm_out_of_memory(nm_params_bytes(&model->params)); /* no measurement is left out */
}

static void add_ratios(nm_probe_record *record, const nm_model *model)
{
    nm_backend *b = model->backend;
    NM_AUTO(nm_group_sums_release) nm_group_sums sums = {0};
    for (size_t i = 0; record->state && i < model->params.n; i++) {
        const nm_param *param = model->params.list[i];
        const nm_tensor *t = &param->tensor;
        void *before = (char *)record->state + param->offset * nm_dtype_bytes(b->dtype);
        size_t n = (size_t)t->rows * (size_t)t->cols;
        double weight = 0, moved = 0;
        if (param->fixed)
            continue;
        NM_CALL(b, dot, .n = n, .a = before, .b = before, .out = &weight);
        NM_CALL(b, add, .alpha = -1, .x = nm_tensor_mat(t), .y = nm_mat_of(before, t->rows, t->cols));
        NM_CALL(b, dot, .n = n, .a = before, .b = before, .out = &moved);
        nm_group_sums_add(&sums, t->name, moved, weight);
    }
    for (size_t i = 0; i < sums.n; i++) {
        json_t *line = nm_probe_record_line(record, sums.list[i].name);
        nm_line_number(line, "ratio", sqrt(sums.list[i].a / sums.list[i].b));
        nm_line_number(line, "update_norm", sqrt(sums.list[i].a));
        nm_line_number(line, "weight_norm", sqrt(sums.list[i].b));
    }
}

static void release(nm_probe_record *record)
{
    nm_params_copy_free(record->backend, &record->state);
}

const nm_instrument nm_instrument_update_ratio = {
    .name = "update_ratio",
    .gradients = copy_params,
    .updated = add_ratios,
    .release = release,
};
