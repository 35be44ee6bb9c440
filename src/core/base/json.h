/* JSON values. */
#pragma once

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

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

/* A new array of what a function makes for 0 .. n - 1; items that are NULL are left out. */
json_t *nm_json_list(size_t n, json_t *(*make)(const void *user, size_t i), const void *user);
/* A new array of n numbers; values: NULL for an empty array. */
json_t *nm_json_numbers(const double *values, size_t n);
json_t *nm_json_counts(const int64_t *counts, size_t n);
json_t *nm_json_texts(const char *const *texts, size_t n);
/* Adds the members of the object that json_pack would make. */
void nm_json_add(json_t *object, const char *format, ...);
/* Writes a value and a line break, in the order of the keys, and releases the value. flags: JSON_COMPACT,
 * JSON_INDENT(n) and others of json_dumpf. */
void nm_json_print(json_t *value, size_t flags, FILE *out);
