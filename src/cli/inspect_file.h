/* RUN/inspection.json, the saved measurements of norma inspect --save: a JSON array in the format of --json, one object per
 * update in increasing order. norma report reads it. */
#ifndef NM_INSPECT_FILE_H
#define NM_INSPECT_FILE_H

#include <jansson.h>

#include "norma/status.h"

/* NM_USAGE if run is a model file: measurements are saved in run folders only. */
nm_status inspect_file_check(const char *run, nm_error *err);
/* Adds a result ("update" and measurements). Other measurements of the same update are kept; a file that is not JSON is
 * replaced. */
nm_status inspect_file_add(const char *run, json_t *result, nm_error *err);

#endif
