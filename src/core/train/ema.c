#include "train/ema.h"

#include <math.h>
#include <string.h>

nm_status nm_ema_init(nm_ema *ema, nm_params *params, double decay, nm_error *err)
{
    *ema = (nm_ema){.params = params, .decay = decay};
    return decay > 0 ? nm_backend_alloc(params->backend, nm_params_bytes(params), &ema->values, err) : NM_OK;
}

void nm_ema_release(nm_ema *ema)
{
    if (ema->values)
        nm_backend_dealloc(ema->params->backend, ema->values);
    *ema = (nm_ema){0};
}

void nm_ema_start(nm_ema *ema)
{
    if (ema->values)
        nm_backend_copy(ema->params->backend, ema->values, ema->params->values, nm_params_bytes(ema->params));
}

/* Fixed parameters remain exactly equal. */
void nm_ema_add(nm_ema *ema, int64_t update)
{
    const nm_params *params = ema->params;
    const double t = (double)update, decay = fmin(ema->decay, (1 + t) / (10 + t));
    for (size_t i = 0; ema->values && i < params->n; i++) {
        const nm_param *param = params->list[i];
        char *average = (char *)ema->values + param->offset * nm_dtype_bytes(params->backend->dtype);
        if (!param->fixed)
            NM_CALL(params->backend, vec, .op = NM_VEC_LINEAR, .n = param->tensor.rows * param->tensor.cols,
                    .out = average, .a = average, .b = param->tensor.data, .s = decay, .t = 1 - decay);
    }
}

void nm_ema_use(nm_ema *ema)
{
    const nm_params *params = ema->params;
    if (!ema->values)
        return;
    nm_backend_copy(params->backend, params->grads, params->values, nm_params_bytes(params));
    nm_backend_copy(params->backend, params->values, ema->values, nm_params_bytes(params));
}

void nm_ema_restore(nm_ema *ema)
{
    const nm_params *params = ema->params;
    if (!ema->values)
        return;
    nm_backend_copy(params->backend, params->values, params->grads, nm_params_bytes(params));
    /* The gradient norm includes the memory of fixed parameters, which updates do not zero. */
    nm_backend_zero(params->backend, params->grads, nm_params_bytes(params));
}

nm_status nm_ema_check_model(const nm_safetensors *best, const nm_safetensors *model,
                             const nm_safetensor *average, nm_error *err)
{
    const size_t unit = average->bytes / average->count, n = nm_safetensors_count(best);
    bool equal = n == nm_safetensors_count(model);
    for (size_t i = 0, at = 0; i < n && equal; i++) {
        const nm_safetensor *tensor = nm_safetensors_at(best, i),
                            *stored = nm_safetensors_find(model, tensor->name);
        equal = stored && stored->bytes == tensor->bytes && at <= average->count;
        if (equal && tensor->type == average->type && at < average->count) {
            equal = tensor->bytes <= (average->count - at) * unit &&
                    !memcmp(tensor->data, (const char *)average->data + at * unit, tensor->bytes);
            at += nm_params_padded(tensor->count);
        } else if (equal) {
            equal = !memcmp(tensor->data, stored->data, tensor->bytes);
        }
    }
    return equal ? NM_OK
                 : nm_fail(err, NM_FORMAT, "%s: not the average of parameters of its checkpoint",
                           nm_safetensors_path(best));
}
