/* The descriptors of all normalization types; table.c lists them. */
#ifndef NM_NORM_TYPES_H
#define NM_NORM_TYPES_H

#include "norm/common.h"

extern const nm_norm_type nm_norm_none, nm_norm_layer, nm_norm_rms, nm_norm_scale, nm_norm_fix, nm_norm_group,
    nm_norm_batch, nm_norm_pnv, nm_norm_power, nm_norm_rbn, nm_norm_mabn, nm_norm_renorm;

#endif
