/* RUN/inspection.json: what norma inspect --save has measured of a run, a JSON array as --json prints it, one object for
 * each update, the lowest first. norma report reads it. */
#ifndef NM_INSPECT_FILE_H
#define NM_INSPECT_FILE_H

#include <jansson.h>

#include "norma/status.h"

/* NM_USAGE when run is no folder: a model file has no place for it. */
nm_status inspect_file_check(const char *run, nm_error *err);
/* Puts a result ("update" and measurements) into the file. Measurements of the same update that it does not hold stay, a
 * file that cannot be read is replaced. */
nm_status inspect_file_add(const char *run, json_t *result, nm_error *err);

#endif
