/* How far an update moves the parameters, in shares of their length: |w_after - w_before| / |w_before|, of all and of each
 * group. */
#include <math.h>

#include "probe/instrument.h"

/* Keeps the parameters as they are before the optimizer moves them. */
static void keep(nm_look *look, const nm_model *model)
{
    nm_backend *b = model->backend;
    size_t bytes = nm_params_bytes(&model->params);
    nm_error ignored; /* without memory for a second copy there is nothing to tell */
    if (!look->own && nm_backend_alloc(b, bytes, &look->own, &ignored) != NM_OK)
        look->own = NULL;
    if (look->own)
        nm_backend_copy(b, look->own, model->params.values, bytes);
}

static void compare(nm_look *look, const nm_model *model)
{
    nm_backend *b = model->backend;
    nm_group_sums sums = {0};
    for (size_t i = 0; look->own && i < model->params.n; i++) {
        const nm_param *param = model->params.list[i];
        const nm_tensor *t = &param->tensor;
        void *before = (char *)look->own + param->offset * nm_dtype_bytes(b->dtype);
        size_t n = (size_t)t->rows * (size_t)t->cols;
        double weight = 0, moved = 0;
        if (param->fixed)
            continue;
        NM_CALL(b, dot, .n = n, .a = before, .b = before, .out = &weight);
        NM_CALL(b, add, .alpha = -1, .x = nm_tensor_mat(t), .y = nm_mat_of(before, t->rows, t->cols));
        NM_CALL(b, dot, .n = n, .a = before, .b = before, .out = &moved);
        nm_groups_add(&sums, t->name, moved, weight);
    }
    for (size_t i = 0; i < sums.n; i++) {
        json_t *line = nm_look_line(look, sums.list[i].name);
        nm_line_number(line, "ratio", sqrt(sums.list[i].a / sums.list[i].b));
        nm_line_number(line, "update_norm", sqrt(sums.list[i].a));
        nm_line_number(line, "weight_norm", sqrt(sums.list[i].b));
    }
    nm_groups_release(&sums);
}

static void release(nm_look *look)
{
    if (look->own)
        nm_backend_dealloc(look->backend, look->own);
    look->own = NULL;
}

const nm_instrument nm_instrument_update_ratio = {
    .name = "update_ratio",
    .help = "length of the update in shares of the length of the parameters",
    .gradients = keep,
    .updated = compare,
    .release = release,
};
