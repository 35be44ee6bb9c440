/* JSON values. */
#ifndef NM_JSON_H
#define NM_JSON_H

#include <jansson.h>
#include <math.h>

/* A JSON number, or null for NaN and infinity, which JSON does not have. The caller owns the reference. */
static inline json_t *nm_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
