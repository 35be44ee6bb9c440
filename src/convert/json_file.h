/* JSON files of other programs. */
#ifndef NM_JSON_FILE_H
#define NM_JSON_FILE_H

#include <jansson.h>

#include "norma/status.h"

/* Writes the value to FOLDER/NAME and frees it. value NULL: NM_USAGE, a text was not UTF-8. */
nm_status nm_json_write(json_t *value, const char *folder, const char *name, nm_error *err);

#endif
