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

/* The number of a key of an object; NaN if it has none. */
static inline double nm_json_number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

#endif
