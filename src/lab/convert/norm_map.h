/* The norms of a trained model as functions that other toolkits support. At inference, every norm that has a
 * counterpart is one of three functions:
 *     layer     y = gain (x - mean) / sqrt(variance + eps) + shift
 *     rms       y = gain x / sqrt(mean square + eps)
 *     affine    y = gain x + shift                                     (norms with running statistics; none)
 * ScaleNorm, y = g x / |x|, is rms with gain g/sqrt(d) for every feature; UnitNorm with gain d^((k -
 * 1)/2). */
#pragma once

#include "norma/norm_type.h"

typedef enum nm_norm_map_kind { NM_NORM_AS_LAYER, NM_NORM_AS_RMS, NM_NORM_AS_AFFINE } nm_norm_map_kind;

typedef struct nm_norm_map {
    nm_norm_map_kind kind;
    double eps;           /* rms: 0 for an epsilon outside the root, which is negligible */
    double *gain, *shift; /* [d], heap */
} nm_norm_map;

/* NM_UNSUPPORTED if the norm has no counterpart; the message names the site and the reason. The caller
 * releases the map, also after an error. */
nm_status nm_norm_map_make(nm_norm_map *map, const nm_norm *norm, nm_backend *backend, nm_error *err);
void nm_norm_map_release(nm_norm_map *map);
