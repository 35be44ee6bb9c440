/* JSON files of other programs. */
#ifndef NM_JSON_FILE_H
#define NM_JSON_FILE_H

#include <jansson.h>

#include "norma/status.h"

/* Writes the value to FOLDER/NAME and frees it. value NULL: NM_USAGE, a text was not UTF-8. */
nm_status nm_json_write(json_t *value, const char *folder, const char *name, nm_error *err);
/* Reads an object. The caller frees it with json_decref. NM_FORMAT names file and line. */
nm_status nm_json_read(json_t **value, const char *path, nm_error *err);

/* An integer between 1 and max. NM_FORMAT if the key is missing or has another value; path is for messages. */
nm_status nm_json_count(const json_t *object, const char *key, int64_t max, const char *path, int64_t *value,
                        nm_error *err);
/* The value of a key, or `otherwise` if it is missing, null or of another type. */
bool nm_json_flag(const json_t *object, const char *key, bool otherwise);
double nm_json_real(const json_t *object, const char *key, double otherwise);
int64_t nm_json_id(const json_t *object, const char *key, int64_t otherwise);

#endif
