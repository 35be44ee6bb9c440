/* Symmetric per-row int8 quantization of the parameters for inference: matrices are rounded in place to
 * values that int8 with one scale per row represents, and the backend multiplies with their packed int8
 * layouts. */
#include <stdlib.h>

#include "nn/params.h"

enum { PACKED_ALIGN = 64 };

bool nm_param_is_int8(const nm_param *param)
{
    return param->tensor.rows > 1 && !param->exact;
}

/* Offsets in bytes of the packed layouts in one block, [n + 1], heap; the last one is the size of the block.
 * A layout of 0 bytes: the backend has no int8 kernel for the matrix. */
static size_t *layout_packed(const nm_params *params)
{
    nm_backend *b = params->backend;
    size_t *offsets = nm_allocate((params->n + 1) * sizeof *offsets);
    for (size_t i = 0; i < params->n; i++) {
        size_t bytes = 0;
        if (nm_param_is_int8(params->list[i]))
            NM_CALL(b, pack_int8, .weight = nm_tensor_mat(&params->list[i]->tensor), .bytes = &bytes);
        offsets[i + 1] = offsets[i] + (bytes + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
    }
    return offsets;
}

nm_status nm_params_to_int8(nm_params *params, nm_error *err)
{
    nm_backend *b = params->backend;
    NM_ASSERT(!params->grads && !params->int8);
    size_t *offsets = layout_packed(params), bytes;
    nm_status status = nm_backend_alloc(b, offsets[params->n], &params->packed_int8, err);
    for (size_t i = 0; i < params->n && status == NM_OK; i++) {
        nm_mat mat = nm_tensor_mat(&params->list[i]->tensor);
        void *packed = (char *)params->packed_int8 + offsets[i];
        if (nm_param_is_int8(params->list[i]))
            NM_CALL(b, round_int8, .m = mat);
        if (offsets[i + 1] == offsets[i])
            continue;
        NM_CALL(b, pack_int8, .weight = mat, .packed = packed, .bytes = &bytes);
        nm_backend_register_weight_int8(b, mat, packed);
        params->list[i]->packed_int8 = packed;
    }
    params->int8 = status == NM_OK;
    free(offsets);
    return status;
}

void nm_params_from_int8(nm_params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        if (params->list[i]->packed_int8)
            nm_backend_unregister_weight(params->backend, params->list[i]->packed_int8);
        params->list[i]->packed_int8 = NULL;
    }
    if (params->packed_int8)
        nm_backend_dealloc(params->backend, params->packed_int8);
    params->packed_int8 = NULL;
    params->int8 = false;
}
