/* The norms of a trained model as the functions that other programs have. At inference every norm that has a counterpart is
 * one of three:
 *     layer     y = gain (x - mean) / sqrt(variance + eps) + shift
 *     rms       y = gain x / sqrt(mean square + eps)
 *     affine    y = gain x + shift                                     (norms with running statistics, and none)
 * ScaleNorm, y = g x / |x|, is rms with the gain g/sqrt(d) in every feature. */
#ifndef NM_NORM_MAP_H
#define NM_NORM_MAP_H

#include "norm/types.h"

typedef enum nm_norm_map_kind { NM_NORM_AS_LAYER, NM_NORM_AS_RMS, NM_NORM_AS_AFFINE } nm_norm_map_kind;

typedef struct nm_norm_map {
    nm_norm_map_kind kind;
    double
        eps; /* rms: 0 if the norm's own epsilon is outside the root, where it is below float's precision */
    double *gain, *shift; /* [d], heap */
} nm_norm_map;

/* NM_UNSUPPORTED names the site and the reason. The caller releases the map, also after an error. */
nm_status nm_norm_map_make(nm_norm_map *map, const nm_norm *norm, nm_backend *backend, nm_error *err);
void nm_norm_map_release(nm_norm_map *map);

#endif
