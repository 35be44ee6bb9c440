/* The reference kernels in double. */
#define real        double
#define REF_KERNELS nm_ref_kernels_f64
#include "backend/ref_kernels.inc"
