/* JSON files of other toolkits. */
#pragma once

#include <jansson.h>

#include "norma/status.h"

/* Writes a value to FOLDER/NAME and releases it. NM_USAGE if value is NULL, as after json_pack with text that
 * is not UTF-8; NM_IO. */
nm_status nm_json_write(json_t *value, const char *folder, const char *name, nm_error *err);
/* Reads an object, which the caller releases with json_decref; NULL on failure. NM_FORMAT with file and line;
 * NM_IO. */
nm_status nm_json_read(json_t **value, const char *path, nm_error *err);

/* Reads an integer between 1 and max. NM_FORMAT if the key is missing or has another value. path: for
 * messages. */
nm_status nm_json_count(const json_t *object, const char *key, int64_t max, const char *path, int64_t *value,
                        nm_error *err);
/* The value of a key, or `otherwise` if it is missing, null or of another type. A flag may be a number. */
bool nm_json_flag(const json_t *object, const char *key, bool otherwise);
/* NAN, which no option accepts, if it is of another type. */
double nm_json_real(const json_t *object, const char *key, double otherwise);
int64_t nm_json_id(const json_t *object, const char *key, int64_t otherwise);
