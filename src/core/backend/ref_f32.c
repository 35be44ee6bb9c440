/* The reference kernels in float. */
#define real        float
#define REF_KERNELS nm_ref_kernels_f32
#include "backend/ref_kernels.inc"
