/* Attention with relative positions and over a KV cache; registered with the attention kernels. */
#ifndef NM_RELATIVE_H
#define NM_RELATIVE_H

#include "backend/cpu/simd.h"
#include "norma/backend.h"

void NM_SIMD(nm_cpu_relative)(nm_kernels *k);
void NM_SIMD(nm_cpu_attention_cached)(nm_kernels *k);

#endif
