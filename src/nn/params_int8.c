/* Parameters of a model in use as int8: every matrix takes the nearest numbers that int8 holds, and the backend keeps the
 * form of it that its products read. */
#include <stdlib.h>

#include "nn/params.h"

enum { FORM_ALIGN = 64 };

bool nm_param_is_int8(const nm_param *param)
{
    return param->tensor.rows > 1 && !param->exact;
}

/* Where each form stands in the memory of all, and at the end how much that is; forms without bytes are not held. */
static size_t *place_forms(const nm_params *params)
{
    nm_backend *b = params->backend;
    size_t *places = nm_allocate((params->n + 1) * sizeof *places);
    for (size_t i = 0; i < params->n; i++) {
        size_t bytes = 0;
        if (nm_param_is_int8(params->list[i]))
            NM_CALL(b, pack_int8, .weight = nm_tensor_mat(&params->list[i]->tensor), .bytes = &bytes);
        places[i + 1] = places[i] + (bytes + FORM_ALIGN - 1) / FORM_ALIGN * FORM_ALIGN;
    }
    return places;
}

nm_status nm_params_to_int8(nm_params *params, nm_error *err)
{
    nm_backend *b = params->backend;
    NM_ASSERT(!params->grads && !params->int8);
    size_t *places = place_forms(params), bytes;
    nm_status status = nm_backend_alloc(b, places[params->n], &params->forms, err);
    for (size_t i = 0; i < params->n && status == NM_OK; i++) {
        nm_mat mat = nm_tensor_mat(&params->list[i]->tensor);
        void *form = (char *)params->forms + places[i];
        if (nm_param_is_int8(params->list[i]))
            NM_CALL(b, round_int8, .m = mat);
        if (places[i + 1] == places[i])
            continue;
        NM_CALL(b, pack_int8, .weight = mat, .packed = form, .bytes = &bytes);
        nm_backend_register_weight_int8(b, mat, form);
        params->list[i]->form = form;
    }
    params->int8 = status == NM_OK;
    free(places);
    return status;
}

void nm_params_from_int8(nm_params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        if (params->list[i]->form)
            nm_backend_unregister_weight(params->backend, params->list[i]->form);
        params->list[i]->form = NULL;
    }
    if (params->forms)
        nm_backend_dealloc(params->backend, params->forms);
    params->forms = NULL;
    params->int8 = false;
}
