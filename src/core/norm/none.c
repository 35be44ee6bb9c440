/* No normalization: y = x, dx = dy. */
#include "norm/types.h"

static void none_forward(nm_norm_call *call)
{
    NM_CALL(call->backend, scale, .alpha = 1, .x = call->x, .y = call->y);
}

static void none_backward(nm_norm_call *call)
{
    if (call->add)
        NM_CALL(call->backend, add, .alpha = 1, .x = call->dy, .y = call->dx);
    else
        NM_CALL(call->backend, scale, .alpha = 1, .x = call->dy, .y = call->dx);
}

static bool none_affine(const nm_norm *norm, nm_backend *backend, double *scale, double *shift)
{
    (void)backend;
    for (int32_t i = 0; i < norm->site.width; i++) {
        scale[i] = 1;
        shift[i] = 0;
    }
    return true;
}

static const nm_option none_options[] = {{0}};

const nm_norm_type nm_norm_none = {
    .name = "none",
    .title = "no normalization",
    .formula = "y = x",
    .source = "",
    .options = none_options,
    .train = none_forward,
    .infer = none_forward,
    .backward = none_backward,
    .affine = none_affine,
};
