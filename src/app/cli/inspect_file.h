/* RUN/inspection.json, the measurements saved by norma inspect --save: a JSON array in the format of --json,
 * with one object per update in increasing order. norma report reads it. */
#pragma once

#include <jansson.h>

#include "norma/status.h"

/* NM_USAGE if run is a model file: measurements are saved in run folders only. */
nm_status inspect_file_check(const char *run, nm_error *err);
/* Adds a result ("update" and measurements). Other measurements of the same update are kept. NM_FORMAT if the
 * file exists and is not such an array, NM_IO; the file is unchanged then. */
nm_status inspect_file_add(const char *run, json_t *result, nm_error *err);
