#include "convert/norm_map.h"

#include <math.h>

#include "nn/tape.h"

/* Larger epsilons outside the root, or that clamp the L2 norm, have no counterpart. */
static const double NEGLIGIBLE = 1e-4;

static nm_status unsupported(const nm_norm *norm, const char *reason, nm_error *err)
{
    return nm_fail(err, NM_UNSUPPORTED, "%s is %s: %s", norm->site.name, norm->type->name, reason);
}

/* Reads parameter `index`: a vector of length d, or a scalar that is repeated for all features. */
static void read_vector(const nm_norm *norm, nm_backend *backend, int index, int32_t length, double *values)
{
    if (!length)
        return;
    NM_AUTO_FREE double *stored = nm_vector_values(backend, norm->params[index], (size_t)length);
    for (int32_t i = 0; i < norm->site.width; i++)
        values[i] = stored[i < length ? i : 0];
}

static nm_status map_token_norm(nm_norm_map *map, const nm_norm *norm, nm_backend *backend, nm_error *err)
{
    const nm_token_norm spec = norm->type->token_spec(norm);
    int32_t d = norm->site.width;
    double factor = 1;
    if (spec.groups != 1)
        return unsupported(norm, "normalization of groups of features has no counterpart", err);
    if (spec.n_used || spec.ada_c > 0 || spec.kind == NM_TOKEN_CENTER_OUTSIDE)
        return unsupported(norm, "its formula has no counterpart", err);
    for (int32_t i = 0; i < d; i++)
        map->gain[i] = 1;
    read_vector(norm, backend, 0, spec.weight_len, map->gain);
    read_vector(norm, backend, 1, spec.bias_len, map->shift);
    map->kind = NM_NORM_AS_RMS;
    switch (spec.kind) {
    case NM_TOKEN_CENTER:
        map->kind = NM_NORM_AS_LAYER;
        map->eps = spec.eps;
        break;
    case NM_TOKEN_CENTER_UNBIASED: /* variance d/(d - 1) */
        map->kind = NM_NORM_AS_LAYER;
        map->eps = spec.eps * (d - 1) / d;
        factor = sqrt((d - 1.0) / d);
        break;
    case NM_TOKEN_RMS:
        map->eps = spec.eps;
        break;
    case NM_TOKEN_L2:
        factor = pow(d, spec.power / 2) / sqrt(d);
        break;
    case NM_TOKEN_RMS_OUTSIDE:
    case NM_TOKEN_CENTER_OUTSIDE: /* unsupported */
        break;
    }
    for (int32_t i = 0; i < d; i++)
        map->gain[i] *= factor;
    if (spec.eps > NEGLIGIBLE && (spec.kind == NM_TOKEN_L2 || spec.kind == NM_TOKEN_RMS_OUTSIDE))
        return unsupported(norm, "its epsilon is too large to be left out", err);
    return NM_OK;
}

nm_status nm_norm_map_make(nm_norm_map *map, const nm_norm *norm, nm_backend *backend, nm_error *err)
{
    size_t d = (size_t)norm->site.width;
    *map = (nm_norm_map){.kind = NM_NORM_AS_AFFINE,
                         .gain = nm_allocate(d * sizeof *map->gain),
                         .shift = nm_allocate(d * sizeof *map->shift)};
    if (norm->type->affine) {
        if (norm->type->affine(norm, backend, map->gain, map->shift))
            return NM_OK;
        return unsupported(norm, "with row scaling it is not affine at inference (norm.*.scaling)", err);
    }
    if (norm->type->token_spec)
        return map_token_norm(map, norm, backend, err);
    return unsupported(norm, "its formula has no counterpart", err);
}

void nm_norm_map_release(nm_norm_map *map)
{
    NM_FREE(map->gain, map->shift);
    *map = (nm_norm_map){0};
}
