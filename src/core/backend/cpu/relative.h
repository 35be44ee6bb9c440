/* Kernels of attention with relative positions and of attention over a KV cache, which nm_cpu_attention
 * registers. */
#pragma once

#include "backend/cpu/simd.h"
#include "norma/backend.h"

void NM_SIMD(nm_cpu_relative)(nm_kernels *k);
void NM_SIMD(nm_cpu_attention_cached)(nm_kernels *k);
