/* Attention with relative positions; registered with the attention kernels. */
#ifndef NM_RELATIVE_H
#define NM_RELATIVE_H

#include "backend/cpu/simd.h"
#include "norma/backend.h"

void NM_SIMD(nm_cpu_relative)(nm_kernels *k);

#endif
