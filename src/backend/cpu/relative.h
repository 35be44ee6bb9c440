/* Attention with relative positions; part of the group of attention. */
#ifndef NM_RELATIVE_H
#define NM_RELATIVE_H

#include "backend/cpu/simd.h"
#include "norma/backend.h"

void NM_SIMD(nm_cpu_relative)(nm_kernels *k);

#endif
