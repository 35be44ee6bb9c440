/* YAML files of other toolkits, read by libyaml as JSON values. */
#pragma once

#include <jansson.h>

#include "norma/status.h"

/* Parses a document whose root is a mapping; the caller releases *value with json_decref. Plain scalars
 * become integers, booleans or strings; aliases are not supported. name: for messages. NM_FORMAT with the
 * line; NM_UNSUPPORTED if libyaml was missing at build time. */
nm_status nm_yaml_parse(json_t **value, const void *text, size_t bytes, const char *name, nm_error *err);
/* The same for a file; also NM_IO. */
nm_status nm_yaml_read(json_t **value, const char *path, nm_error *err);
