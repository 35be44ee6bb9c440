/* The registered normalization types, one line each, in the order of help texts and tables. */
#pragma once

#include "norm/common.h"

/* clang-format off */
#define NM_NORM_TYPES(T) \
    T(none)              \
    T(layer)             \
    T(rms)               \
    T(scale)             \
    T(fix)               \
    T(group)             \
    T(group2d)           \
    T(batch)             \
    T(pnv)               \
    T(power)             \
    T(rbn)               \
    T(mabn)              \
    T(renorm)            \
    T(dyt)               \
    T(derf)              \
    T(unit)              \
    T(prms)              \
    T(ada)               \
    T(seed)              \
    T(repbn)             \
    T(progressive)       \
    T(un)
/* clang-format on */

#define NM_DECLARE_TYPE(name) extern const nm_norm_type nm_norm_##name;
NM_NORM_TYPES(NM_DECLARE_TYPE)
#undef NM_DECLARE_TYPE
