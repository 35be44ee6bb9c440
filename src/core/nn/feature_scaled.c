/* Learned scale: one per feature (LayerScale, Touvron et al. 2021, "Going deeper with Image Transformers") or
 * one for all features (ReZero, Bachlechner et al. 2020, "ReZero is All You Need"):
 *     y       = scale x
 *     dx     += scale dy
 *     dscale += sum of dy x        over the rows, or over all elements */
#include "nn/tape.h"

static nm_map_args scale_map(const nm_tensor *x, const nm_tensor *scale)
{
    bool per_feature = scale->cols == x->cols;
    return (nm_map_args){.op = NM_MAP_IDENTITY,
                         .x = nm_tensor_mat(x),
                         .alpha = per_feature ? NULL : scale->data,
                         .weight = per_feature ? scale->data : NULL};
}

static void feature_scaled_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *x = node->in[0], *scale = node->in[1], *y = node->out;
    const nm_map_args forward = scale_map(x, scale);
    void *d_scale = nm_tensor_grad_sum(tape, scale).data;
    bool add;
    nm_mat dx = nm_tensor_grad(tape, x, &add);
    if (dx.data)
        NM_CALL(tape->backend, map_grad, .forward = forward, .dy = nm_mat_of(y->grad, y->rows, y->cols),
                .add = add, .dx = dx, .d_alpha = forward.alpha ? d_scale : NULL,
                .d_weight = forward.weight ? d_scale : NULL);
}

static const nm_op feature_scaled_op = {.name = "feature_scaled", .backward = feature_scaled_backward};

nm_tensor *nm_feature_scaled(nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    if (nm_tape_exhausted(tape))
        return y;
    NM_ASSERT(scale->rows == 1 && (scale->cols == x->cols || scale->cols == 1));
    nm_map_args map = scale_map(x, scale);
    map.y = nm_tensor_mat(y);
    tape->backend->k.map(tape->backend, &map);
    y->unread = true;
    nm_node *node = nm_tape_record(tape, &feature_scaled_op, y, NULL);
    node->in[0] = x;
    node->in[1] = scale;
    return y;
}
