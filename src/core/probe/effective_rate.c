/* Effective learning rate of weights whose scale has no effect, because a norm follows them: of the
 * parameters w of a group, and of all.
 *     by_square = lr / |w|^2     SGD (van Laarhoven 2017, L2 Regularization versus Batch and Weight
 *                                Normalization; Hoffer et al. 2018, Norm matters)
 *     by_norm   = lr / |w|       updates whose size does not depend on the gradient's, such as Adam's (van
 *                                Laarhoven 2017, section 4)
 *     angle     = angle between w before and after the update, in radians, for any optimizer (Wan et al.
 *                 2021, Spherical Motion Dynamics; Kosson et al. 2024, Rotational Equilibrium)
 * With a = |w|, b = |w'|, the cosine c of the angle has 2 - 2c = (|w' - w|^2 - (a - b)^2) / (a b), which does
 * not lose small angles. */
#include <math.h>

#include "base/memory.h"
#include "probe/instrument.h"

static void copy_params(nm_probe_record *record, const nm_model *model)
{
    if (nm_params_copy(&model->params, &record->state, NM_IGNORED) != NM_OK)
        nm_out_of_memory(nm_params_bytes(&model->params)); /* no measurement is left out */
}

static void add_angles(nm_probe_record *record, const nm_model *model)
{
    nm_backend *b = model->backend;
    NM_AUTO(nm_group_sums_release) nm_group_sums norms = {0};
    NM_AUTO(nm_group_sums_release) nm_group_sums moves = {0}; /* |w|^2 and |w'|^2; |w' - w|^2 */
    for (size_t i = 0; i < model->params.n; i++) {
        const nm_param *param = model->params.list[i];
        const nm_tensor *t = &param->tensor;
        const size_t n = (size_t)t->rows * (size_t)t->cols;
        void *before = (char *)record->state + param->offset * nm_dtype_bytes(b->dtype);
        double old = 0, new = 0, moved = 0;
        if (param->fixed)
            continue;
        NM_CALL(b, dot, .n = n, .a = before, .b = before, .out = &old);
        NM_CALL(b, dot, .n = n, .a = t->data, .b = t->data, .out = &new);
        NM_CALL(b, add, .alpha = -1, .x = nm_tensor_mat(t), .y = nm_mat_of(before, t->rows, t->cols));
        NM_CALL(b, dot, .n = n, .a = before, .b = before, .out = &moved);
        nm_group_sums_add(&norms, t->name, old, new);
        nm_group_sums_add(&moves, t->name, moved, 0);
    }
    for (size_t i = 0; i < norms.n; i++) {
        const double before = sqrt(norms.list[i].a), after = sqrt(norms.list[i].b),
                     square = (moves.list[i].a - (before - after) * (before - after)) / (before * after);
        json_t *line = nm_probe_record_line(record, norms.list[i].name);
        nm_line_number(line, "by_square", record->learning_rate / norms.list[i].a);
        nm_line_number(line, "by_norm", record->learning_rate / before);
        nm_line_number(line, "angle", 2 * asin(fmin(sqrt(fmax(square, 0)) / 2, 1)));
    }
}

static void release(nm_probe_record *record)
{
    nm_params_copy_free(record->backend, &record->state);
}

const nm_instrument nm_instrument_effective_rate = {
    .name = "effective_rate",
    .gradients = copy_params,
    .updated = add_angles,
    .release = release,
};
