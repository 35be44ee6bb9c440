/* The reference kernels in float, with matrix multiplications on bf16 operands. */
#define real        float
#define REF_BF16    1
#define REF_KERNELS nm_ref_kernels_bf16
#include "backend/ref_kernels.inc"
