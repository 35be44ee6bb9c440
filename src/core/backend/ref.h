/* The reference kernels: in float, in double, and in float with bf16 matrix multiplications. */
#pragma once

#include "norma/backend.h"

extern const nm_kernels nm_ref_kernels_f32, nm_ref_kernels_f64, nm_ref_kernels_bf16;

static inline const nm_kernels *nm_ref_kernels(nm_dtype dtype, bool bf16)
{
    if (bf16)
        return &nm_ref_kernels_bf16;
    return dtype == NM_F64 ? &nm_ref_kernels_f64 : &nm_ref_kernels_f32;
}

nm_status nm_ref_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err);
