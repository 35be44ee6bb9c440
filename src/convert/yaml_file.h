/* YAML files of other programs, read by libyaml as JSON values. */
#ifndef NM_YAML_FILE_H
#define NM_YAML_FILE_H

#include <jansson.h>

#include "norma/status.h"

/* A document whose root is a mapping, of which json_decref frees the value. Plain scalars are integers, booleans or strings; no
 * aliases. name is for messages. NM_FORMAT with the line; NM_UNSUPPORTED if this build is without libyaml. */
nm_status nm_yaml_parse(json_t **value, const void *text, size_t bytes, const char *name, nm_error *err);
nm_status nm_yaml_read(json_t **value, const char *path, nm_error *err);

#endif
