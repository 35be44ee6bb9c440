/* Values of JSON. */
#ifndef NM_JSON_H
#define NM_JSON_H

#include <jansson.h>
#include <math.h>

/* null unless finite: JSON has neither NaN nor infinity. */
static inline json_t *nm_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
